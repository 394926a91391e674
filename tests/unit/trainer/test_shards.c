// The parts of the parameters that each of several processes updates.
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/plan/shards.h"
#include <math.h>
#include <string.h>

typedef struct {
    int layers, channels, block;
} Size;
static const Size sizes[] = {{1, 16, 16}, {3, 32, 32}, {2, 72, 64}, {12, 768, 1024}, {48, 1600, 1024}};
enum { SIZES = sizeof sizes / sizeof *sizes };
static const unsigned worlds[] = {1, 2, 3, 4, 7, 8, 64, 1024};
enum { WORLDS = sizeof worlds / sizeof *worlds };

static Model model_of(const Size *size) {
    ModelShape shape = {.layers = size->layers,
                        .heads = 1,
                        .kv_heads = 1,
                        .channels = size->channels,
                        .block = size->block,
                        .vocab = 97,
                        .padded_vocab = padded_vocab(97),
                        .bias = true,
                        .activation = ACTIVATION_GELU};
    Model model;
    model_open(&model, &shape);
    return model;
}

TEST(shards_hold_every_element_once_and_in_place) {
    for (int s = 0; s < SIZES; s++)
        for (int w = 0; w < WORLDS; w++) {
            Model model = model_of(&sizes[s]);
            size_t next = 0, shares = 0, least = SIZE_MAX, most = 0;
            for (int b = 0; b < shard_buckets(&model, worlds[w]); b++) {
                const GradientBucket bucket = shard_bucket(&model, worlds[w], b);
                CHECK_EQUAL(bucket.first, next);
                for (unsigned rank = 0; rank < worlds[w]; rank++) {
                    const OwnedRange range = shard_range(&bucket, rank);
                    CHECK_EQUAL(range.first, next);
                    CHECK(range.count <= bucket.share);
                    CHECK(range.first % NORM_PIECE == 0 || !range.count);
                    next += range.count;
                }
                CHECK_EQUAL(next, bucket.first + bucket.count);
                if (b < shard_buckets(&model, worlds[w]) - 1) CHECK_EQUAL(bucket.count, worlds[w] * bucket.share);
                shares += bucket.share;
            }
            CHECK_EQUAL(next, model.elements);
            CHECK_EQUAL(shard_elements(&model, worlds[w]), shares);
            if (worlds[w] == 1) CHECK_EQUAL(shares, model.elements);
            for (unsigned rank = 0; rank < worlds[w]; rank++) {
                size_t own = 0;
                for (int b = 0; b < shard_buckets(&model, worlds[w]); b++) {
                    const GradientBucket bucket = shard_bucket(&model, worlds[w], b);
                    own += shard_range(&bucket, rank).count;
                }
                if (own < least) least = own;
                if (own > most) most = own;
            }
            if (s == SIZES - 1 && worlds[w] <= 64) CHECK(most <= model.elements / worlds[w] * 102 / 100); // 2 % more
            model_close(&model);
        }
}

// The backward pass goes from the last layer to the first; vectors and embeddings are complete at its end.
TEST(shards_of_a_layer_hold_nothing_that_is_computed_later) {
    for (int s = 0; s < SIZES; s++) {
        Model model = model_of(&sizes[s]);
        for (int layer = 0; layer < sizes[s].layers; layer++) {
            const GradientBucket bucket = shard_bucket(&model, 4, shard_bucket_of_layer(layer));
            for (int i = 0; i < model.count && bucket.count; i++) {
                const Tensor *tensor = &model.tensors[i];
                const size_t end = tensor->offset + tensor_elements(tensor);
                if (end <= bucket.first || tensor->offset >= bucket.first + bucket.count) continue;
                CHECK(tensor->kind == KIND_MATRIX || tensor->kind == KIND_RESIDUAL);
                CHECK(tensor->layer >= layer);
            }
        }
        model_close(&model);
    }
}

TEST(shards_of_any_number_of_ranks_give_the_norm_the_same_bits) {
    Tiny tiny;
    tiny_open(&tiny, TINY_SHAPE(.channels = 64, .layers = 3, .vocab = 1000));
    const Backend *ops = tiny.backend;
    float *gradients = network_at(&tiny.network, tiny.plan.grads), norm, first = 0;
    const float one = 1;
    for (size_t i = 0; i < tiny.model.elements; i++) gradients[i] = (float)((i * 2654435761u) % 2003) * 1e-3f - 1;
    double *sums = network_at(&tiny.network, tiny.plan.sums), exact = 0;
    for (size_t i = 0; i < tiny.model.elements; i++) exact += (double)gradients[i] * (double)gradients[i];
    for (int w = 0; w < WORLDS; w++) {
        memset(sums, 0xff, norm_pieces(tiny.model.elements) * sizeof *sums);
        for (int b = 0; b < shard_buckets(&tiny.model, worlds[w]); b++)
            for (unsigned rank = 0; rank < worlds[w]; rank++) {
                const GradientBucket bucket = shard_bucket(&tiny.model, worlds[w], b);
                const OwnedRange own = shard_range(&bucket, rank);
                ops->square_sums(sums + own.first / NORM_PIECE, (const Grad *)(void *)(gradients + own.first),
                                 own.count);
            }
        ops->gradient_norm(&norm, sums, norm_pieces(tiny.model.elements), &one);
        if (!w) first = norm;
        CHECK(norm == first);
    }
    CHECK(fabs((double)first / sqrt(exact) - 1) < 1e-6);
    tiny_close(&tiny);
}
