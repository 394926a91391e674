// Markers of conversations in a vocabulary.
#include "common/turns.h"
#include "common/err.h"
#include "tokenizer/merge/vocab_internal.h"
#include <stdlib.h>

#define TURN_NAME(NAME, name) "<|" name "|>",
static const char *const turn_names[TURN_COUNT] = {TURN_MARKERS(TURN_NAME)};

static unsigned find(const Vocab *vocab, const char *name) {
    for (unsigned id = 0; id < vocab->size; id++) {
        const Bytes token = vocab_bytes(vocab, id);
        if (token.size == strlen(name) && !memcmp(token.data, name, token.size)) return id;
    }
    return NO_TOKEN;
}

TurnIds vocab_turns(const Vocab *vocab) {
    TurnIds turns = {.known = true};
    for (int i = 0; i < TURN_COUNT; i++) {
        turns.ids[i] = find(vocab, turn_names[i]);
        turns.known &= turns.ids[i] != NO_TOKEN && vocab_is_special(vocab, turns.ids[i]);
    }
    return turns;
}

// The same tokens and merges, with room for more tokens.
static Vocab *copy(const Vocab *vocab, unsigned more, size_t more_bytes) {
    Vocab *made = vocab_new(vocab->size + more, vocab->start[vocab->size] + more_bytes, vocab->pairs);
    for (unsigned id = 0; id < vocab->size; id++) {
        const Bytes token = vocab_bytes(vocab, id);
        (vocab_is_special(vocab, id) ? vocab_add_special : vocab_add_token)(made, token.data, token.size);
    }
    uint64_t *pairs = vocab_pairs(vocab);
    for (unsigned i = 0; i < vocab->pairs; i++)
        vocab_add_pair(made, pair_left_id(pairs[i]), pair_right_id(pairs[i]), (unsigned)(pairs[i] >> 40));
    free(pairs);
    memcpy(made->byte_token, vocab->byte_token, sizeof made->byte_token);
    made->count = vocab->count, made->end_of_text = vocab->end_of_text;
    made->pattern = vocab->pattern, made->whole_pieces = vocab->whole_pieces;
    return made;
}

// NULL after fail(), without closing `vocab`.
static Vocab *add_missing(const Vocab *vocab) {
    const char *missing[TURN_COUNT];
    unsigned count = 0;
    size_t bytes = 0;
    if (vocab_is_characters(vocab))
        return fail(EX_DATA, "conversations need special tokens, and a vocabulary of characters has none"), NULL;
    for (int i = 0; i < TURN_COUNT; i++) {
        const unsigned id = find(vocab, turn_names[i]);
        if (id == NO_TOKEN)
            missing[count++] = turn_names[i], bytes += strlen(turn_names[i]);
        else if (!vocab_is_special(vocab, id))
            return fail(EX_DATA, "%s begins or ends a message, and the vocabulary has it as a token of texts, %u",
                        turn_names[i], id),
                   NULL;
    }
    if (vocab->size + count > IDS_MAX) return fail(EX_DATA, "the vocabulary has no room for more ids"), NULL;
    Vocab *made = copy(vocab, count, bytes);
    for (unsigned i = 0; i < count; i++) vocab_add_special(made, (const uint8_t *)missing[i], strlen(missing[i]));
    vocab_finish(made);
    return made;
}

const Vocab *vocab_with_turns(const Vocab *vocab) {
    if (vocab_turns(vocab).known) return vocab;
    const Vocab *made = add_missing(vocab);
    vocab_close(vocab);
    return made;
}
