// Vocabularies of characters, as nanoGPT's shakespeare_char has one: the id of a character is its place in a file.
#include "common/err.h"
#include "common/utf8.h"
#include "tokenizer/merge/vocab_internal.h"

static int add_character(Vocab *vocab, const uint8_t *at, unsigned length, uint32_t point) {
    if (point > UTF8_LAST) return fail(EX_DATA, "it is not UTF-8");
    if (vocab->size == CHARACTERS_MAX) return fail(EX_DATA, "it has more than %d characters", CHARACTERS_MAX);
    if (vocab->characters[point] != NO_SMALL) return fail(EX_DATA, "the character U+%04X occurs twice", point);
    vocab->characters[point] = (uint16_t)vocab_add_token(vocab, at, length);
    return 0;
}

static int add_all(Vocab *vocab, Bytes text) {
    if (!text.size) return fail(EX_DATA, "it holds no character");
    for (const uint8_t *at = text.data, *end = at + text.size; at < end;) {
        uint32_t point;
        const unsigned length = utf8_decode(at, end, &point);
        if (add_character(vocab, at, length, point) < 0) return -1;
        at += length;
    }
    vocab->count = vocab->size;
    vocab->end_of_text = vocab_add_special(vocab, (const uint8_t *)"<|endoftext|>", 13);
    return 0;
}

const Vocab *vocab_open_characters_text(Bytes text, const char *name) {
    Vocab *vocab = vocab_new(CHARACTERS_MAX + 1, CHARACTERS_MAX * UTF8_BYTES_MAX + 13, 1);
    const size_t bytes = (UTF8_LAST + 1) * sizeof *vocab->characters;
    vocab->characters = allocate_zeroed(1, bytes);
    memset(vocab->characters, 0xFF, bytes); // NO_SMALL
    if (add_all(vocab, text) == 0) return vocab;
    fail_in("the vocabulary '%s'", name);
    vocab_close(vocab);
    return NULL;
}

// The id of the character at `at`, whose length is set; `place`: of the character in the document. NO_TOKEN after
// fail().
static unsigned character_id(const Vocab *vocab, const uint8_t *at, const uint8_t *end, uint64_t place,
                             unsigned *length) {
    uint32_t point;
    *length = utf8_decode(at, end, &point);
    if (point > UTF8_LAST) {
        fail(EX_DATA, "invalid UTF-8 at byte %llu", (unsigned long long)place);
        return NO_TOKEN;
    }
    const unsigned id = vocab->characters[point];
    if (id != NO_SMALL) return id;
    fail(EX_DATA, "the character U+%04X at byte %llu is not in the vocabulary", point, (unsigned long long)place);
    return NO_TOKEN;
}

ssize_t characters_encode(const Vocab *vocab, Bytes text, uint64_t offset, uint16_t *ids) {
    uint16_t *out = ids;
    unsigned length;
    for (const uint8_t *at = text.data, *end = at + text.size; at < end; at += length) {
        const unsigned id = character_id(vocab, at, end, offset + (uint64_t)(at - text.data), &length);
        if (id == NO_TOKEN) return -1;
        *out++ = (uint16_t)id;
    }
    return out - ids;
}

bool vocab_is_characters(const Vocab *vocab) { return vocab->characters; }

int vocab_check(const Vocab *vocab, Bytes *text, bool last, uint64_t offset) {
    const uint8_t *at = text->data, *end = at + text->size;
    uint32_t point;
    int status = 0;
    for (unsigned length; at < end; at += length) {
        if (!last && end - at < UTF8_BYTES_MAX && (utf8_decode(at, end, &point), point == UTF8_CUT)) break;
        if (character_id(vocab, at, end, offset + (uint64_t)(at - text->data), &length) == NO_TOKEN) {
            status = -1;
            break;
        }
    }
    text->size = (size_t)(at - text->data);
    return status;
}
