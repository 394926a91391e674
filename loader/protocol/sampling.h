// Which tokens a sample has: the sampling modes as pure functions, specified so that a client in another language can
// compute them. A split is one stream of N tokens (its shards in manifest order); a sample is T+1 consecutive ids of
// it, given by the stream position of its first id. All arithmetic is on unsigned integers; / rounds down; ^ is
// exclusive or.
//
// c is the place of a dataset in its mixture (mixture.h), from 0 on, so that each has a random stream of its own. It is
// 0 for a dataset that is served alone, for all sources of a mixture joined, and in the modes that end (sequential,
// permuted, rest). A source of a mixture that is requested alone keeps its c: i - 1 for WireGet.source i.
//
//   crop        first = high 64 bits of the 128-bit product philox64(seed, split, c, sample) * (N - T). As the
//               random crops of nanoGPT, with replacement.
//   sequential  Sample i begins at token i*T; there are (N-1)/T samples.
//   permuted    The split is cut into n = (N-1)/T blocks; block b begins at token b*T. Sample i is block P(0, n)(i),
//               where P is of epoch 0; there are n samples. So the first samples are spread over the whole split.
//   epoch       Blocks as in permuted. Every epoch has each block once: sample g is a block of epoch e = g / n, at
//               position p = g mod n of that epoch. An epoch has G = (n - 1) / 64L + 1 groups, where L = max(1, 2^18 /
//               T): group j has the positions from j*n/G to (j+1)*n/G - 1 (products of 128 bits). The stream is cut
//               into 64G chunks of K = n / 64G consecutive blocks, chunk c from block c*K on; R = n - 64GK blocks
//               remain. With q = P(64 + j, size of the group)(p - j*n/G): for q < 64K, the sample is block q mod K of
//               chunk i*G + P(i, G)(j), where i = q / K. Else it is block 64GK + (j*n/G + q - 64K(j+1) + s) mod R, with
//               s = P(2^32 - 2, R)(e mod R), where P is of epoch e.
//               So each group has one chunk of each 64th of the split and its share of the remaining blocks: a sample
//               of the whole split in about 64 extents of at most 512 KiB each. A split of up to 2^24 tokens is one
//               group. The order needs no state and has no size limit.
//   shifted     As epoch, but the blocks of each epoch begin at other tokens. n = max(1, N/T - 1), and block b of
//               epoch e begins at token s + b*T. With m = min(T, N - T), s = P(2^32 - 1, m)(e mod m), where P is
//               of epoch e / m; so each of m consecutive epochs, from a multiple of m on, has another s.
//   documents   As shifted, but a row begins where a document does if its block has such a place: at the first
//               end-of-text id of the block that has T ids of the split after it. (This id is the first input of the
//               document that follows it.) Else the row begins where the block does, most often inside a document of
//               more than T ids.
//   rest        One sample, the last T+1 ids of the split. An evaluation that has read all samples of permuted or
//               sequential counts the last (N-1) mod T targets of it, so that each token of the split but the first
//               has been a target once.
//
// Numbers of the modes (SAMPLING_ALL_MODES, WireGet.mode): crop 0, sequential 3, epoch 6, shifted 7, documents 8,
// permuted 9, rest 10.
//
// P(stage, m) is a permutation of 0..m-1 that depends on seed, c and epoch. It is 8 rounds of a balanced Feistel
// network on 2h bits, applied repeatedly until the result is below m. 2h is the bit length of m-1, rounded up to even.
// P(stage, 1) maps 0 to 0. With left:right = x, h bits each, round r is
//   left, right = right, left ^ (mix(key[r] << 32 | right) >> (64 - h))
// mix(z): z ^= z >> 30, z *= 0xBF58476D1CE4E5B9, z ^= z >> 27, z *= 0x94D049BB133111EB, z ^= z >> 31 (splitmix64).
// key[0..3] and key[4..7] are the four output words of philox4x32-10 with the key {seed low, seed high}. The counter is
// {2c, stage, epoch low, epoch high} for the first four and {2c + 1, stage, epoch low, epoch high} for the others. Low
// and high are 32-bit halves.
// philox64(seed, split, c, sample) = word 0 | word 1 << 32 of philox4x32-10 with the key {seed low, seed high} and the
// counter {sample low, sample high, split, c}; split is 0 for train and 1 for val.
//
// Vectors (mode seed split c N T sample -> first token; documents: where position p has the end-of-text id if
// p mod 100 = 7):
//   crop 1337 0 0 301966 256 0 -> 282896
//   crop 1337 1 0 301966 256 12345678901 -> 1465
//   crop 18446744073709551615 0 0 9035582198 1024 1000000000 -> 3030167782
//   epoch 1337 0 0 301966 256 5 -> 269056
//   epoch 1337 0 0 9035582198 1024 1000000000 -> 2212874240
//   epoch 42 0 0 33554433 1000 33553 -> 5763000
//   epoch 42 0 0 33554433 1000 100679 -> 9349000
//   epoch 7 1 0 5000 100 123 -> 100
//   epoch 7 0 0 9223372036854775807 1024 9007199254740991 -> 6127863158467739648
//   permuted 1337 1 0 301966 256 0 -> 51200
//   permuted 1337 1 0 301966 256 1178 -> 214784
//   permuted 1337 1 0 9035582198 1024 1000000 -> 7642178560
//   shifted 1337 0 0 301966 256 5 -> 269085
//   shifted 1337 0 0 9035582198 1024 1000000000 -> 4564678681
//   shifted 42 0 0 1500 1000 123456 -> 430
//   shifted 7 0 0 28389 64 1351 -> 25438
//   documents 1337 0 0 301966 256 5 -> 269107
//   documents 1337 0 0 28389 64 1351 -> 25707
//   documents 1337 0 0 28389 64 1353 -> 25307
//   crop 1337 0 1 301966 256 0 -> 272698
//   epoch 1337 0 1 301966 256 5 -> 46336
//   epoch 1337 0 15 9035582198 1024 1000000000 -> 2990144512
//   shifted 1337 0 2 301966 256 5 -> 144521
//   documents 1337 0 3 301966 256 5 -> 49907
//   permuted 1337 1 3 301966 256 0 -> 51200
//   sequential 0 1 0 301966 256 0 -> 0
//   sequential 0 1 0 301966 256 1178 -> 301568
//   sequential 0 1 0 4434606 1024 4329 -> 4432896
//   rest 0 1 0 4434606 1024 0 -> 4433581
#pragma once

