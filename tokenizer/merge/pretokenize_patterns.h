// The pretokenizer over blocks of 64 bytes for the patterns after GPT-2's, whose words take a character before them.
//
// Defines PRETOKENIZE_TABLE, a scanner for each pattern. Included after pretokenize_blocks.h by the files that define
// block_classify, starts_write, and for these patterns block_equal, block_range, block_beyond, block_leads and
// block_forms. Rules are constants, so that each pattern has only the code it needs. The state from one block to the
// next is in PatternMarks. A run of bytes is followed to its end by the carry of an addition.
#pragma once

#include "common/utf8.h"
#include "tokenizer/merge/pretokenize_blocks.h"

// The bytes at[0 .. 64) that are `byte`, a letter in either case, between two below 0x7F, beyond ASCII, or the first of
// a character beyond it.
BLOCK_INLINE uint64_t block_equal(const uint8_t *at, uint8_t byte);
BLOCK_INLINE uint64_t block_equal_folded(const uint8_t *at, uint8_t lower);
BLOCK_INLINE uint64_t block_range(const uint8_t *at, uint8_t first, uint8_t last);
BLOCK_INLINE uint64_t block_beyond(const uint8_t *at);
BLOCK_INLINE uint64_t block_leads(const uint8_t *at);
// Sets the forms of the characters (of valid UTF-8) beyond ASCII that begin at `leads`, at their first bytes.
BLOCK_INLINE void block_forms(PatternBlock *block, const uint8_t *at, uint64_t leads);

static inline void forms_look_up(PatternBlock *block, const uint8_t *at, uint64_t leads) {
    for (; leads; leads &= leads - 1) {
        unsigned i = (unsigned)__builtin_ctzll(leads);
        const Form form = unicode_form(block_point(at + i));
        block->upper |= (uint64_t)(form == FORM_UPPER) << i;
        block->lower |= (uint64_t)(form == FORM_LOWER) << i;
        block->mark |= (uint64_t)(form == FORM_MARK) << i;
    }
}

// Contractions in any case; U+017F is an s too.
BLOCK_INLINE void find_contractions(PatternBlock *block, const uint8_t *at, uint64_t apostrophes) {
    const uint8_t *first = at + 1, *second = at + 2;
    block->short2 = apostrophes & (block_equal_folded(first, 's') | block_equal_folded(first, 'd') |
                                   block_equal_folded(first, 'm') | block_equal_folded(first, 't'));
    block->short3 =
        apostrophes &
        ((block_equal_folded(first, 'l') & block_equal_folded(second, 'l')) |
         ((block_equal_folded(first, 'v') | block_equal_folded(first, 'r')) & block_equal_folded(second, 'e')) |
         (block_equal(first, 0xC5) & block_equal(second, 0xBF)));
}

BLOCK_INLINE void pattern_block_read(PatternBlock *block, const PatternRules *rules, const Pretokenizer *pretokenizer,
                                     size_t at, const PatternBlock *before, bool *invalid) {
    const uint8_t *bytes = block_bytes(pretokenizer, at);
    const PretokenizeBlock base = block_at(pretokenizer, at, &before->base, invalid);
    const bool past = at + BLOCK > pretokenizer->text.size, cases = rules->words == WORDS_BY_CASE;
    const uint64_t inside = !past                          ? ~0ull
                            : at < pretokenizer->text.size ? ~0ull >> (at + BLOCK - pretokenizer->text.size)
                                                           : 0;
    uint64_t line_end = (block_equal(bytes, '\n') | block_equal(bytes, '\r')) & inside;
    if (rules->lines == LINES_SPLIT_INSIDE && __builtin_expect(at + BLOCK > pretokenizer->space_at, 0))
        line_end &= at < pretokenizer->space_at ? ~0ull >> (at + BLOCK - pretokenizer->space_at) : 0;
    block->base = base;
    block->line_end = line_end;
    block->slash = rules->after_signs == LINE_ENDS_SLASHES ? block_equal(bytes, '/') & inside : 0;
    block->follow = block->short2 = block->short3 = 0;
    const uint64_t apostrophes = block_equal(bytes, '\'');
    if (apostrophes) find_contractions(block, bytes, apostrophes);
    const uint64_t beyond = block_beyond(bytes), upper = cases ? block_range(bytes, 'A', 'Z') : 0;
    block->upper = upper & inside, block->lower = cases ? base.letter & ~(upper | beyond) : 0, block->mark = 0;
    if (!(beyond | before->base.owed)) return;
    const uint64_t leads = block_leads(bytes), follow = beyond & ~leads;
    block->follow = follow;
    if (!cases) return;
    block_forms(block, bytes, leads);
    block->upper = spread(block->upper, before->upper, follow) & inside;
    block->lower = spread(block->lower, before->lower, follow) & inside;
    block->mark = spread(block->mark, before->mark, follow) & inside;
}

