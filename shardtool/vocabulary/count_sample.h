// A sample of documents, of a given number of bytes, by the hash of each document alone: it depends neither on the
// order of the inputs nor on the machine. tokenize chooses its validation documents by the same hash, the smallest
// values; a sample takes the largest ones.
#pragma once

#include "shardtool/ingest/source.h"

// Reads all documents. The documents with a hash of at least *from have `bytes` bytes or more together, as few as steps
// of 1/65536 of all hashes allow; *from is 0 when all documents together have no more. -1 after fail().
int sample_find(Source *source, uint64_t bytes, uint64_t *from);

bool sample_has(uint64_t from, Bytes document); // `document`: its first DOCUMENT_HASH_BYTES, or all of it
