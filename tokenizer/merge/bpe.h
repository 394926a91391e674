// Byte-pair encoding of one piece.
#pragma once

#include "tokenizer/merge/vocab_internal.h"

// Writes the ids, of vocab->id_bytes each, that repeatedly merging the best-ranked, leftmost pair gives, and returns
// their count, in time linear in `size` if the vocabulary has a trie. `ids` has room for `size` ids, `dead` (scratch)
// for size / 64 + 1 numbers.
size_t bpe_merge(const Vocab *vocab, const uint8_t *piece, size_t size, void *ids, uint64_t *dead);

// Same, faster for pieces of up to 32 bytes. Needs AVX-512, and a vocabulary with `small`.
size_t bpe_merge_avx512(const Vocab *vocab, const uint8_t *piece, size_t size, void *ids, uint64_t *dead);