#define SPACES(block) ((block)->base.space & ~(block)->line_end) // which may begin a word

// Words, signs, and the characters that signs take: marks after two signs, or after a blank and a sign, are signs,
// because there no word can begin; others are in words.
BLOCK_INLINE void mark_words(const PatternRules *rules, const PatternBlock *before, const PatternBlock *block,
                             const PatternMarks *last, PatternMarks *marks) {
    const bool cases = rules->words == WORDS_BY_CASE;
    const uint64_t mark = cases ? block->mark : 0, slash = rules->after_signs == LINE_ENDS_SLASHES ? block->slash : 0,
                   signs = other(&block->base) & ~mark, run = block->line_end | slash;
    uint64_t taken = 0, taken_before;
    do { // a slash that is taken is not a sign, so that marks after it may be in words: then again
        taken_before = taken;
        const uint64_t alone = signs & ~taken;
        if (cases) {
            const uint64_t joining = alone | mark;
            const uint64_t second =
                alone & ~block->follow &
                (SHIFT_IN(alone, last->signs, 1) | SHIFT_IN(block->base.blank, before->base.blank, 1));
            marks->joined = flood(joining, second | (joining & last->joined >> 63));
        }
        marks->signs = cases ? alone | (mark & marks->joined) : alone;
        taken = flood(run, (block->line_end & SHIFT_IN(marks->signs, last->signs, 1)) | (run & last->taken >> 63));
    } while ((taken ^ taken_before) & slash);
    marks->words = block->base.letter | (cases ? mark & ~marks->joined : 0);
    marks->taken = taken;
}

// Starts of numbers: each, or each third of a run.
BLOCK_INLINE uint64_t number_starts(const PatternRules *rules, const PatternBlock *before, const PatternBlock *block,
                                    const PatternMarks *last) {
    const uint64_t number = block->base.number, number_before = before->base.number;
    if (rules->digits == 1) return number & ~block->follow;
    uint64_t begins = number & ~SHIFT_IN(number, number_before, 1), starts = begins;
    const uint64_t long_run = number & SHIFT_IN(number, number_before, 1) & SHIFT_IN(number, number_before, 2) &
                              SHIFT_IN(number, number_before, 3);
    if (__builtin_expect(!long_run, 1)) return starts;
    unsigned count = 0; // of numbers in the piece
    if (number_before >> 63) {
        const unsigned since = 63 - (unsigned)__builtin_clzll(last->starts | 1);
        count = (unsigned)__builtin_popcountll(number_before & ~before->follow & ~0ull << since);
    }
    for (uint64_t bits = number & ~block->follow; bits; bits &= bits - 1) {
        const uint64_t bit = bits & -bits;
        if (begins & bit) count = 0;
        if (count % rules->digits == 0) starts |= bit;
        count = count % rules->digits + 1;
    }
    return starts;
}

// Whether a run of white space without line ends, or of upper case, that contains the byte before `at` ends at a line
// end, or at a character of a word. For runs that leave the next block.
static bool run_goes_into(const Pretokenizer *pretokenizer, size_t at, bool upper) {
    const uint8_t *text = pretokenizer->text.data, *end = text + pretokenizer->text.size;
    while (at < pretokenizer->text.size && (text[at] & 0xC0) == 0x80) at++;
    for (unsigned length; at < pretokenizer->text.size; at += length) {
        uint32_t point;
        length = utf8_decode(text + at, end, &point);
        const Class class = unicode_class(point);
        const bool line_end = (point == '\n' || point == '\r') && at < pretokenizer->space_at;
        if (upper && unicode_form(point) != FORM_UPPER)
            return class == CLASS_LETTER || unicode_form(point) == FORM_MARK;
        if (!upper && (line_end || class != CLASS_SPACE)) return line_end;
    }
    return false;
}

