// The inside of a vocabulary: its tokens, and the pairs that merge to each. vocab.h has the public half.
#pragma once

#include "common/id_array.h"
#include "tokenizer/merge/pattern.h"
#include "tokenizer/merge/vocab.h"
#include <sys/types.h>

enum {
    NO_SMALL = 0xFFFF, // no token, in 16 bits; if `small` is set it is the id of no merge
    BYTE_TOKENS = 256, // of GPT-2's vocabulary, ids 0..255 are the single bytes; the others are merges, by rank
    MERGED_COUNT = TOKEN_END_OF_TEXT // tokens of GPT-2 without <|endoftext|>
};

#define NO_TOKEN UINT32_MAX

struct Vocab {
    uint32_t *start; // token id is bytes[start[id] .. start[id + 1])
    uint8_t *bytes;
    // Merges, id << 40 | pair_of(left, right): by id the first of each token, 0 for none; then the others.
    uint64_t *pair;
    uint32_t *pair_slots;        // by the hash of a pair: a tag (pair_tag) and its index in pair + 1; 0 = empty
    unsigned pair_shift;         // 64 - the logarithm of the number of slots, which are at most half full
    unsigned pairs, pairs_again; // merges; of them, the latter
    unsigned id_bytes;           // of an id in arrays (id_array.h)
    bool small;                  // every merge has an id below NO_SMALL
    uint8_t *special;            // a bit for each id: it is not a token of text
    uint32_t byte_token[256];
    uint16_t byte_merged[256][256]; // the token of two bytes, or NO_SMALL; if `small` is set
    struct Trie *trie;              // of the tokens' bytes (trie.h); NULL when it cannot be used: see vocab_finish
    uint16_t *characters;           // the id of each code point, or NO_SMALL; NULL for merges
    struct TokenNames *whole; // tokens that are taken for a piece of their bytes, which merges do not make; or NULL
    bool whole_pieces;        // a piece that is a token is that token, whatever its merges
    bool unmade;              // there are tokens of text that merges do not make
    Pattern pattern;
    unsigned count;       // of tokens that text can have
    unsigned size;        // of all: with special tokens
    unsigned first_merge; // if there is a trie: tokens of text below this id are bytes, the others merges
    unsigned end_of_text;
    bool is_gpt2;
    unsigned token_room; // for which memory was allocated
    size_t byte_room, pair_room;
};

static inline size_t vocab_length(const Vocab *vocab, unsigned id) { return vocab->start[id + 1] - vocab->start[id]; }

// With the golden ratio as factor, pairs of ids take a tenth more steps than in random order; with this one no more.
static inline uint64_t vocab_hash(uint64_t key) { return key * 0xFF51AFD7ED558CCD; }

// A pair of ids, which have at most 20 bits each.
static inline uint64_t pair_of(unsigned left, unsigned right) { return (uint64_t)left << 20 | right; }
static inline unsigned pair_left_id(uint64_t pair) { return pair >> 20 & (IDS_MAX - 1); }
static inline unsigned pair_right_id(uint64_t pair) { return pair & (IDS_MAX - 1); }

// Most pairs merge to no token, which the tags show without reading pairs; of GPT-2's vocabulary the slots and the
// pairs of frequent tokens fit into the processor's second-level cache.
#define PAIR_INDEX 0x7FFFFFu
#define PAIR_IDS   ((1ull << 40) - 1)
enum { MERGES_MAX = 6 << 20 };
_Static_assert(IDS_MAX + MERGES_MAX < PAIR_INDEX, "an index of a pair has 23 bits");
static inline uint32_t pair_tag(uint64_t hash) { return (uint32_t)(hash >> 15) & ~PAIR_INDEX; }

// An empty vocabulary with room for so many tokens (special ones included), bytes of them all, and merges. Exits (82)
// when there is no memory.
Vocab *vocab_new(unsigned tokens, size_t bytes, size_t pairs);
unsigned vocab_add_token(Vocab *vocab, const uint8_t *text, size_t size); // returns its id, the next
unsigned vocab_add_special(Vocab *vocab, const uint8_t *name, size_t size);
// At most MERGES_MAX; a pair that is there is left as it is.
void vocab_add_pair(Vocab *vocab, unsigned left, unsigned right, unsigned id);

// All merges, by the id they give and then by the pair: id << 40 | pair_of(left, right). The caller frees them.
uint64_t *vocab_pairs(const Vocab *vocab);

// Tokens by their bytes.
typedef struct TokenNames {
    const Vocab *vocab;
    uint32_t *slots; // id + 1 by the hash of the token's bytes; 0 = empty
    unsigned shift;
} TokenNames;

void token_names_open(TokenNames *names, const Vocab *vocab);
void token_names_close(TokenNames *names);
void token_names_add(TokenNames *names, unsigned id); // of tokens with the same bytes the first is found
unsigned token_names_find(const TokenNames *names, const uint8_t *text, size_t size); // or NO_TOKEN

Vocab *vocab_build(void); // GPT-2's, from the built-in merge table

// After the last token and merge of another vocabulary: finds the tokens that merges do not make, and opens a trie when
// each token is made by one pair of earlier ones, of which it is the merge.
void vocab_finish(Vocab *vocab);

// The ids of text in a vocabulary of characters; `offset` is its place in the document, for errors. -1 after fail().
ssize_t characters_encode(const Vocab *vocab, Bytes text, uint64_t offset, uint16_t *ids);

// The token that a pair merges to, or NO_TOKEN; *slot is where the pair is, or belongs.
static inline unsigned pair_find(const Vocab *vocab, uint64_t pair, uint32_t *slot) {
    const uint64_t hash = vocab_hash(pair);
    const uint32_t mask = (uint32_t)(~0ull >> vocab->pair_shift);
    for (*slot = (uint32_t)(hash >> vocab->pair_shift);; *slot = (*slot + 1) & mask) {
        const uint32_t found = vocab->pair_slots[*slot], index = (found & PAIR_INDEX) - 1;
        if (!found) return NO_TOKEN;
        if ((found & ~PAIR_INDEX) == pair_tag(hash) && (vocab->pair[index] & PAIR_IDS) == pair)
            return index < vocab->token_room ? index : (unsigned)(vocab->pair[index] >> 40);
    }
}

// The token that a and b merge to, or NO_TOKEN.
static inline unsigned vocab_merged(const Vocab *vocab, unsigned a, unsigned b) {
    return pair_find(vocab, pair_of(a, b), &(uint32_t){0});
}

// The same of two bytes.
static inline unsigned vocab_merged_bytes(const Vocab *vocab, uint8_t a, uint8_t b) {
    if (!vocab->small) return vocab_merged(vocab, vocab->byte_token[a], vocab->byte_token[b]);
    const unsigned id = vocab->byte_merged[a][b];
    return id == NO_SMALL ? NO_TOKEN : id;
}
