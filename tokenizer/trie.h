// The tokens by their bytes, for pieces that are too long to merge pair by pair. Most texts have none, and building it
// takes longer than all else at start: the first who needs it does that.
#pragma once

#include "tokenizer/vocab.h"

typedef struct Trie Trie;
const Trie *vocab_trie(const Vocab *vocab); // of the vocabulary, which closes it; safe from all threads
void trie_close(Trie *trie);                // accepts NULL

// The longest token that text (not empty) begins with.
unsigned trie_longest(const Trie *trie, const uint8_t *text, size_t size);
// The longest other one that a token begins with, or NO_TOKEN.
unsigned trie_shorter(const Trie *trie, unsigned id);
