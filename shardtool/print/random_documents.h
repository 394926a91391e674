// A random choice of the documents of a shard or of one split of a dataset. It depends on the seed, and on the number
// and order of the documents, not on how they are packed into shards.
#pragma once

#include "dataset/document_reader.h"

typedef struct {
    Document *documents; // in their order; the caller frees them
    uint64_t count;      // as many as were wanted, or all
    uint64_t total;      // of the shard or split
    uint64_t cut;        // of these, those that the ends of a shard cut, which are not chosen
} RandomDocuments;

// Each set of `count` documents is equally likely. Reads the document indexes; -1 after fail().
int random_documents_choose(RandomDocuments *chosen, TokenReader *tokens, uint64_t count, uint64_t seed);
