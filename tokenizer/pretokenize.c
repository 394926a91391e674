// The scanner, character by character: the meaning of the pattern. And where a text may be cut.
#include "tokenizer/pretokenize.h"
#include "tokenizer/unicode.h"

// *invalid is set, not cleared.
static Class class_at(const uint8_t *at, const uint8_t *end, unsigned *length, bool *invalid) {
    uint32_t point;
    *length = utf8_decode(at, end, &point);
    *invalid |= point == UTF8_INVALID;
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

    const uint8_t *last = at, *next = at + length; // of the white space: its last character, and what follows
    while (next < end && class_at(next, end, &length, invalid) == CLASS_SPACE) {
        last = next;
        next += length;
    }
    if (next == end) return end;
    if (last > at) return last;  // \s+(?!\S) gives one character back
    if (*at != ' ') return next; // \s+
    return run_end(next, end, class_at(next, end, &length, invalid), invalid);
}

size_t split_portable(Splitter *splitter, uint32_t *starts) {
    const uint8_t *text = splitter->text.data, *end = text + splitter->text.size, *at = text + splitter->at;
    size_t count = 0;
    for (; at < end && count < SPLIT_BATCH; at = piece_end(at, end, &splitter->invalid))
        starts[count++] = (uint32_t)(at - text);
    splitter->at = (size_t)(at - text);
    starts[count] = (uint32_t)splitter->at;
    return count;
}

void splitter_open(Splitter *splitter, Bytes text, Isa isa) {
    static size_t (*const next[])(Splitter *, uint32_t *) = {split_portable, split_avx2, split_avx512};
    splitter->text = text;
    splitter->at = 0;
    splitter->invalid = false;
    splitter->next = next[isa];
    splitter->before = (SplitBlock){0};
    splitter->tail_at = text.size < SPLIT_TAIL / 2 ? 0 : (text.size - SPLIT_TAIL / 2) / 64 * 64;
    size_t tail_size = text.size - splitter->tail_at;
    memcpy(splitter->tail, text.data + splitter->tail_at, tail_size);
    memset(splitter->tail + tail_size, 0, SPLIT_TAIL - tail_size);
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

// Between a character that is no white space and one of another class a piece always ends, but for contractions. (White
// space before the cut would be at the end of its text, where the pattern treats it differently.)
size_t split_cut(Bytes text, size_t from) {
    const uint8_t *end = text.data + text.size;
    for (size_t cut = text.size; cut-- > from && cut;) {
        const uint8_t *at = text.data + cut;
        uint32_t point;
        unsigned length = utf8_decode(at, end, &point);
        if (point == UTF8_INVALID || at[-1] == '\'') continue;
        if (cut >= length && !memcmp(at - length, at, length)) continue; // the same again; a word of those: 1.3x
        Class before = class_before(at, text.data);
        if (before != CLASS_SPACE && before != unicode_class(point)) return cut;
    }
    return 0;
}
