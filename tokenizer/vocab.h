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
    uint32_t pair_slots[PAIR_SLOTS]; // tag << 16 | id by the hash of their pair; 0 = empty (no merge makes a byte)
    // One edge of the trie each, by the hash of (node, byte): node << 8 | byte in bits 0..24, the child in 25..41, the
    // child's token (or NO_TOKEN) in 42..57. 0 = empty; node 0 is the root, and no child.
    uint64_t trie_slots[TRIE_SLOTS];
    uint8_t bytes[TOKEN_BYTES];
};

static inline size_t vocab_length(const Vocab *vocab, unsigned id) { return vocab->start[id + 1] - vocab->start[id]; }

static inline uint64_t vocab_hash(uint32_t key) { return key * 0x9E3779B97F4A7C15; }
static inline uint32_t pair_slot(uint64_t hash) { return (uint32_t)(hash >> 47); }
static inline uint16_t pair_tag(uint64_t hash) { return (uint16_t)(hash >> 31); }
static inline uint32_t trie_slot(uint64_t hash) { return (uint32_t)(hash >> 46); }

// The token that a and b merge to, or NO_TOKEN. Most pairs merge to none, and tags tell so without a look at the pair.
static inline unsigned vocab_merged(const Vocab *vocab, unsigned a, unsigned b) {
    uint32_t pair = a << 16 | b;
    uint64_t hash = vocab_hash(pair);
    for (uint32_t slot = pair_slot(hash);; slot = (slot + 1) % PAIR_SLOTS) {
        uint32_t found = vocab->pair_slots[slot];
        if (!found) return NO_TOKEN;
        if (found >> 16 == pair_tag(hash) && vocab->pair[found & 0xFFFF] == pair) return found & 0xFFFF;
    }
}

// The edge from node by byte, or 0.
static inline uint64_t vocab_edge(const Vocab *vocab, uint32_t node, uint8_t byte) {
    uint32_t key = node << 8 | byte;
    for (uint32_t slot = trie_slot(vocab_hash(key));; slot = (slot + 1) % TRIE_SLOTS) {
        uint64_t edge = vocab->trie_slots[slot];
        if (!edge || (edge & 0x1FFFFFF) == key) return edge;
    }
}
static inline uint32_t edge_child(uint64_t edge) { return edge >> 25 & 0x1FFFF; }
static inline unsigned edge_token(uint64_t edge) { return edge >> 42 & 0xFFFF; }

// The longest token that text (not empty) begins with.
unsigned vocab_longest(const Vocab *vocab, const uint8_t *text, size_t size);
