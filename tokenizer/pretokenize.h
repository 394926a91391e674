// Text to pieces, by GPT-2's pattern:
//   '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// No piece is ever merged with another, so each can be encoded by itself.
#pragma once

#include "common/bytes.h"
#include "common/cpu.h"

enum { PRETOKENIZE_BATCH = 512, PRETOKENIZE_STARTS = PRETOKENIZE_BATCH + 64, PRETOKENIZE_TAIL = 320 };

// 64 bytes of text: bit i speaks of byte i. All bytes of a character are of its class.
typedef struct {
    uint64_t letter, number, space;
    uint64_t blank;          // U+0020, the one space that joins what follows it
    uint64_t space2, space3; // first bytes of white space that takes two or three
    uint64_t owed;           // bytes that the next block owes to a character that began here
    uint64_t short2, short3; // apostrophes before s, d, m, t; before ll, ve, re
} PretokenizeBlock;

// Walks over one text of less than 4 GiB, a batch of pieces a call.
typedef struct Pretokenizer {
    Bytes text;
    size_t at;
    bool invalid; // so far something was not UTF-8
    size_t (*next)(struct Pretokenizer *pretokenizer, uint32_t *starts);
    // of the scanners that take 64 bytes at a time
    PretokenizeBlock before, block; // the blocks before `at` and from `at` on
    uint32_t pending;               // where the piece begins that the last batch did not end
    size_t tail_at;
    uint8_t tail[PRETOKENIZE_TAIL]; // the text from tail_at on, and zeros, where they may read past the end
} Pretokenizer;

// What is not UTF-8 is CLASS_OTHER if isa is ISA_PORTABLE. With others it is of any class: then `invalid` says at the
// end of the text that the pieces are good for nothing.
void pretokenizer_open(Pretokenizer *pretokenizer, Bytes text, Isa isa);

// Writes where the next pieces start, at most PRETOKENIZE_BATCH, and behind them where the last one ends (so starts has
// PRETOKENIZE_STARTS). Returns how many pieces that are, 0 at the end of the text.
static inline size_t pretokenizer_next(Pretokenizer *pretokenizer, uint32_t *starts) {
    return pretokenizer->next(pretokenizer, starts);
}

// One for each instruction set.
size_t pretokenize_portable(Pretokenizer *pretokenizer, uint32_t *starts);
size_t pretokenize_avx2(Pretokenizer *pretokenizer, uint32_t *starts);
size_t pretokenize_avx512(Pretokenizer *pretokenizer, uint32_t *starts);

// A place to cut text in two that are split as the whole is: the last such place in [from, text.size), or 0. Nothing
// behind the text can change it, and no character is cut.
size_t pretokenize_cut(Bytes text, size_t from);
