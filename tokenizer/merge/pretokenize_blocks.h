// The pretokenizer over blocks of 64 bytes: the part that is the same for every instruction set, and GPT-2's pattern.
//
// Included by pretokenize_avx2.c and pretokenize_avx512.c, which define block_classify and starts_write. The next block
// is classified before the present one is finished, so that block edges need no special case.
//
// make bench-tokenizer (mixed text, one core of a Xeon with AVX-512, 2026-11-21): keeping the three current blocks in
// registers gives 1.25x: a function that took a block's address would force it into memory, where a 64-byte load after
// 8-byte stores waits for them. Prefetching half a page ahead, past the page end where the hardware prefetcher stops,
// gives 1.1x.
#pragma once

#include "tokenizer/merge/pretokenize.h"
#include "tokenizer/merge/unicode.h"

enum { BLOCK = 64 };

// Inlined, so that blocks stay in registers.
#define BLOCK_INLINE __attribute__((always_inline)) static inline

// The classes of the 64 bytes at `at`; may read 4 bytes more. `before` is the previous block. Sets *invalid when they
// are not UTF-8.
BLOCK_INLINE PretokenizeBlock block_classify(const uint8_t *at, const PretokenizeBlock *before, bool *invalid);
// Writes base + i for each bit i of `bits`; may write up to 64 numbers, whatever their count.
static inline void starts_write(uint32_t *starts, uint64_t bits, uint32_t base);

// The code point of the character beyond ASCII (of valid UTF-8) at p.
static inline uint32_t block_point(const uint8_t *p) {
    return p[0] < 0xE0   ? (p[0] & 31u) << 6 | (p[1] & 63u)
           : p[0] < 0xF0 ? (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u)
                         : (p[0] & 7u) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
}

// Looks up the class of each character (of valid UTF-8) that begins at a bit of `leads`, and sets the bit of its first
// byte.
static inline void block_look_up(PretokenizeBlock *block, const uint8_t *at, uint64_t leads) {
    for (; leads; leads &= leads - 1) {
        unsigned i = (unsigned)__builtin_ctzll(leads);
        const uint8_t *p = at + i;
        Class class = unicode_class(block_point(p));
        block->letter |= (uint64_t)(class == CLASS_LETTER) << i;
        block->number |= (uint64_t)(class == CLASS_NUMBER) << i;
        block->space2 |= (uint64_t)(class == CLASS_SPACE && p[0] < 0xE0) << i;
        block->space3 |= (uint64_t)(class == CLASS_SPACE && p[0] >= 0xE0) << i;
    }
}

// The bytes of `run` from each seed, which is in it, to the end of its run: the carry of an addition follows them.
static inline uint64_t flood(uint64_t run, uint64_t seeds) { return run & (~(run + seeds) | seeds); }

static inline uint64_t spread(uint64_t class, uint64_t before, uint64_t follow) {
    return class | flood(follow, (class << 1 | before >> 63) & follow);
}

// Whether the continuation bytes `follow` are exactly where the first bytes `leads` need them; `three` and `four` are
// the first bytes of characters of that many bytes.
static inline bool block_is_valid(PretokenizeBlock *block, const PretokenizeBlock *before, uint64_t follow,
                                  uint64_t leads, uint64_t three, uint64_t four) {
    uint64_t longer = three | four;
    block->owed = leads >> 63 | longer >> 62 | four >> 61;
    return follow == (leads << 1 | longer << 2 | four << 3 | before->owed);
}

// Gives continuation bytes the class of their character's first byte.
static inline void block_spread(PretokenizeBlock *block, const PretokenizeBlock *before, uint64_t follow) {
    block->letter = spread(block->letter, before->letter, follow);
    block->number = spread(block->number, before->number, follow);
    block->space = spread(block->space | block->space2 | block->space3, before->space, follow);
}

BLOCK_INLINE const uint8_t *block_bytes(const Pretokenizer *pretokenizer, size_t at) {
    return at < pretokenizer->tail_at ? pretokenizer->text.data + at
                                      : pretokenizer->tail + (at - pretokenizer->tail_at);
}

