// The pretokenizer character by character, which defines the meaning of the patterns. Each row of patterns.def has a
// copy of piece_end, in which its rules are constants.
//
// bench_tokenizer (one core of a Xeon with AVX-512, 2026-11-21): skipping cuts between equal characters makes a single
// word of one repeated letter 1.3x as fast.
#include "common/utf8.h"
#include "tokenizer/merge/pretokenize.h"
#include "tokenizer/merge/unicode.h"

#define PORTABLE_INLINE __attribute__((always_inline)) static inline

// Sets *invalid when the character is not UTF-8; never clears it.
static uint32_t point_at(const uint8_t *at, const uint8_t *end, unsigned *length, bool *invalid) {
    uint32_t point;
    *length = utf8_decode(at, end, &point);
    *invalid |= point > UTF8_LAST;
    return point;
}

static Class class_at(const uint8_t *at, const uint8_t *end, unsigned *length, bool *invalid) {
    return unicode_class(point_at(at, end, length, invalid));
}

static const uint8_t *run_end(const uint8_t *at, const uint8_t *end, Class class, bool *invalid) {
    for (unsigned length; at < end && class_at(at, end, &length, invalid) == class; at += length) {
    }
    return at;
}

static bool is_line_end(uint8_t byte) { return byte == '\n' || byte == '\r'; }

// The end of the contraction at the apostrophe `at`, or NULL. In any case, U+017F is an s too.
PORTABLE_INLINE const uint8_t *contraction_end(const uint8_t *at, const uint8_t *end, bool any_case) {
    const uint8_t fold = any_case ? 0x20 : 0;
    const uint8_t first = end - at >= 2 ? at[1] | fold : 0, second = end - at >= 3 ? at[2] | fold : 0;
    if (first == 's' || first == 'd' || first == 'm' || first == 't') return at + 2;
    if ((first == 'l' && second == 'l') || ((first == 'v' || first == 'r') && second == 'e')) return at + 3;
    return any_case && end - at >= 3 && !memcmp(at + 1, "\xC5\xBF", 2) ? at + 3 : NULL;
}

static bool is_word(uint32_t point, Words words) {
    return unicode_class(point) == CLASS_LETTER || (words == WORDS_BY_CASE && unicode_form(point) == FORM_MARK);
}

// The end of [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ at `at`, or else of upper case alone.
static const uint8_t *cased_end(const uint8_t *at, const uint8_t *end, bool *invalid) {
    const uint8_t *caseless = NULL; // the end of the last character that both sets have
    bool lower = false;
    for (unsigned length; at < end; at += length) {
        const uint32_t point = point_at(at, end, &length, invalid);
        const Form form = unicode_form(point);
        if (!is_word(point, WORDS_BY_CASE)) break;
        if (lower && form == FORM_UPPER) return at;
        lower |= form == FORM_LOWER;
        if (form == FORM_NONE || form == FORM_MARK) caseless = at + length;
    }
    return !lower && caseless ? caseless : at;
}

// The end of the word at `at`, with the character before its letters that the pattern allows; NULL without a word.
PORTABLE_INLINE const uint8_t *word_end(const PatternRules *rules, const uint8_t *at, const uint8_t *end,
                                        bool *invalid) {
    unsigned length;
    const uint32_t point = point_at(at, end, &length, invalid);
    if (!is_word(point, rules->words)) {
        if (rules->words == WORDS_BLANK ? *at != ' ' : unicode_class(point) == CLASS_NUMBER || is_line_end(*at))
            return NULL;
        at += length;
        if (at == end || !is_word(point_at(at, end, &length, invalid), rules->words)) return NULL;
    }
    if (rules->words != WORDS_BY_CASE) return run_end(at, end, CLASS_LETTER, invalid);
    at = cased_end(at, end, invalid);
    const uint8_t *contraction = at < end && *at == '\'' ? contraction_end(at, end, true) : NULL;
    return contraction && rules->contractions == CONTRACTIONS_SUFFIX ? contraction : at;
}

PORTABLE_INLINE const uint8_t *space_end(const PatternRules *rules, const uint8_t *at, const uint8_t *end,
                                         bool *invalid) {
    const uint8_t *last = at, *next = at, *line = NULL; // its last character, its end, the end of its last line end
    for (unsigned length; next < end && class_at(next, end, &length, invalid) == CLASS_SPACE; next += length) {
        last = next;
        if (is_line_end(*next)) line = next + 1;
    }
    if (next == end && rules->lines != LINES_SPLIT) return end;
    if (line && rules->lines != LINES_SPACE) return line;
    return next == end || last == at ? next : last; // \s+(?!\S) leaves one character
}

PORTABLE_INLINE const uint8_t *piece_end(const PatternRules *rules, const uint8_t *at, const uint8_t *end,
                                         bool *invalid) {
    const uint8_t *found = NULL;
    if (*at == '\'' && rules->contractions != CONTRACTIONS_SUFFIX)
        found = contraction_end(at, end, rules->contractions == CONTRACTIONS_FOLDED);
    if (!found) found = word_end(rules, at, end, invalid);
    if (found) return found;

    unsigned length;
    const uint8_t *begin = at;
    Class class = class_at(at, end, &length, invalid);
    if (*at == ' ' && end - at > 1) {
        class = class_at(++begin, end, &length, invalid);
        if (class == CLASS_NUMBER && rules->digits) class = CLASS_SPACE; // only words and signs take the blank
    }
    if (class == CLASS_SPACE) return space_end(rules, at, end, invalid);
    if (class == CLASS_NUMBER && rules->digits) {
        for (unsigned i = 0; i < rules->digits && begin < end; i++, begin += length)
            if (class_at(begin, end, &length, invalid) != CLASS_NUMBER) break;
        return begin;
    }
    found = run_end(begin, end, class, invalid);
    if (class == CLASS_OTHER && rules->after_signs != NOTHING)
        while (found < end && (is_line_end(*found) || (*found == '/' && rules->after_signs == LINE_ENDS_SLASHES)))
            found++;
    return found;
}

PORTABLE_INLINE size_t next_pieces(const PatternRules *rules, Pretokenizer *pretokenizer, uint32_t *starts) {
    const uint8_t *text = pretokenizer->text.data, *end = text + pretokenizer->text.size, *at = text + pretokenizer->at;
    size_t count = 0;
    for (; at < end && count < PRETOKENIZE_BATCH; at = piece_end(rules, at, end, &pretokenizer->invalid))
        starts[count++] = (uint32_t)(at - text);
    pretokenizer->at = (size_t)(at - text);
    starts[count] = (uint32_t)pretokenizer->at;
    return count;
}

#define PATTERN(name, regex, ...)                                                                                      \
    static size_t next_##name(Pretokenizer *pretokenizer, uint32_t *starts) {                                          \
        return next_pieces(&(const PatternRules){__VA_ARGS__}, pretokenizer, starts);                                  \
    }
#include "tokenizer/merge/patterns.def"
#undef PATTERN

PretokenizeNext *const pretokenize_portable[PATTERN_COUNT] = {
#define PATTERN(name, ...) next_##name,
#include "tokenizer/merge/patterns.def"
#undef PATTERN
};
