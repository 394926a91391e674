// Which tokens a sample is: the sampling modes as pure functions, written so that a client in another language can
// follow them. A split is one stream of N tokens; a sample is T+1 consecutive ids of it.
//
//   crop        first = high 64 bits of philox(seed, split, index) * (N - T): nanoGPT's crops, with replacement.
//               philox(seed, stream, index) is rng_u64 of common/rng.h.
//   sequential  sample i begins at token i*T; there are (N-1)/T of them.
//   epoch       n = (N-1)/T blocks, block b begins at token b*T. Sample g is block order(g mod n) of epoch g / n:
//               A chunk is K = max(1, 2^20 / T) consecutive blocks, a group 8 chunks, G = n / 8K whole groups.
//               Position p < 8KG lies in group j = p / 8K. With q = P(1 + j, 8K)(p mod 8K), its block is number q mod K
//               of chunk P(0, 8G)(8j + q / K). The other n - 8KG positions come last: 8KG + P(1 + G, n - 8KG)(p - 8KG).
//               So a group is read once from 8 extents of 2 MiB, with no state and no limit on size.
//
// P(stage, m) is a permutation of 0..m-1: 8 rounds of a balanced Feistel network on 2h bits, where 2h is the bit length
// of m-1 rounded up to even, applied again until the result is below m. With left:right = x, h bits each, a round is
//   left, right = right, left ^ (mix(key[round] << 32 | right) >> (64 - h))
// mix(z): z ^= z >> 30, z *= 0xBF58476D1CE4E5B9, z ^= z >> 27, z *= 0x94D049BB133111EB, z ^= z >> 31 (splitmix64).
// key[0..3] and key[4..7] are the four words of philox4x32-10 with key {seed low, seed high} and counters
// {0, stage, epoch low, epoch high} and {1, stage, epoch low, epoch high}.
//
// Vectors (mode seed split N T sample -> first token):
//   crop 1337 0 301966 256 0 -> 282896
//   crop 1337 1 301966 256 12345678901 -> 1465
//   crop 18446744073709551615 0 9035582198 1024 1000000000 -> 3030167782
//   epoch 1337 0 301966 256 5 -> 198144
//   epoch 1337 0 9035582198 1024 1000000000 -> 7547226112
//   epoch 42 0 33554433 1000 33553 -> 33540000
//   sequential 0 1 301966 256 0 -> 0
//   sequential 0 1 301966 256 1178 -> 301568
//   sequential 0 1 4434606 1024 4329 -> 4432896
#pragma once

#include "loader/client/feed.h"

enum { SAMPLE_ORDER_ROUNDS = 8, SAMPLE_ORDER_GROUP_CHUNKS = 8, SAMPLE_ORDER_CHUNK_TOKENS = 1 << 20 };

typedef struct {
    uint64_t count; // m
    unsigned half;  // h
    uint32_t key[SAMPLE_ORDER_ROUNDS];
} Permutation;

// `count` > 0; stage and epoch choose one of the permutations under `seed`.
Permutation permutation_of(uint64_t seed, uint64_t epoch, uint32_t stage, uint64_t count);
uint64_t permutation_at(const Permutation *permutation, uint64_t index); // index < count

// One stream of samples.
typedef struct {
    Sampling mode;
    uint8_t split;
    uint32_t sequence_tokens; // T
    uint64_t seed, tokens;    // N
    uint64_t blocks;          // n; samples of an epoch, all samples of sequential, offsets of crop
    uint64_t chunk_blocks;    // K
    uint64_t groups;          // G
} SampleOrder;

// Fails with 65 when the split has not one sample of T+1 ids.
int sample_order_open(SampleOrder *order, Sampling mode, uint8_t split, uint64_t seed, uint64_t tokens,
                      uint32_t sequence_tokens);
uint64_t sample_order_left(const SampleOrder *order,
                           uint64_t sample); // samples from `sample` on; UINT64_MAX unless sequential

// Consecutive samples that draw on the same few extents of the stream: what is worth holding decoded.
typedef struct {
    uint64_t first_sample, samples, epoch;
    unsigned extent_count;
    uint64_t extent[SAMPLE_ORDER_GROUP_CHUNKS]; // the token at which each begins
    uint64_t extent_tokens;                     // of each
    Permutation inside;
} ShuffleGroup;

void sample_order_group(const SampleOrder *order, uint64_t sample,
                        ShuffleGroup *group); // the group that holds `sample`
// The first token of a sample of the group, and in which extent it lies.
uint64_t sample_order_token(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample, unsigned *extent);
