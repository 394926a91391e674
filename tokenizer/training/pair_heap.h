// The pairs that may be merged next: a heap of those that occur most often.
//
// Counts only fall, so an entry is an upper bound. Pairs that occur less often than `least` are not in the heap; when
// it is empty, `least` falls and the table of pairs is searched for them. That keeps the heap small. A pair that was
// taken and not merged may be taken once more when its count has fallen below another `least`.
#pragma once

#include "tokenizer/training/pair_table.h"

typedef struct {
    uint64_t count, key;
} HeapPair;

typedef struct {
    Buffer entries; // HeapPair
    uint64_t least; // UINT64_MAX at first
} PairHeap;

void pair_heap_add(PairHeap *heap, uint64_t count, uint64_t key);
// Removes the pair that occurs most often, the lowest key of several. NULL when no pair occurs any more.
TokenPair *pair_heap_take(PairHeap *heap, const PairTable *table);
void pair_heap_close(PairHeap *heap);
