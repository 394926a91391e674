// Byte-pair encoding of one piece: a short piece by doing its merges, a longer one by backtracking, in linear time if
// the vocabulary allows it.
//
// An encoding is correct if and only if each two neighbours are (pair_holds), and the encoding of a prefix that ends
// between two tokens is a prefix of the encoding. So at most one token sequence leads to each position. The search
// appends the longest token that holds beside its predecessor, tries shorter ones when it does not, and steps back when
// no token is left, marking the position as dead. Each pair of position and token is tried once.
#include "tokenizer/merge/bpe.h"
#include "tokenizer/merge/trie.h"
#include <stdlib.h>

enum {
    SHORT = 128, // bytes
    LANES = 8,   // keys of a short piece that are compared at once
    NO_MERGE = INT32_MAX
};

// The key of a possible merge: the id it gives, which is its rank, then its position. The smallest key is the next
// merge.
static int32_t merge_key(const Vocab *vocab, unsigned a, unsigned b, unsigned position) {
    unsigned id = vocab_merged(vocab, a, b);
    return id == NO_TOKEN ? NO_MERGE : (int32_t)(id << 8 | position);
}

// Symbols are a linked list in place. The search for the smallest key is a loop that compilers vectorize.
static size_t merge_short(const Vocab *vocab, const uint8_t *piece, size_t size, void *ids) {
    int32_t keys[SHORT];
    uint32_t symbols[SHORT];
    uint8_t before[SHORT + 1], after[SHORT];
    size_t padded = (size + LANES - 1) & ~(size_t)(LANES - 1);
    for (size_t i = 0; i < size; i++) {
        symbols[i] = vocab->byte_token[piece[i]];
        before[i] = (uint8_t)(i - 1), after[i] = (uint8_t)(i + 1);
        unsigned id = i + 1 < size ? vocab_merged_bytes(vocab, piece[i], piece[i + 1]) : NO_TOKEN;
        keys[i] = id == NO_TOKEN ? NO_MERGE : (int32_t)(id << 8 | i);
    }
    for (size_t i = size; i < padded; i++) keys[i] = NO_MERGE;
    for (;;) {
        int32_t least[LANES];
        memcpy(least, keys, sizeof least);
        for (size_t i = LANES; i < padded; i += LANES)
            for (size_t lane = 0; lane < LANES; lane++)
                least[lane] = keys[i + lane] < least[lane] ? keys[i + lane] : least[lane];
        int32_t best = least[0];
        for (size_t lane = 1; lane < LANES; lane++) best = least[lane] < best ? least[lane] : best;
        if (best == NO_MERGE) break;
        unsigned at = best & 0xFF, removed = after[at], next = after[removed];
        symbols[at] = (uint32_t)best >> 8;
        keys[removed] = NO_MERGE;
        after[at] = (uint8_t)next, before[next] = (uint8_t)at;
        keys[at] = next < size ? merge_key(vocab, symbols[at], symbols[next], at) : NO_MERGE;
        if (at) keys[before[at]] = merge_key(vocab, symbols[before[at]], symbols[at], before[at]);
    }
    size_t count = 0;
    for (size_t i = 0; i < size; i = after[i]) id_put(ids, count++, vocab->id_bytes, symbols[i]);
    return count;
}

// Whether encoding the joined bytes of a and b gives a, b again. Merges happen in the order of their ids. Undo the
// merges of both tokens, the latest first: the two symbols then at the boundary were neighbours until the merge just
// undone. If they form a pair of a smaller id, that pair would have been merged across the boundary first.
static bool pair_holds(const Vocab *vocab, unsigned a, unsigned b) {
    for (unsigned until = NO_TOKEN;;) {
        if (vocab_merged(vocab, a, b) < until) return false;
        if (a < vocab->first_merge && b < vocab->first_merge) return true;
        if (a > b) {
            until = a;
            a = pair_right_id(vocab->pair[a]);
        } else { // a pair of id b at the boundary is left of b's own pair, so it would come first
            until = b + 1;
            b = pair_left_id(vocab->pair[b]);
        }
    }
}

