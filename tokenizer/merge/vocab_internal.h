// The inside of a vocabulary: its tokens, and the pair that each was merged from. vocab.h has the public half.
#pragma once

#include "tokenizer/merge/pattern.h"
#include "tokenizer/merge/vocab.h"
#include <sys/types.h>

enum {
    NO_TOKEN = 0xFFFF,
    BYTE_TOKENS = 256,                // ids 0..255 are the single bytes; the others are merges, in order of rank
    MERGED_COUNT = TOKEN_END_OF_TEXT, // tokens without <|endoftext|>
    TOKEN_BYTES = 320814,             // of all tokens together, in GPT-2's table
    PAIR_SLOTS = 1 << 17              // 38 % full
};

struct Vocab {
    uint32_t start[MERGED_COUNT + 1]; // token id is bytes[start[id] .. start[id + 1])
    uint32_t pair[MERGED_COUNT];      // left << 16 | right: the merge that made the token; unused for single bytes
    uint16_t byte_token[256];
    uint16_t byte_merged[256][256];  // what two bytes merge to, or NO_TOKEN
    uint32_t pair_slots[PAIR_SLOTS]; // tag << 16 | id, by the hash of the pair; 0 = empty (no merge gives id 0)
    struct Trie *trie;               // of the tokens' bytes (trie.h); NULL for characters
    uint16_t *characters;            // the id of each code point, or NO_TOKEN; NULL for GPT-2's vocabulary
    Pattern pattern;
    unsigned count; // of tokens; the next id is the end of a text
    uint8_t bytes[TOKEN_BYTES];
};

static inline size_t vocab_length(const Vocab *vocab, unsigned id) { return vocab->start[id + 1] - vocab->start[id]; }

static inline uint64_t vocab_hash(uint32_t key) { return key * 0x9E3779B97F4A7C15; }
static inline uint32_t pair_slot(uint64_t hash) { return (uint32_t)(hash >> 47); }
static inline uint16_t pair_tag(uint64_t hash) { return (uint16_t)(hash >> 31); }

// Builds the vocabulary from a merge table, without its trie. NULL after fail() (65) when the table is not GPT-2's;
// `name` is for the error's text. hugepages_free frees it.
Vocab *vocab_build(Bytes table, const char *name);

// The ids of text in a vocabulary of characters; `offset` is its place in the document, for errors. -1 after fail().
ssize_t characters_encode(const Vocab *vocab, Bytes text, uint64_t offset, uint16_t *ids);

// The token that a and b merge to, or NO_TOKEN. Most pairs merge to none, which the tag shows without reading the pair.
static inline unsigned vocab_merged(const Vocab *vocab, unsigned a, unsigned b) {
    uint32_t pair = a << 16 | b;
    uint64_t hash = vocab_hash(pair);
    for (uint32_t slot = pair_slot(hash);; slot = (slot + 1) % PAIR_SLOTS) {
        uint32_t found = vocab->pair_slots[slot];
        if (!found) return NO_TOKEN;
        if (found >> 16 == pair_tag(hash) && vocab->pair[found & 0xFFFF] == pair) return found & 0xFFFF;
    }
}
