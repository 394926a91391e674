// The vocabulary as the encoder sees it: tokens, the pair each was merged from, and a trie of their bytes.
#pragma once

#include "tokenizer/tokenizer.h"

enum {
    NO_TOKEN = 0xFFFF,
    BYTE_TOKENS = 256,                // ids 0..255 are the single bytes, the others are merges, in order of rank
    MERGED_COUNT = TOKEN_END_OF_TEXT, // tokens without <|endoftext|>
    TOKEN_BYTES = 320814,             // of all of them; a property of the one table there is
    PAIR_SLOTS = 1 << 17,             // 38 % full
    TRIE_SLOTS = 1 << 18              // 98,023 nodes: 37 % full
};

struct Vocab {
    uint32_t start[MERGED_COUNT + 1]; // token id is bytes[start[id] .. start[id + 1])
    uint32_t pair[MERGED_COUNT];      // left << 16 | right: the merge that made the token; unused for single bytes
    uint16_t shorter[MERGED_COUNT];   // the longest other token the token begins with, or NO_TOKEN
    uint16_t byte_token[256];
    uint16_t byte_merged[256][256];  // what two bytes merge to, or NO_TOKEN
    uint16_t pair_slots[PAIR_SLOTS]; // ids by the hash of their pair; 0 = empty (no merge makes a byte)
    // One edge of the trie each, by the hash of (node, byte): node << 8 | byte in bits 0..24, the child in 25..41, the
    // child's token (or NO_TOKEN) in 42..57. 0 = empty; node 0 is the root, and no child.
    uint64_t trie_slots[TRIE_SLOTS];
    uint8_t bytes[TOKEN_BYTES];
};

static inline size_t vocab_length(const Vocab *vocab, unsigned id) { return vocab->start[id + 1] - vocab->start[id]; }

static inline uint32_t vocab_hash(uint32_t key, unsigned bits) { return (key * 0x9E3779B1u) >> (32 - bits); }

// The token that a and b merge to, or NO_TOKEN.
static inline unsigned vocab_merged(const Vocab *vocab, unsigned a, unsigned b) {
    uint32_t pair = a << 16 | b;
    for (uint32_t slot = vocab_hash(pair, 17);; slot = (slot + 1) % PAIR_SLOTS) {
        unsigned id = vocab->pair_slots[slot];
        if (!id) return NO_TOKEN;
        if (vocab->pair[id] == pair) return id;
    }
}

// The edge from node by byte, or 0.
static inline uint64_t vocab_edge(const Vocab *vocab, uint32_t node, uint8_t byte) {
    uint32_t key = node << 8 | byte;
    for (uint32_t slot = vocab_hash(key, 18);; slot = (slot + 1) % TRIE_SLOTS) {
        uint64_t edge = vocab->trie_slots[slot];
        if (!edge || (edge & 0x1FFFFFF) == key) return edge;
    }
}
static inline uint32_t edge_child(uint64_t edge) { return edge >> 25 & 0x1FFFF; }
static inline unsigned edge_token(uint64_t edge) { return edge >> 42 & 0xFFFF; }

// The longest token that text (not empty) begins with.
unsigned vocab_longest(const Vocab *vocab, const uint8_t *text, size_t size);
