// Repeated runs in a frame of values of 2 bytes, as sequences of zstd: a function of the frame alone.
#pragma once

#define ZSTD_STATIC_LINKING_ONLY // ZSTD_Sequence and ZSTD_compressSequences
#include <stddef.h>
#include <zstd.h>

enum { PAIR_MATCHES_TABLE_LOG = 13 };

// The most sequences of a frame: each is of at least 4 bytes, and one ends each block.
#define PAIR_MATCHES_MAX(size) ((size) / 4 + (size) / ZSTD_BLOCKSIZE_MAX + 2)

typedef struct PairMatches PairMatches;
PairMatches *pair_matches_open(void);
void pair_matches_close(PairMatches *matches); // accepts NULL

// Writes the sequences of a frame of at most 4 GiB, each block ended by one without a match (ZSTD_sf_explicitBlock-
// Delimiters), to out[PAIR_MATCHES_MAX(size)]. Returns their number.
size_t pair_matches_find(PairMatches *matches, const void *frame, size_t size, ZSTD_Sequence *out);
