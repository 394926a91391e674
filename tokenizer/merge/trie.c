// A trie in one hash table of edges: its 98,023 edges fill 37 % of the slots.
#include "tokenizer/merge/trie.h"
#include "common/machine/hugepages.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { TRIE_SLOTS = 1 << 18 };

struct Trie {
    atomic_bool built;
    uint16_t shorter[MERGED_COUNT];
    // Edges by the hash of (node, byte): node << 8 | byte in bits 0..24, the child in 25..41, the child's token (or
    // NO_TOKEN) in 42..57. 0 = empty: node 0 is the root, which is no child.
    uint64_t slots[TRIE_SLOTS];
};

static uint32_t edge_child(uint64_t edge) { return edge >> 25 & 0x1FFFF; }
static unsigned edge_token(uint64_t edge) { return edge >> 42 & 0xFFFF; }

// The slot of the edge that leaves `node` by `byte`, or the empty slot where it belongs.
static uint32_t edge_slot(const Trie *trie, uint32_t node, uint8_t byte) {
    uint32_t key = node << 8 | byte, slot = (uint32_t)(vocab_hash(key) >> 46);
    while (trie->slots[slot] && (trie->slots[slot] & 0x1FFFFFF) != key) slot = (slot + 1) % TRIE_SLOTS;
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

Trie *trie_open(void) { return hugepages_alloc_or_die(sizeof(Trie)); }
void trie_close(Trie *trie) { hugepages_free(trie); }

static void build(Trie *trie, const Vocab *vocab) {
    uint32_t nodes = 0;
    for (unsigned id = 0; id < MERGED_COUNT; id++) {
        const uint8_t *bytes = vocab->bytes + vocab->start[id];
        uint32_t node = 0;
        uint64_t *edge = NULL;
        for (size_t i = 0; i < vocab_length(vocab, id); i++, node = edge_child(*edge)) {
            edge = &trie->slots[edge_slot(trie, node, bytes[i])];
            if (!*edge) *edge = (uint64_t)NO_TOKEN << 42 | (uint64_t)++nodes << 25 | node << 8 | bytes[i];
        }
        *edge ^= (uint64_t)(NO_TOKEN ^ id) << 42;
    }
    for (unsigned id = 0; id < MERGED_COUNT; id++) {
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
