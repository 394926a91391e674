// Finds the merges of a byte-level BPE vocabulary from the distinct pieces of a text and their counts.
//
// The rule: ids 0 to 255 are the bytes. The pair of neighbouring ids that occurs most often in all pieces, of several
// the lowest (left id, then right id), becomes the next id, and its occurrences are replaced from left to right.
// Overlapping occurrences count: "aaa" has the pair (a, a) twice. This is the rule of rustbpe, and of gigatoken with
// tie_breaking="raw_token_ids". A pair whose token would have more than BPE_TOKEN_BYTES_MAX bytes is passed over.
#pragma once

#include "common/bytes.h"

enum { BPE_TOKEN_BYTES_MAX = 255 }; // the limit of the encoder

typedef struct {
    uint32_t left, right;
} BpeMerge;

typedef struct BpeTraining BpeTraining;

// Up to `count` merges, within `memory` bytes.
BpeTraining *bpe_training_open(uint64_t memory, uint32_t count);
void bpe_training_close(BpeTraining *training); // accepts NULL

// First every piece is announced, then after bpe_training_begin every piece is added, both in any order. Each piece
// once. -1 after fail() (65): the counts are not from a text of less than 2^62 bytes, or a piece was not announced.
int bpe_training_announce(BpeTraining *training, size_t piece_bytes, uint64_t count);
// -1 after fail() (82) when the memory is too small for the pieces: the text names the bytes that they need.
int bpe_training_begin(BpeTraining *training);
int bpe_training_add(BpeTraining *training, Bytes piece, uint64_t count);

// Finds the merges; `show` is called after each with their number so far. Returns how many there are, fewer than asked
// for when no pair is left, or -1 after fail() (82). *merges belongs to the training.
int64_t bpe_training_run(BpeTraining *training, const BpeMerge **merges, void (*show)(void *context, uint32_t count),
                         void *context);
