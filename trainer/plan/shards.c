// The buckets of a model, and the shares of its ranks.
#include "trainer/plan/shards.h"
#include "common/sizes.h"

int shard_buckets(const Model *model, unsigned shards) { return shards > 1 ? model->shape.layers + 2 : 1; }

// The start of a bucket, and for the number after the last the end of the range. Starts are multiples of shards x
// piece: in each bucket but the vectors, the shares have one size. Elements at a border belong to the bucket that the
// backward pass completes later: of two layers the lower one, and else the vectors.
static size_t bucket_start(const Model *model, unsigned shards, int bucket) {
    const int layers = model->shape.layers;
    const size_t unit = (size_t)shards * NORM_PIECE, vectors = model->decay_elements / unit * unit;
    if (bucket == 0) return 0;
    if (bucket > layers) return bucket == layers + 1 ? vectors : model->elements;
    return size_smaller(round_up(model_tensor(model, PARAM_QKV_W, bucket - 1)->offset, unit), vectors);
}

GradientBucket shard_bucket(const Model *model, unsigned shards, int bucket) {
    if (shards == 1) return (GradientBucket){0, model->elements, model->elements};
    const size_t first = bucket_start(model, shards, bucket), count = bucket_start(model, shards, bucket + 1) - first;
    return (GradientBucket){first, count, (norm_pieces(count) + shards - 1) / shards * NORM_PIECE};
}

OwnedRange shard_range(const GradientBucket *bucket, unsigned rank) {
    const size_t before = size_smaller(rank * bucket->share, bucket->count);
    return (OwnedRange){bucket->first + before, size_smaller(bucket->share, bucket->count - before)};
}

size_t shard_elements(const Model *model, unsigned shards) {
    size_t elements = 0;
    for (int i = 0; i < shard_buckets(model, shards); i++) elements += shard_bucket(model, shards, i).share;
    return elements;
}
