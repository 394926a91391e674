// ZeRO stage 1: which elements of the flat range of parameters each rank updates, and keeps master parameters and
// optimizer state of.
//
// The range is cut into buckets: the embeddings, the matrices of each layer, and the vectors, in that order. A layer's
// bucket is complete as soon as the backward pass has left the layer. Every rank has one share of each bucket, so that
// reducing a bucket loads all ranks alike. Borders lie between pieces of the norm (NORM_PIECE elements), whose sums
// therefore do not depend on the number of ranks. The shares of a bucket have one size, as NCCL's ReduceScatter and
// AllGather require; only the vectors' may be cut.
#pragma once

#include "trainer/shape/optimizer.h"

typedef struct {
    size_t first, count; // elements of the flat range; count may be 0
    size_t share;        // elements of each rank; of the vectors, the last ones may have fewer, or none
} GradientBucket;

// The part of a bucket that a rank has. The parts of a rank lie one after another, each in the room of a share.
typedef struct {
    size_t first, count; // elements of the flat range
} OwnedRange;

// One shard: one bucket with everything.
int shard_buckets(const Model *model, unsigned shards);
GradientBucket shard_bucket(const Model *model, unsigned shards, int bucket);
OwnedRange shard_range(const GradientBucket *bucket, unsigned rank);

static inline int shard_bucket_of_layer(int layer) { return layer + 1; }

size_t shard_elements(const Model *model, unsigned shards); // room for the elements of any rank