// ---- long pieces if the search does not apply: the possible merges in a heap, smallest id and then leftmost first

typedef struct {
    uint64_t *keys; // id << 32 | position; also of merges that are no longer possible
    size_t count;
} Heap;

static void heap_add(Heap *heap, uint64_t key) {
    size_t i = heap->count++;
    for (; i && heap->keys[(i - 1) / 2] > key; i = (i - 1) / 2) heap->keys[i] = heap->keys[(i - 1) / 2];
    heap->keys[i] = key;
}

static uint64_t heap_take(Heap *heap) {
    const uint64_t least = heap->keys[0], last = heap->keys[--heap->count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < heap->count; i = child) {
        child += child + 1 < heap->count && heap->keys[child + 1] < heap->keys[child];
        if (last <= heap->keys[child]) break;
        heap->keys[i] = heap->keys[child];
    }
    heap->keys[i] = last;
    return least;
}

static void heap_offer(Heap *heap, const Vocab *vocab, const uint32_t *ids, size_t at, size_t next, size_t size) {
    const unsigned id = next < size ? vocab_merged(vocab, ids[at], ids[next]) : NO_TOKEN;
    if (id != NO_TOKEN) heap_add(heap, (uint64_t)id << 32 | at);
}

// Symbols are a linked list in place; a symbol that was merged away is NO_TOKEN.
static size_t merge_long(const Vocab *vocab, const uint8_t *piece, size_t size, void *out) {
    Heap heap = {.keys = allocate_zeroed(3 * size, sizeof *heap.keys)};
    uint32_t *before = allocate_zeroed(size + 1, sizeof *before), *after = allocate_zeroed(size, sizeof *after);
    uint32_t *ids = allocate_zeroed(size, sizeof *ids);
    for (size_t i = 0; i < size; i++) {
        ids[i] = vocab->byte_token[piece[i]];
        before[i] = (uint32_t)(i - 1), after[i] = (uint32_t)(i + 1);
    }
    for (size_t i = 0; i + 1 < size; i++) heap_offer(&heap, vocab, ids, i, i + 1, size);
    while (heap.count) {
        const uint64_t key = heap_take(&heap);
        const size_t at = (uint32_t)key, removed = after[at];
        if (ids[at] == NO_TOKEN || removed >= size || vocab_merged(vocab, ids[at], ids[removed]) != key >> 32) continue;
        const size_t next = after[removed];
        ids[at] = (uint32_t)(key >> 32);
        ids[removed] = NO_TOKEN;
        after[at] = (uint32_t)next, before[next] = (uint32_t)at;
        heap_offer(&heap, vocab, ids, at, next, size);
        if (at) heap_offer(&heap, vocab, ids, before[at], at, size);
    }
    size_t count = 0;
    for (size_t i = 0; i < size; i = after[i]) id_put(out, count++, vocab->id_bytes, ids[i]);
    free(heap.keys), free(before), free(after), free(ids);
    return count;
}

size_t bpe_merge(const Vocab *vocab, const uint8_t *piece, size_t size, void *ids, uint64_t *dead) {
    if (size <= SHORT) return merge_short(vocab, piece, size, ids);
    if (!vocab->trie) return merge_long(vocab, piece, size, ids);
    const unsigned bytes = vocab->id_bytes;
    const Trie *trie = vocab_trie(vocab);
    memset(dead, 0, (size / 64 + 1) * sizeof *dead);
    size_t count = 0, at = 0;
    unsigned token = trie_longest(trie, piece, size);
    while (at < size) {
        size_t next = at + vocab_length(vocab, token);
        if (!(dead[next / 64] >> next % 64 & 1) && (!count || pair_holds(vocab, id_at(ids, count - 1, bytes), token))) {
            id_put(ids, count++, bytes, token);
            at = next;
            if (at < size) token = trie_longest(trie, piece + at, size - at);
            continue;
        }
        token = trie_shorter(trie, token);
        while (token == NO_TOKEN) {
            dead[at / 64] |= 1ull << at % 64;
            token = id_at(ids, --count, bytes);
            at -= vocab_length(vocab, token);
            token = trie_shorter(trie, token);
        }
    }
    return count;
}
