// The sampling modes of order.h.
#include "loader/protocol/sampling.h"
#include "common/err.h"
#include "common/rng.h"

static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

Permutation permutation_of(uint64_t seed, uint64_t epoch, uint32_t stage, uint64_t count) {
    Permutation permutation = {.count = count};
    // The bit length of count-1, not of count: with the latter a power of 4 plus 1 loses an element.
    unsigned bits = count > 1 ? 64 - (unsigned)__builtin_clzll(count - 1) : 0;
    permutation.half = (bits + 1) / 2;
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (uint32_t i = 0; i < SAMPLE_ORDER_ROUNDS / 4; i++) {
        uint32_t counter[4] = {i, stage, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
        philox4x32(counter, key, permutation.key + (size_t)4 * i);
    }
    return permutation;
}

uint64_t permutation_at(const Permutation *permutation, uint64_t index) {
    if (permutation->count < 2) return 0;
    unsigned half = permutation->half;
    uint64_t mask = (1ull << half) - 1;
    do {
        uint64_t left = index >> half, right = index & mask;
        for (int round = 0; round < SAMPLE_ORDER_ROUNDS; round++) {
            uint64_t next = left ^ mix((uint64_t)permutation->key[round] << 32 | right) >> (64 - half);
            left = right, right = next;
        }
        index = left << half | right;
    } while (index >= permutation->count);
    return index;
}

int sample_order_open(SampleOrder *order, Sampling mode, uint8_t split, uint64_t seed, uint64_t tokens,
                      uint32_t sequence_tokens) {
    *order = (SampleOrder){mode, split, sequence_tokens, seed, tokens, 0, 1, 0};
    if (tokens <= sequence_tokens)
        return fail(EX_DATA, "the %s split has %llu tokens, a sample of block size %u needs %llu",
                    split == SPLIT_VAL ? "val" : "train", (unsigned long long)tokens, sequence_tokens,
                    sequence_tokens + 1ull);
    order->blocks = mode == SAMPLING_CROP ? tokens - sequence_tokens : (tokens - 1) / sequence_tokens;
    if (sequence_tokens < SAMPLE_ORDER_CHUNK_TOKENS) order->chunk_blocks = SAMPLE_ORDER_CHUNK_TOKENS / sequence_tokens;
    order->groups = order->blocks / (SAMPLE_ORDER_GROUP_CHUNKS * order->chunk_blocks);
    return 0;
}

uint64_t sample_order_left(const SampleOrder *order, uint64_t sample) {
    if (order->mode != SAMPLING_SEQUENTIAL) return UINT64_MAX;
    return sample < order->blocks ? order->blocks - sample : 0;
}

void sample_order_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group) {
    uint64_t T = order->sequence_tokens, chunk = order->chunk_blocks, blocks = SAMPLE_ORDER_GROUP_CHUNKS * chunk;
    *group = (ShuffleGroup){.extent_count = 1};
    if (order->mode == SAMPLING_CROP) {
        group->samples = UINT64_MAX;
        group->extent_tokens = order->tokens;
        return;
    }
    // Sequential samples lie in the same groups, in the order of the stream.
    bool epochs = order->mode == SAMPLING_EPOCH;
    group->epoch = epochs ? sample / order->blocks : 0;
    uint64_t begin = group->epoch * order->blocks, number = (sample - begin) / blocks, first = number * blocks;
    group->first_sample = begin + first;
    group->samples = number < order->groups ? blocks : order->blocks - first;
    group->extent[0] = first * T;
    group->extent_tokens = group->samples * T + 1;
    if (!epochs) return;
    group->inside = permutation_of(order->seed, group->epoch, (uint32_t)(1 + number), group->samples);
    if (number == order->groups) return;
    Permutation chunks = permutation_of(order->seed, group->epoch, 0, SAMPLE_ORDER_GROUP_CHUNKS * order->groups);
    group->extent_count = SAMPLE_ORDER_GROUP_CHUNKS;
    group->extent_tokens = chunk * T + 1;
    for (unsigned i = 0; i < SAMPLE_ORDER_GROUP_CHUNKS; i++)
        group->extent[i] = permutation_at(&chunks, number * SAMPLE_ORDER_GROUP_CHUNKS + i) * chunk * T;
}

uint64_t sample_order_token(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample, unsigned *extent) {
    *extent = 0;
    if (order->mode == SAMPLING_CROP)
        return (uint64_t)((unsigned __int128)rng_u64(order->seed, order->split, sample) * order->blocks >> 64);
    uint64_t block = sample - group->first_sample;
    if (order->mode == SAMPLING_EPOCH) block = permutation_at(&group->inside, block);
    if (group->extent_count > 1) {
        *extent = (unsigned)(block / order->chunk_blocks);
        block %= order->chunk_blocks;
    }
    return group->extent[*extent] + block * order->sequence_tokens;
}
