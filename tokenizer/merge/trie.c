// A trie in one hash table of edges: the 98,023 edges of GPT-2's vocabulary fill 37 % of the slots. A node is known by
// the slot of the edge that leads to it.
#include "tokenizer/merge/trie.h"
#include "common/machine/hugepages.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct Trie {
    atomic_bool built;
    uint32_t *shorter;
    // Edges by the hash of (node, byte): node << 8 | byte in bits 0..39, in 40..62 the token that ends there, or
    // NO_END; bit 63 is set. 0 = empty. Node 0 is the root, n + 1 is where the edge of slot n leads.
    uint64_t *slots;
    unsigned shift; // 64 - the logarithm of their number
};

enum { LENGTHS = 256 }; // of tokens, which have at most VOCAB_TOKEN_MAX bytes
#define EDGE      (1ull << 63)
#define EDGE_KEY  ((1ull << 40) - 1)
#define NO_END    0x7FFFFFu
#define TOKEN_BIT 40

static unsigned edge_token(uint64_t edge) { return edge >> TOKEN_BIT & NO_END; }

// The slot of the edge that leaves `node` by `byte`, or the empty slot where it belongs.
static uint32_t edge_slot(const Trie *trie, uint32_t node, uint8_t byte) {
    const uint64_t key = (uint64_t)node << 8 | byte;
    const uint32_t mask = (uint32_t)(~0ull >> trie->shift);
    uint32_t slot = (uint32_t)(vocab_hash(key) >> trie->shift);
    while (trie->slots[slot] && (trie->slots[slot] & EDGE_KEY) != key) slot = (slot + 1) & mask;
    return slot;
}

unsigned trie_longest(const Trie *trie, const uint8_t *text, size_t size) {
    unsigned longest = NO_TOKEN;
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        const uint32_t slot = edge_slot(trie, node, text[i]);
        const uint64_t edge = trie->slots[slot];
        if (!edge) break;
        if (edge_token(edge) != NO_END) longest = edge_token(edge);
        node = slot + 1;
    }
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

// Fills the table, from shorter tokens to longer ones, so that the left token of each token's merge is there: the edges
// of the other's bytes leave where it ends, and the last token on the way is the longest shorter one. False when the
// table gets too full.
static bool add_tokens(Trie *trie, const Vocab *vocab, const uint32_t *by_length, uint32_t *ends) {
    uint64_t room = (1ull << (64 - trie->shift)) / 8 * 7;
    for (unsigned i = 0; i < vocab->count; i++) {
        const unsigned id = by_length[i], left = pair_left_id(vocab->pair[id]);
        const uint8_t *bytes = vocab->bytes + vocab->start[id];
        const size_t size = vocab_length(vocab, id);
        uint32_t slot = size > 1 ? ends[left] : UINT32_MAX; // the root is node 0
        unsigned shorter = size > 1 ? left : NO_TOKEN;
        for (size_t at = size > 1 ? vocab_length(vocab, left) : 0; at < size; at++) {
            const uint32_t node = slot + 1;
            slot = edge_slot(trie, node, bytes[at]);
            const uint64_t edge = trie->slots[slot];
            if (edge && edge_token(edge) != NO_END) shorter = edge_token(edge);
            if (edge) continue;
            if (!room--) return false;
            trie->slots[slot] = EDGE | (uint64_t)NO_END << TOKEN_BIT | (uint64_t)node << 8 | bytes[at];
        }
        trie->slots[slot] ^= (uint64_t)(NO_END ^ id) << TOKEN_BIT;
        trie->shorter[id] = shorter;
        ends[id] = slot;
    }
    return true;
}

static uint32_t *sort_by_length(const Vocab *vocab) {
    uint32_t *by_length = allocate_zeroed(vocab->count, sizeof *by_length), at[LENGTHS + 1] = {0};
    for (unsigned id = 0; id < vocab->size; id++)
        if (!vocab_is_special(vocab, id)) at[vocab_length(vocab, id) + 1]++;
    for (unsigned length = 1; length <= LENGTHS; length++) at[length] += at[length - 1];
    for (unsigned id = 0; id < vocab->size; id++)
        if (!vocab_is_special(vocab, id)) by_length[at[vocab_length(vocab, id)]++] = id;
    return by_length;
}

static void build(Trie *trie, const Vocab *vocab) {
    uint32_t *by_length = sort_by_length(vocab), *ends = allocate_zeroed(vocab->size, sizeof *ends);
    trie->shorter = allocate_zeroed(vocab->size, sizeof *trie->shorter);
    trie->shift = 46; // at most 0.8 edges a byte in vocabularies that were trained
    while (1ull << (64 - trie->shift) < vocab->start[vocab->size] * 3ull / 4) trie->shift--;
    for (;; trie->shift--) {
        trie->slots = hugepages_alloc_or_die(sizeof *trie->slots << (64 - trie->shift));
        if (add_tokens(trie, vocab, by_length, ends)) break;
        hugepages_free(trie->slots);
    }
    free(by_length), free(ends);
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