// The starts, among `begins`, of runs that end directly before a byte of `stop`. `after` and `after_stop`: the same of
// the next block, which ends at `next`.
BLOCK_INLINE uint64_t runs_into(uint64_t begins, uint64_t run, uint64_t stop, uint64_t after, uint64_t after_stop,
                                const Pretokenizer *pretokenizer, size_t next, bool upper) {
    const uint64_t sum = run + begins;
    const bool crosses = sum < run;
    uint64_t into = 0;
    if (__builtin_expect(!(sum & ~run & stop) && !crosses, 1)) return 0;
    for (uint64_t bits = begins; bits; bits &= bits - 1) {
        const unsigned begin = (unsigned)__builtin_ctzll(bits);
        const uint64_t left = ~run >> begin; // zeros where the run is
        bool stops;
        if (left)
            stops = stop >> (begin + (unsigned)__builtin_ctzll(left)) & 1;
        else
            stops =
                ~after ? after_stop >> (unsigned)__builtin_ctzll(~after) & 1 : run_goes_into(pretokenizer, next, upper);
        into |= (uint64_t)stops << begin;
    }
    return into;
}

// Starts of white space, after the characters that signs took.
BLOCK_INLINE uint64_t space_starts(const PatternBlock *before, const PatternBlock *block, const PatternBlock *after,
                                   const PatternMarks *last, const PatternMarks *marks,
                                   const Pretokenizer *pretokenizer, size_t next) {
    const uint64_t space = block->base.space & ~marks->taken, space_before = before->base.space & ~last->taken;
    const uint64_t begins = space & ~SHIFT_IN(space, space_before, 1);
    // after the last line end of the white space
    uint64_t lines = SPACES(block) & SHIFT_IN(block->line_end, before->line_end, 1) & ~begins;
    lines &=
        ~runs_into(lines, SPACES(block), block->line_end, SPACES(after), after->line_end, pretokenizer, next, false);
    return begins | lines | (block_last_space(&before->base, &block->base, &after->base) & ~block->line_end);
}

// Removes the start at each contraction that ends a word, and sets the one after it. Directly after such a contraction
// none is possible.
BLOCK_INLINE uint64_t suffix_starts(const PatternBlock *block, const PatternMarks *last, PatternMarks *marks,
                                    uint64_t starts) {
    const uint64_t words = SHIFT_IN(marks->words, last->words, 1);
    uint64_t ends = last->contraction2 >> 62 | last->contraction3 >> 61;
    for (uint64_t bits = (block->short2 | block->short3) & words; bits; bits &= bits - 1) {
        const uint64_t bit = bits & -bits;
        if (ends & bit) continue;
        marks->contraction2 |= block->short2 & bit;
        marks->contraction3 |= block->short3 & bit;
        ends |= (block->short2 & bit) << 2 | (block->short3 & bit) << 3;
    }
    return (starts & ~(marks->contraction2 | marks->contraction3)) | ends;
}

// Starts inside words: of upper case after lower case, also with caseless characters between, and of the upper case
// that ends a word without lower case after a caseless character.
BLOCK_INLINE uint64_t case_starts(const PatternBlock *block, const PatternBlock *after, const PatternMarks *last,
                                  PatternMarks *marks, const Pretokenizer *pretokenizer, size_t next) {
    const uint64_t contractions = marks->contraction2 | marks->contraction3,
                   contractions_before = last->contraction2 | last->contraction3;
    const uint64_t words = marks->words & ~(SHIFT_IN(contractions, contractions_before, 1) |
                                            SHIFT_IN(marks->contraction3, last->contraction3, 2));
    const uint64_t upper = words & block->upper;
    marks->lower = words & block->lower;
    marks->caseless = words & ~(block->upper | block->lower);
    marks->late = 0;
    const uint64_t after_lower = SHIFT_IN(marks->lower, last->lower, 1);
    uint64_t starts = upper & after_lower;
    if (!(marks->caseless | last->caseless >> 63)) return starts;
    marks->late = flood(marks->caseless, marks->caseless & (after_lower | last->late >> 63));
    starts |= upper & SHIFT_IN(marks->late, last->late, 1);
    const uint64_t ending = upper & SHIFT_IN(marks->caseless, last->caseless, 1) & ~starts;
    return starts | (ending & ~runs_into(ending, upper, words, after->upper, after->base.letter | after->mark,
                                         pretokenizer, next, true));
}

