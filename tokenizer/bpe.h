// One piece of text (a word) to ids.
#pragma once

#include "tokenizer/vocab.h"

// Exactly what merging the best-ranked, leftmost pair again and again gives, in time linear in size.
// ids has room for `size`. dead holds size/64 + 1 words of scratch.
size_t bpe_merge(const Vocab *vocab, const uint8_t *piece, size_t size, uint16_t *ids, uint64_t *dead);

// Are these the ids that merge gives for the piece? Any ids will do.
bool bpe_holds(const Vocab *vocab, const uint8_t *piece, size_t size, const uint16_t *ids, size_t count);

// The same as merge, faster for pieces of up to 32 bytes.
size_t bpe_merge_avx512(const Vocab *vocab, const uint8_t *piece, size_t size, uint16_t *ids, uint64_t *dead);
