// Byte-pair encoding of one piece without simulating its merges.
//
// An encoding is right if and only if each two neighbours are (pair_holds), and the encoding of a prefix that ends
// between two tokens is that prefix of the encoding. So there is exactly one right way to arrive at each position, or
// none: walk with the longest token that holds beside its predecessor, try shorter ones, and step back when no token
// is left, marking the position dead. Each (position, token) is tried once: linear, whatever the piece.
#include "tokenizer/merge.h"

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

size_t merge(const Vocab *vocab, const uint8_t *piece, size_t size, uint16_t *ids, uint64_t *dead) {
    memset(dead, 0, (size / 64 + 1) * sizeof *dead);
    size_t count = 0, at = 0;
    unsigned token = vocab_longest(vocab, piece, size);
    while (at < size) {
        size_t next = at + vocab_length(vocab, token);
        if (!(dead[next / 64] >> next % 64 & 1) && (!count || pair_holds(vocab, ids[count - 1], token))) {
            ids[count++] = (uint16_t)token;
            at = next;
            if (at < size) token = vocab_longest(vocab, piece + at, size - at);
            continue;
        }
        token = vocab->shorter[token];
        while (token == NO_TOKEN) {
            dead[at / 64] |= 1ull << at % 64;
            token = ids[--count];
            at -= vocab_length(vocab, token);
            token = vocab->shorter[token];
        }
    }
    return count;
}

bool merge_is(const Vocab *vocab, const uint8_t *piece, size_t size, const uint16_t *ids, size_t count) {
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