BLOCK_INLINE uint64_t pattern_starts(const PatternRules *rules, const PatternBlock *before, const PatternBlock *block,
                                     const PatternBlock *after, const PatternMarks *last, PatternMarks *marks,
                                     const Pretokenizer *pretokenizer, size_t next) {
    mark_words(rules, before, block, last, marks);
    // a sign alone that no blank joins may begin a word
    const uint64_t signs =
        marks->signs & ~SHIFT_IN(marks->signs, last->signs, 1) & ~SHIFT_IN(block->base.blank, before->base.blank, 1);
    uint64_t behind = signs << 1 | last->owed_word; // its first byte; the carry of an addition goes to its end
    const uint64_t ends = block->follow + (behind & block->follow);
    marks->owed_word = signs >> 63 | (ends < block->follow);
    behind = (behind | ends) & ~block->follow;
    const uint64_t words =
        marks->words & ~SHIFT_IN(marks->words, last->words, 1) & ~behind & ~SHIFT_IN(SPACES(block), SPACES(before), 1);
    uint64_t starts = words | signs | number_starts(rules, before, block, last) |
                      space_starts(before, block, after, last, marks, pretokenizer, next);
    if (rules->contractions == CONTRACTIONS_SUFFIX) {
        marks->contraction2 = marks->contraction3 = 0;
        if ((block->short2 | block->short3 | last->contraction2 | last->contraction3) != 0)
            starts = suffix_starts(block, last, marks, starts);
    } else {
        marks->contraction2 = block->short2 & signs;
        marks->contraction3 = block->short3 & signs;
        starts |=
            SHIFT_IN(marks->contraction2, last->contraction2, 2) | SHIFT_IN(marks->contraction3, last->contraction3, 3);
    }
    if (rules->words == WORDS_BY_CASE) starts |= case_starts(block, after, last, marks, pretokenizer, next);
    return marks->starts = starts;
}

// Blocks stay where they are, and the pointers change: there are too many fields for registers, and copies of them take
// a fourth of the time.
BLOCK_INLINE size_t pretokenize_pattern(const PatternRules *rules, Pretokenizer *pretokenizer, uint32_t *starts) {
    size_t size = pretokenizer->text.size, at = pretokenizer->at, count = 0;
    if (at >= size) return 0;
    bool invalid = pretokenizer->invalid;
    PatternBlock blocks[3];
    PatternMarks both[2] = {0};
    PatternBlock *before = &blocks[0], *block = &blocks[1], *after = &blocks[2];
    PatternMarks *last = &both[0], *marks = &both[1];
    *before = pretokenizer->pattern_before, *block = pretokenizer->pattern_block, *last = pretokenizer->marks;
    if (at)
        starts[count++] = pretokenizer->pending;
    else
        pattern_block_read(block, rules, pretokenizer, 0, before, &invalid);
    while (at < size && count <= PRETOKENIZE_BATCH - BLOCK) {
        pattern_block_read(after, rules, pretokenizer, at + BLOCK, block, &invalid);
        uint64_t bits = pattern_starts(rules, before, block, after, last, marks, pretokenizer, at + 2 * BLOCK);
        bits |= at == 0; // the text begins a piece
        if (__builtin_expect(at + BLOCK > size, 0)) bits &= ~0ull >> (at + BLOCK - size);
        starts_write(starts + count, bits, (uint32_t)at);
        count += (size_t)__builtin_popcountll(bits);
        at += BLOCK;
        PatternBlock *first = before;
        PatternMarks *other = last;
        before = block, block = after, after = first;
        last = marks, marks = other;
    }
    pretokenizer->at = at;
    pretokenizer->invalid = invalid;
    pretokenizer->pattern_before = *before;
    pretokenizer->pattern_block = *block;
    pretokenizer->marks = *last;
    if (at >= size)
        starts[count] = (uint32_t)size;
    else
        pretokenizer->pending = starts[--count];
    return count;
}

#define PATTERN(name, regex, ...)                                                                                      \
    static size_t next_##name(Pretokenizer *pretokenizer, uint32_t *starts) {                                          \
        const PatternRules rules = {__VA_ARGS__};                                                                      \
        return rules.words == WORDS_BLANK ? pretokenize_blocks(pretokenizer, starts)                                   \
                                          : pretokenize_pattern(&rules, pretokenizer, starts);                         \
    }
#include "tokenizer/merge/patterns.def"
#undef PATTERN

PretokenizeNext *const PRETOKENIZE_TABLE[PATTERN_COUNT] = {
#define PATTERN(name, ...) next_##name,
#include "tokenizer/merge/patterns.def"
#undef PATTERN
};
