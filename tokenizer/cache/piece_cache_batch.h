// What the fast paths over a batch of words share.
//
// A batch goes in steps, each over all its words: make the keys; hash them and ask for their lines of the table; look
// in those lines, without a branch that could be guessed wrong; ask for all other places of the words that are not
// there (one in forty, and each waited for memory by itself: 1.1x); write the ids one behind the other.
#pragma once

#include "tokenizer/cache/piece_cache_entry.h"
#include "tokenizer/pretokenize.h"

enum { LINE_BYTES = 64, FOUND_IDS = 4 * SMALL_KEY - 1 };

// What an entry has behind its key. Copied at once, as a word that is learnt may move others.
typedef struct {
    uint16_t ids[FOUND_IDS], count; // more than FOUND_IDS: is to be looked up
} Found;

typedef struct {
    _Alignas(LINE_BYTES) uint64_t keys[PRETOKENIZE_BATCH][SMALL_KEY];
    uint32_t lines[PRETOKENIZE_BATCH]; // of tables[0], in bytes from its beginning
    Found found[PRETOKENIZE_BATCH];
    uint16_t missing[PRETOKENIZE_BATCH]; // which words are not in their line
} Batch;

// What makes a key of 16 bytes of text: a mask of the word's bytes, and its length in the last one. A branch on the
// size guesses wrong, so all longer words have a row too, and a key that is in no line.
typedef struct {
    uint64_t keep[SMALL_KEY], length[SMALL_KEY];
} KeyRow;

#define BYTES_BELOW(n) ((1ull << (n) % 8 * 8) - 1)
#define KEY_ROW(n)                                                                                                     \
    {                                                                                                                  \
        {(n) < 8 ? BYTES_BELOW(n) : ~0ull, (n) < 8 ? 0 : BYTES_BELOW(n)}, { 0, (n + 0ull) << 56 }                      \
    }
#define KEY_ROWS(n) KEY_ROW(n), KEY_ROW(n + 1), KEY_ROW(n + 2), KEY_ROW(n + 3)
_Alignas(LINE_BYTES) static const KeyRow key_rows[SMALL_BYTES + 2] = {
    KEY_ROWS(0), KEY_ROWS(4), KEY_ROWS(8), KEY_ROWS(12), {{0}, {0, (SMALL_BYTES + 1ull) << 56}}
};

ENTRY_INLINE void batch_ask_missing(Batch *batch, const PieceCache *words, const uint8_t *text, const uint32_t *starts,
                                    size_t missing) {
    const PieceTable *table = &words->tables[0];
    for (size_t n = 0; n < missing; n++) {
        size_t i = batch->missing[n], size = starts[i + 1] - starts[i];
        batch->found[i].count = FOUND_IDS + 1;
        if (size > SMALL_BYTES)
            piece_prefetch(words, text + starts[i], size);
        else
            for (size_t way = entries_in_line(SMALL_KEY); way < WAYS; way += entries_in_line(SMALL_KEY))
                __builtin_prefetch(entry_at(table, batch->lines[i] / (16 * SMALL_KEY) ^ way, SMALL_KEY));
    }
}

ENTRY_INLINE size_t batch_emit(const Batch *batch, PieceCache *words, const uint8_t *text, const uint32_t *starts,
                               size_t count, uint16_t *ids) {
    uint16_t *out = ids;
    for (size_t i = 0; i < count; i++) {
        const Found *found = &batch->found[i];
        const uint64_t *line = words->tables[0].entries + batch->lines[i] / 8;
        __builtin_prefetch(out + IDS_AHEAD, 1);
        memcpy(out, found, sizeof *found); // all of it, which takes no loop
        if (__builtin_expect(found->count <= FOUND_IDS, 1))
            out += found->count;
        else if (!key_differs(line, batch->keys[i], SMALL_KEY)) // takes its line
            out += entry_emit(line, SMALL_KEY, out);
        else
            out += piece_cache_encode_one(words, text + starts[i], starts[i + 1] - starts[i], out);
    }
    return (size_t)(out - ids);
}
