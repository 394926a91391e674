// The pretokenizer: splits text into pieces by a pattern (patterns.def). Merges never cross from one piece to the next,
// so each piece can be encoded by itself.
#pragma once

#include "common/bytes.h"
#include "common/machine/cpu.h"
#include "tokenizer/merge/pattern.h"

enum {
    PRETOKENIZE_BATCH = 512,                     // pieces that one call returns at most
    PRETOKENIZE_STARTS = PRETOKENIZE_BATCH + 64, // size of the array it writes to
    PRETOKENIZE_TAIL = 320                       // bytes at the end of a text that are read from a padded copy
};

// 64 bytes of text as bit sets: bit i is about byte i. All bytes of a character have its class.
typedef struct {
    uint64_t letter, number, space;
    uint64_t blank;          // U+0020, the only space that joins the piece after it
    uint64_t space2, space3; // first bytes of white space of two or three bytes
    uint64_t owed;           // continuation bytes that the next block must begin with
    uint64_t short2, short3; // apostrophes before s, d, m, t; before ll, ve, re
} PretokenizeBlock;

// The additional bits of patterns other than GPT-2's. `base` has no contractions: these are of any case.
typedef struct {
    PretokenizeBlock base;
    uint64_t follow; // continuation bytes
    uint64_t line_end, slash;
    uint64_t short2, short3;
    uint64_t upper, lower, mark; // Form
} PatternBlock;

// The state for the next block: bytes of words, of signs (other characters) and of characters that signs take with
// them; of runs of signs that marks join; of letters and marks without a case after lower case; and starts of pieces.
typedef struct {
    uint64_t words, signs, taken, joined, lower, caseless, late, starts;
    uint64_t contraction2, contraction3; // apostrophes of contractions of two and of three bytes
    uint64_t owed_word;                  // 1 when a sign that may join a word ends with the block
} PatternMarks;

// Walks over one text of less than 4 GiB. Used by one thread.
typedef struct Pretokenizer {
    Bytes text;
    Pattern pattern;
    size_t at;
    bool invalid; // some of the text so far was not UTF-8
    size_t (*next)(struct Pretokenizer *pretokenizer, uint32_t *starts);
    // used by the implementations that read 64 bytes at a time:
    PretokenizeBlock before, block; // the blocks before `at` and from `at` on
    PatternBlock pattern_before, pattern_block;
    PatternMarks marks;
    size_t space_at;  // from here on, line ends are as other white space: see LINES_SPLIT_INSIDE
    uint32_t pending; // start of the piece that the last batch left unfinished
    size_t tail_at;
    uint8_t tail[PRETOKENIZE_TAIL]; // the text from tail_at on, padded with zeros
} Pretokenizer;

// With ISA_PORTABLE, bytes that are not UTF-8 are CLASS_OTHER. With any other isa their class is undefined: then
// `invalid` is set at the end of the text, and the pieces must not be used. The text is borrowed; it ends where its
// document ends or at a pretokenize_cut.
void pretokenizer_open(Pretokenizer *pretokenizer, Bytes text, Pattern pattern, Isa isa);

// Writes the starts of the next pieces, at most PRETOKENIZE_BATCH, and after them the end of the last one; `starts` has
// PRETOKENIZE_STARTS elements. Returns the number of pieces, 0 at the end of the text.
static inline size_t pretokenizer_next(Pretokenizer *pretokenizer, uint32_t *starts) {
    return pretokenizer->next(pretokenizer, starts);
}

// The implementations: for each instruction set, one of each pattern.
typedef size_t PretokenizeNext(Pretokenizer *pretokenizer, uint32_t *starts);
extern PretokenizeNext *const pretokenize_portable[PATTERN_COUNT], *const pretokenize_avx2[PATTERN_COUNT],
                                                                       *const pretokenize_avx512[PATTERN_COUNT];

// The last position in [from, text.size) where the text can be cut so that both parts split into the same pieces as the
// whole, whatever follows the text; 0 when no position is safe. It is never inside a character.
size_t pretokenize_cut(Bytes text, size_t from, Pattern pattern);
