// Byte-pair encoding of one piece. Short ones by doing their merges; longer ones without.
//
// An encoding is right if and only if each two neighbours are (pair_holds), and the encoding of a prefix that ends
// between two tokens is that prefix of the encoding. So there is exactly one right way to arrive at each position, or
// none: walk with the longest token that holds beside its predecessor, try shorter ones, and step back when no token
// is left, marking the position dead. Each (position, token) is tried once: linear, whatever the piece.
#include "tokenizer/bpe.h"
#include "tokenizer/trie.h"

enum {
    SHORT = 128, // bytes
    LANES = 8,   // the keys of a short piece are looked through by so many
    NO_MERGE = INT32_MAX
};

// What can be merged: the id it gives, which is its rank, and the place, so that the smallest key is the merge to do.
static int32_t merge_key(const Vocab *vocab, unsigned a, unsigned b, unsigned place) {
    unsigned id = vocab_merged(vocab, a, b);
    return id == NO_TOKEN ? NO_MERGE : (int32_t)(id << 8 | place);
}

// Symbols stay where they are and are linked. The search for the smallest key is a loop that compilers make wide.
static size_t merge_short(const Vocab *vocab, const uint8_t *piece, size_t size, uint16_t *ids) {
    int32_t keys[SHORT];
    uint16_t symbols[SHORT];
    uint8_t before[SHORT + 1], after[SHORT];
    size_t room = (size + LANES - 1) & ~(size_t)(LANES - 1);
    for (size_t i = 0; i < size; i++) {
        symbols[i] = vocab->byte_token[piece[i]];
        before[i] = (uint8_t)(i - 1), after[i] = (uint8_t)(i + 1);
        unsigned id = i + 1 < size ? vocab->byte_merged[piece[i]][piece[i + 1]] : NO_TOKEN;
        keys[i] = id == NO_TOKEN ? NO_MERGE : (int32_t)(id << 8 | i);
    }
    for (size_t i = size; i < room; i++) keys[i] = NO_MERGE;
    for (;;) {
        int32_t least[LANES];
        memcpy(least, keys, sizeof least);
        for (size_t i = LANES; i < room; i += LANES)
            for (size_t lane = 0; lane < LANES; lane++)
                least[lane] = keys[i + lane] < least[lane] ? keys[i + lane] : least[lane];
        int32_t best = least[0];
        for (size_t lane = 1; lane < LANES; lane++) best = least[lane] < best ? least[lane] : best;
        if (best == NO_MERGE) break;
        unsigned place = best & 0xFF, gone = after[place], next = after[gone];
        symbols[place] = (uint16_t)(best >> 8);
        keys[gone] = NO_MERGE;
        after[place] = (uint8_t)next, before[next] = (uint8_t)place;
        keys[place] = next < size ? merge_key(vocab, symbols[place], symbols[next], place) : NO_MERGE;
        if (place) keys[before[place]] = merge_key(vocab, symbols[before[place]], symbols[place], before[place]);
    }
    size_t count = 0;
    for (size_t i = 0; i < size; i = after[i]) ids[count++] = symbols[i];
    return count;
}

// Would encoding the joined bytes of a and b give a, b again? Merges happen in the order of their ids. Take both tokens
// apart, the later merge first: what then stands on the two sides of the seam stood there until that merge. If those
// two make a pair that comes earlier, it was merged over the seam.
static bool pair_holds(const Vocab *vocab, unsigned a, unsigned b) {
    for (unsigned until = NO_TOKEN;;) {
        if (vocab_merged(vocab, a, b) < until) return false;
        if (a < BYTE_TOKENS && b < BYTE_TOKENS) return true;
        if (a > b) {
            until = a;
            a = vocab->pair[a] & 0xFFFF;
        } else { // equal ids: the left one was merged first, and the seam's pair stands left of b's
            until = b + 1;
            b = vocab->pair[b] >> 16;
        }
    }
}

size_t bpe_merge(const Vocab *vocab, const uint8_t *piece, size_t size, uint16_t *ids, uint64_t *dead) {
    if (size <= SHORT) return merge_short(vocab, piece, size, ids);
    const Trie *trie = vocab_trie(vocab);
    memset(dead, 0, (size / 64 + 1) * sizeof *dead);
    size_t count = 0, at = 0;
    unsigned token = trie_longest(trie, piece, size);
    while (at < size) {
        size_t next = at + vocab_length(vocab, token);
        if (!(dead[next / 64] >> next % 64 & 1) && (!count || pair_holds(vocab, ids[count - 1], token))) {
            ids[count++] = (uint16_t)token;
            at = next;
            if (at < size) token = trie_longest(trie, piece + at, size - at);
            continue;
        }
        token = trie_shorter(trie, token);
        while (token == NO_TOKEN) {
            dead[at / 64] |= 1ull << at % 64;
            token = ids[--count];
            at -= vocab_length(vocab, token);
            token = trie_shorter(trie, token);
        }
    }
    return count;
}

bool bpe_holds(const Vocab *vocab, const uint8_t *piece, size_t size, const uint16_t *ids, size_t count) {
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= MERGED_COUNT) return false;
        size_t length = vocab_length(vocab, ids[i]);
        if (length > size - at || memcmp(piece + at, vocab->bytes + vocab->start[ids[i]], length)) return false;
        if (i && !pair_holds(vocab, ids[i - 1], ids[i])) return false;
        at += length;
    }
    return at == size;
}