BLOCK_INLINE PretokenizeBlock block_at(const Pretokenizer *pretokenizer, size_t at, const PretokenizeBlock *before,
                                       bool *invalid) {
    const uint8_t *bytes = block_bytes(pretokenizer, at);
    __builtin_prefetch(bytes + 2048);
    PretokenizeBlock block = block_classify(bytes, before, invalid);
    if (__builtin_expect(at + BLOCK > pretokenizer->text.size, 0)) {
        // treat bytes past the end as white space: then white space at the end is one piece, as in the pattern
        uint64_t inside = at < pretokenizer->text.size ? ~0ull >> (at + BLOCK - pretokenizer->text.size) : 0;
        block.letter &= inside;
        block.number &= inside;
        block.space |= ~inside;
    }
    return block;
}

static inline uint64_t other(const PretokenizeBlock *block) { return ~(block->letter | block->number | block->space); }

// x << n, with the top bits of the previous block shifted in.
#define SHIFT_IN(x, x_before, n) ((x) << (n) | (x_before) >> (64 - (n)))

// The first byte of the last character of each run of white space before text.
BLOCK_INLINE uint64_t block_last_space(const PretokenizeBlock *before, const PretokenizeBlock *block,
                                       const PretokenizeBlock *after) {
    uint64_t last = block->space & ~(block->space >> 1 | after->space << 63);
    uint64_t s2 = block->space2, s3 = block->space3;
    if (__builtin_expect((s2 | s3 | before->space2 | before->space3) != 0, 0)) { // of several bytes: take its first one
        uint64_t wide = s2 | SHIFT_IN(s2, before->space2, 1) | s3 | SHIFT_IN(s3, before->space3, 1) |
                        SHIFT_IN(s3, before->space3, 2);
        last = (last & ~wide) | (s2 & ~(block->space >> 2 | after->space << 62)) |
               (s3 & ~(block->space >> 3 | after->space << 61));
    }
    return last;
}

// The starts of pieces, except for contractions.
BLOCK_INLINE uint64_t block_starts(const PretokenizeBlock *before, const PretokenizeBlock *block,
                                   const PretokenizeBlock *after) {
    uint64_t same = (block->letter & SHIFT_IN(block->letter, before->letter, 1)) |
                    (block->number & SHIFT_IN(block->number, before->number, 1)) |
                    (other(block) & SHIFT_IN(other(block), other(before), 1));
    uint64_t text = ~block->space & ~same & ~SHIFT_IN(block->blank, before->blank, 1);
    // the last character of white space before text is a piece of its own, or the blank that joins the text
    uint64_t last = block_last_space(before, block, after);
    return text | (block->space & ~SHIFT_IN(block->space, before->space, 1)) | last;
}

BLOCK_INLINE size_t pretokenize_blocks(Pretokenizer *pretokenizer, uint32_t *starts) {
    size_t size = pretokenizer->text.size, at = pretokenizer->at, count = 0;
    if (at >= size) return 0;
    bool invalid = pretokenizer->invalid;
    PretokenizeBlock before = pretokenizer->before, block = pretokenizer->block;
    if (at)
        starts[count++] = pretokenizer->pending;
    else
        block = block_at(pretokenizer, 0, &before, &invalid);
    for (; at < size && count <= PRETOKENIZE_BATCH - BLOCK; at += BLOCK) {
        PretokenizeBlock after = block_at(pretokenizer, at + BLOCK, &block, &invalid);
        uint64_t bits = block_starts(&before, &block, &after) | (at == 0); // the text begins a piece
        // a contraction includes its letters, and a piece starts after it
        block.short2 &= bits;
        block.short3 &= bits;
        bits &= ~SHIFT_IN(block.short2 | block.short3, before.short2 | before.short3, 1);
        bits |= SHIFT_IN(block.short2, before.short2, 2) | SHIFT_IN(block.short3, before.short3, 3);
        if (__builtin_expect(at + BLOCK > size, 0)) bits &= ~0ull >> (at + BLOCK - size);
        starts_write(starts + count, bits, (uint32_t)at);
        count += (size_t)__builtin_popcountll(bits);
        before = block;
        block = after;
    }
    pretokenizer->at = at;
    pretokenizer->invalid = invalid;
    pretokenizer->before = before;
    pretokenizer->block = block;
    if (at >= size)
        starts[count] = (uint32_t)size;
    else
        pretokenizer->pending = starts[--count];
    return count;
}
