// A trie of the tokens' bytes, for pieces that are too long to merge pair by pair. Most texts have no such piece, and
// building it takes half as long as opening the vocabulary, so the first call of vocab_trie builds it.
#pragma once

#include "tokenizer/merge/vocab_internal.h"

typedef struct Trie Trie;
Trie *trie_open(void);       // not built yet; exits (82) when there is no memory
void trie_close(Trie *trie); // accepts NULL

const Trie *vocab_trie(const Vocab *vocab); // the vocabulary's trie, built; thread-safe

// The longest token that the text (not empty) begins with.
unsigned trie_longest(const Trie *trie, const uint8_t *text, size_t size);
// The longest shorter token that the token `id` begins with, or NO_TOKEN.
unsigned trie_shorter(const Trie *trie, unsigned id);
