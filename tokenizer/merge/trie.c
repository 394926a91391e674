// A trie in one hash table of edges: the 98,023 edges of GPT-2's vocabulary fill 37 % of the slots.
#include "tokenizer/merge/trie.h"
#include "common/machine/hugepages.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct Trie {
    atomic_bool built;
    uint16_t *shorter;
    // Edges by the hash of (node, byte): node << 8 | byte in bits 0..27, the child in 28..47, the child's token (or
    // NO_TOKEN) in 48..63. 0 = empty: node 0 is the root, which is no child.
    uint64_t *slots;
    unsigned shift; // 64 - the logarithm of their number
};

static uint32_t edge_child(uint64_t edge) { return edge >> 28 & 0xFFFFF; }
static unsigned edge_token(uint64_t edge) { return (unsigned)(edge >> 48); }

// The slot of the edge that leaves `node` by `byte`, or the empty slot where it belongs.
static uint32_t edge_slot(const Trie *trie, uint32_t node, uint8_t byte) {
    const uint32_t key = node << 8 | byte, mask = (uint32_t)(~0ull >> trie->shift);
    uint32_t slot = (uint32_t)(vocab_hash(key) >> trie->shift);
    while (trie->slots[slot] && (trie->slots[slot] & 0xFFFFFFF) != key) slot = (slot + 1) & mask;
    return slot;
}

unsigned trie_longest(const Trie *trie, const uint8_t *text, size_t size) {
    unsigned longest = NO_TOKEN;
    uint64_t edge = 0;
    for (size_t i = 0; i < size && (edge = trie->slots[edge_slot(trie, edge_child(edge), text[i])]); i++)
        if (edge_token(edge) != NO_TOKEN) longest = edge_token(edge);
    return longest;
}

unsigned trie_shorter(const Trie *trie, unsigned id) { return trie->shorter[id]; }

Trie *trie_open(void) { return allocate_zeroed(1, sizeof(Trie)); }

void trie_close(Trie *trie) {
    if (!trie) return;
    hugepages_free(trie->slots);
    free(trie->shorter);
    free(trie);
}

static void build(Trie *trie, const Vocab *vocab) {
    uint32_t nodes = 0;
    trie->shift = 46; // at most 0.8 edges a byte in vocabularies that were trained
    while (1ull << (64 - trie->shift) < vocab->start[vocab->count] * 3ull / 4) trie->shift--;
    trie->slots = hugepages_alloc_or_die(sizeof *trie->slots << (64 - trie->shift));
    trie->shorter = allocate_zeroed(vocab->count, sizeof *trie->shorter);
    for (unsigned id = 0; id < vocab->count; id++) {
        const uint8_t *bytes = vocab->bytes + vocab->start[id];
        uint32_t node = 0;
        uint64_t *edge = NULL;
        for (size_t i = 0; i < vocab_length(vocab, id); i++, node = edge_child(*edge)) {
            edge = &trie->slots[edge_slot(trie, node, bytes[i])];
            if (!*edge) *edge = (uint64_t)NO_TOKEN << 48 | (uint64_t)++nodes << 28 | node << 8 | bytes[i];
        }
        *edge ^= (uint64_t)(NO_TOKEN ^ id) << 48;
    }
    for (unsigned id = 0; id < vocab->count; id++) {
        size_t size = vocab_length(vocab, id);
        unsigned shorter = size > 1 ? trie_longest(trie, vocab->bytes + vocab->start[id], size - 1) : NO_TOKEN;
        trie->shorter[id] = (uint16_t)shorter;
    }
}

const Trie *vocab_trie(const Vocab *vocab) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    Trie *trie = vocab->trie;
    if (atomic_load_explicit(&trie->built, memory_order_acquire)) return trie;
    pthread_mutex_lock(&lock);
    if (!atomic_load_explicit(&trie->built, memory_order_relaxed)) {
        build(trie, vocab);
        atomic_store_explicit(&trie->built, true, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return trie;
}