#include "loader/protocol/sampling_mode.h"
#include <stdbool.h>
#include <stdint.h>

enum { SAMPLE_ORDER_ROUNDS = 8, SAMPLE_ORDER_STRATA = 64, SAMPLE_ORDER_CHUNK_TOKENS = 1 << 18 };

typedef struct {
    uint64_t count; // m
    unsigned half;  // h
    uint32_t key[SAMPLE_ORDER_ROUNDS];
} Permutation;

// `count` > 0; `place` is c; `stage` selects one of the permutations of this seed, place and epoch.
void permutation_init(Permutation *permutation, uint64_t seed, uint32_t place, uint64_t epoch, uint32_t stage,
                      uint64_t count);
uint64_t permutation_at(const Permutation *permutation, uint64_t index); // index < count

typedef struct SamplingMode SamplingMode; // a row of SAMPLING_ALL_MODES

const SamplingMode *sampling_mode(unsigned number); // NULL when no mode has this number

// The samples of one split in one mode.
typedef struct {
    const SamplingMode *mode;
    uint8_t split;
    bool ends, documents;     // columns of SAMPLING_ALL_MODES
    uint32_t place;           // c
    uint32_t sequence_tokens; // T
    uint64_t seed, tokens;    // tokens: N
    uint64_t blocks;          // n: blocks of an epoch, samples of sequential, possible positions of crop
    uint64_t groups;          // G
    uint64_t chunk_blocks;    // K
} SampleOrder;

// `place`: of the dataset in its mixture; it has no effect in a mode that ends. Fails with 65 when the split is too
// short for one sample of T+1 ids.
int sample_order_init(SampleOrder *order, Sampling mode, uint8_t split, uint64_t seed, uint32_t place, uint64_t tokens,
                      uint32_t sequence_tokens);
// The number of samples from `sample` on; UINT64_MAX when the mode has no end.
uint64_t sample_order_left(const SampleOrder *order, uint64_t sample);

// A contiguous range of the stream.
typedef struct {
    uint64_t first_token, tokens;
} SampleExtent;

// Consecutive samples that come from the same few extents of the stream, which are worth keeping decoded.
typedef struct {
    uint64_t first_sample, samples, epoch; // samples: UINT64_MAX when one group holds every sample
    uint64_t shift;                        // the token at which block 0 begins
    uint64_t remaining;                    // the group's first block of the R remaining ones, counted from block 64GK
    unsigned extent_count;
    SampleExtent extents[SAMPLE_ORDER_STRATA + 2]; // chunks, then the remaining blocks, which may wrap around
    Permutation inside;
} ShuffleGroup;

void sample_order_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group); // the group of `sample`
// The first token of a sample of the group.
uint64_t sample_order_token(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample);
// The ids from that token on, at least 1, of which the first end-of-text id begins the row; without one, the token
// does.
uint32_t sample_order_starts(const SampleOrder *order, uint64_t token);
