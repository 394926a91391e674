// The pretokenizer character by character, which defines the meaning of the pattern, and where a text may be cut.
//
// make bench-tokenizer-hard (one core of a Xeon with AVX-512, 2026-11-21): skipping cuts between equal characters makes
// a single word of one repeated letter 1.3x as fast.
#include "tokenizer/merge/pretokenize.h"
#include "common/utf8.h"
#include "tokenizer/merge/unicode.h"

// Sets *invalid when the character is not UTF-8; never clears it.
static Class class_at(const uint8_t *at, const uint8_t *end, unsigned *length, bool *invalid) {
    uint32_t point;
    *length = utf8_decode(at, end, &point);
    *invalid |= point > UTF8_LAST;
    return unicode_class(point);
}

static const uint8_t *run_end(const uint8_t *at, const uint8_t *end, Class class, bool *invalid) {
    for (unsigned length; at < end && class_at(at, end, &length, invalid) == class; at += length) {
    }
    return at;
}

// The end of the contraction at the apostrophe `at`, or NULL.
static const uint8_t *contraction_end(const uint8_t *at, const uint8_t *end) {
    if (end - at >= 2 && strchr("sdmt", at[1]) && at[1]) return at + 2;
    if (end - at >= 3 && (!memcmp(at + 1, "ll", 2) || !memcmp(at + 1, "ve", 2) || !memcmp(at + 1, "re", 2)))
        return at + 3;
    return NULL;
}

static const uint8_t *piece_end(const uint8_t *at, const uint8_t *end, bool *invalid) {
    const uint8_t *contraction = *at == '\'' ? contraction_end(at, end) : NULL;
    if (contraction) return contraction;
    unsigned length;
    Class class = class_at(at, end, &length, invalid);
    if (class != CLASS_SPACE) return run_end(at, end, class, invalid);

    const uint8_t *last = at, *next = at + length; // of the white space: its last character, and its end
    while (next < end && class_at(next, end, &length, invalid) == CLASS_SPACE) {
        last = next;
        next += length;
    }
    if (next == end) return end;
    if (last > at) return last;  // \s+(?!\S) leaves one character
    if (*at != ' ') return next; // \s+
    return run_end(next, end, class_at(next, end, &length, invalid), invalid);
}

size_t pretokenize_portable(Pretokenizer *pretokenizer, uint32_t *starts) {
    const uint8_t *text = pretokenizer->text.data, *end = text + pretokenizer->text.size, *at = text + pretokenizer->at;
    size_t count = 0;
    for (; at < end && count < PRETOKENIZE_BATCH; at = piece_end(at, end, &pretokenizer->invalid))
        starts[count++] = (uint32_t)(at - text);
    pretokenizer->at = (size_t)(at - text);
    starts[count] = (uint32_t)pretokenizer->at;
    return count;
}

void pretokenizer_open(Pretokenizer *pretokenizer, Bytes text, Isa isa) {
    static size_t (*const next[])(Pretokenizer *, uint32_t *) = {pretokenize_portable, pretokenize_avx2,
                                                                 pretokenize_avx512};
    pretokenizer->text = text;
    pretokenizer->at = 0;
    pretokenizer->invalid = false;
    pretokenizer->next = next[isa];
    pretokenizer->before = (PretokenizeBlock){0};
    pretokenizer->tail_at = text.size < PRETOKENIZE_TAIL / 2 ? 0 : (text.size - PRETOKENIZE_TAIL / 2) / 64 * 64;
    size_t tail_size = text.size - pretokenizer->tail_at;
    memcpy(pretokenizer->tail, text.data + pretokenizer->tail_at, tail_size);
    memset(pretokenizer->tail + tail_size, 0, PRETOKENIZE_TAIL - tail_size);
}

// The class of the character that ends before `at`; a stray byte is CLASS_OTHER.
static Class class_before(const uint8_t *at, const uint8_t *begin) {
    const uint8_t *lead = at - 1;
    while (lead > begin && at - lead < 4 && (*lead & 0xC0) == 0x80) lead--;
    unsigned length;
    bool invalid = false;
    Class class = class_at(lead, at, &length, &invalid);
    return lead + length == at ? class : CLASS_OTHER;
}

// Between a character that is not white space and one of another class a piece always ends, except in contractions. (A
// cut after white space would put it at the end of its text, where the pattern treats it differently.)
size_t pretokenize_cut(Bytes text, size_t from) {
    for (size_t cut = text.size; cut-- > from && cut;) {
        const uint8_t *at = text.data + cut, *end = text.data + text.size;
        uint32_t point;
        unsigned length = utf8_decode(at, end, &point);
        if (point > UTF8_LAST || at[-1] == '\'') continue;
        if (cut >= length && !memcmp(at - length, at, length)) continue; // a run of one character
        Class before = class_before(at, text.data);
        if (before != CLASS_SPACE && before != unicode_class(point)) return cut;
    }
    return 0;
}
