// A binary heap.
#include "tokenizer/training/pair_heap.h"

static HeapPair *heap_entries(const PairHeap *heap) { return (HeapPair *)(void *)heap->entries.data; }
static size_t heap_size(const PairHeap *heap) { return heap->entries.size / sizeof(HeapPair); }

static bool is_before(const HeapPair *a, const HeapPair *b) {
    return a->count != b->count ? a->count > b->count : a->key < b->key;
}

void pair_heap_add(PairHeap *heap, uint64_t count, uint64_t key) {
    if (count < heap->least) return;
    const HeapPair added = {count, key};
    buffer_add(&heap->entries, &added, sizeof added);
    HeapPair *entries = heap_entries(heap);
    size_t at = heap_size(heap) - 1;
    for (; at && is_before(&added, &entries[(at - 1) / 2]); at = (at - 1) / 2) entries[at] = entries[(at - 1) / 2];
    entries[at] = added;
}

static HeapPair take_first(PairHeap *heap) {
    HeapPair *entries = heap_entries(heap), first = entries[0];
    heap->entries.size -= sizeof first;
    const size_t size = heap_size(heap);
    const HeapPair last = entries[size];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < size; at = child) {
        child += child + 1 < size && is_before(&entries[child + 1], &entries[child]);
        if (!is_before(&entries[child], &last)) break;
        entries[at] = entries[child];
    }
    entries[at] = last;
    return first;
}

// Adds the pairs below `least` that occur at least a quarter as often as the most frequent of them. False without such
// a pair.
static bool refill(PairHeap *heap, const PairTable *table) {
    const uint64_t below = heap->least;
    uint64_t most = 0;
    for (uint64_t i = 0; i < table->slot_count; i++) {
        const uint64_t count = table->slots[i].count;
        if (count < below && count > most) most = count;
    }
    heap->least = most / 4 + 1;
    for (uint64_t i = 0; i < table->slot_count; i++)
        if (table->slots[i].count < below) pair_heap_add(heap, table->slots[i].count, table->slots[i].key);
    return most > 0;
}

TokenPair *pair_heap_take(PairHeap *heap, const PairTable *table) {
    while (heap_size(heap) || refill(heap, table)) {
        const HeapPair first = take_first(heap);
        TokenPair *pair = pair_find(table, first.key);
        if (pair && pair->count == first.count) return pair;
        if (pair) pair_heap_add(heap, pair->count, pair->key);
    }
    return NULL;
}

void pair_heap_close(PairHeap *heap) { buffer_close(&heap->entries); }
