// The sampling modes, as sampling.h specifies them. A mode is a row of SAMPLING_MODES, which names three functions.
#include "loader/protocol/sampling.h"
#include "common/err.h"
#include "common/rng.h"
#include "shardtool/format/split.h"
#include <stddef.h>

struct SamplingMode {
    unsigned number;
    bool ends, documents;
    uint64_t (*blocks)(const SampleOrder *order);
    void (*group)(const SampleOrder *order, uint64_t sample, ShuffleGroup *group);
    uint64_t (*token)(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample, unsigned *extent);
};

// --- permutations

static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

void permutation_init(Permutation *permutation, uint64_t seed, uint64_t epoch, uint32_t stage, uint64_t count) {
    *permutation = (Permutation){.count = count};
    // The bit length of count-1, not of count: with the latter a power of 4 plus 1 loses an element.
    unsigned bits = count > 1 ? 64 - (unsigned)__builtin_clzll(count - 1) : 0;
    permutation->half = (bits + 1) / 2;
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (uint32_t i = 0; i < SAMPLE_ORDER_ROUNDS / 4; i++) {
        uint32_t counter[4] = {i, stage, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
        philox4x32(counter, key, permutation->key + (size_t)4 * i);
    }
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

// --- crop: one group, the whole split

static uint64_t crop_blocks(const SampleOrder *order) { return order->tokens - order->sequence_tokens; }

static void crop_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group) {
    (void)sample;
    *group = (ShuffleGroup){.samples = UINT64_MAX, .extent_count = 1, .extent_tokens = order->tokens};
}

static uint64_t crop_token(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample, unsigned *extent) {
    (void)group, *extent = 0;
    return (uint64_t)((unsigned __int128)rng_u64(order->seed, order->split, sample) * order->blocks >> 64);
}

// --- epoch: groups of chunks, permuted

static uint64_t epoch_blocks(const SampleOrder *order) { return (order->tokens - 1) / order->sequence_tokens; }

// The group of `sample` as if its blocks were consecutive in the stream; returns the group's number within its epoch.
static uint64_t group_in_stream_order(const SampleOrder *order, uint64_t sample, uint64_t epoch, ShuffleGroup *group) {
    uint64_t group_blocks = SAMPLE_ORDER_GROUP_CHUNKS * order->chunk_blocks, begin = epoch * order->blocks;
    uint64_t number = (sample - begin) / group_blocks, first = number * group_blocks;
    *group = (ShuffleGroup){.first_sample = begin + first, .epoch = epoch, .extent_count = 1};
    group->samples = number < order->groups ? group_blocks : order->blocks - first;
    group->extent[0] = first * order->sequence_tokens;
    group->extent_tokens = group->samples * order->sequence_tokens + 1;
    return number;
}

static void epoch_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group) {
    uint64_t number = group_in_stream_order(order, sample, sample / order->blocks, group);
    permutation_init(&group->inside, order->seed, group->epoch, (uint32_t)(1 + number), group->samples);
    if (number == order->groups) return; // the blocks after the last whole group
    uint64_t chunk_tokens = order->chunk_blocks * order->sequence_tokens;
    Permutation chunks;
    permutation_init(&chunks, order->seed, group->epoch, 0, SAMPLE_ORDER_GROUP_CHUNKS * order->groups);
    group->extent_count = SAMPLE_ORDER_GROUP_CHUNKS;
    group->extent_tokens = chunk_tokens + 1;
    for (unsigned i = 0; i < SAMPLE_ORDER_GROUP_CHUNKS; i++)
        group->extent[i] = permutation_at(&chunks, number * SAMPLE_ORDER_GROUP_CHUNKS + i) * chunk_tokens;
}

static uint64_t epoch_token(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample, unsigned *extent) {
    uint64_t block = permutation_at(&group->inside, sample - group->first_sample);
    *extent = 0;
    if (group->extent_count > 1) {
        *extent = (unsigned)(block / order->chunk_blocks);
        block %= order->chunk_blocks;
    }
    return group->extent[*extent] + block * order->sequence_tokens;
}

// --- shifted, documents: an epoch whose blocks begin elsewhere

static uint64_t shifted_blocks(const SampleOrder *order) {
    uint64_t whole = order->tokens / order->sequence_tokens;
    return whole > 1 ? whole - 1 : 1;
}

static void shifted_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group) {
    uint64_t shifts = order->tokens - order->sequence_tokens;
    if (shifts > order->sequence_tokens) shifts = order->sequence_tokens;
    epoch_group(order, sample, group);
    Permutation permutation;
    permutation_init(&permutation, order->seed, group->epoch / shifts, UINT32_MAX, shifts);
    uint64_t shift = permutation_at(&permutation, group->epoch % shifts);
    for (unsigned i = 0; i < group->extent_count; i++) group->extent[i] += shift;
}

// --- sequential: the groups of an epoch, in the order of the stream

static void sequential_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group) {
    group_in_stream_order(order, sample, 0, group);
}

static uint64_t sequential_token(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample,
                                 unsigned *extent) {
    (void)group, *extent = 0;
    return sample * order->sequence_tokens;
}

// --- the table

static const SamplingMode modes[] = {
#define ROW(NAME, name, number, ends, documents, blocks, group, token, ...)                                            \
    {number, ends, documents, blocks, group, token},
    SAMPLING_MODES(ROW, )};

const SamplingMode *sampling_mode(unsigned number) {
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (modes[i].number == number) return &modes[i];
    return NULL;
}

bool sampling_ends(unsigned number) {
    const SamplingMode *mode = sampling_mode(number);
    return mode && mode->ends;
}

int sample_order_init(SampleOrder *order, Sampling mode, uint8_t split, uint64_t seed, uint64_t tokens,
                      uint32_t sequence_tokens) {
    const SamplingMode *found = sampling_mode(mode);
    *order = (SampleOrder){.mode = found,
                           .split = split,
                           .ends = found->ends,
                           .documents = found->documents,
                           .sequence_tokens = sequence_tokens,
                           .seed = seed,
                           .tokens = tokens,
                           .chunk_blocks = 1};
    if (tokens <= sequence_tokens)
        return fail(EX_DATA, "the %s split has %llu tokens, a sample of block size %u needs %llu", split_names[split],
                    (unsigned long long)tokens, sequence_tokens, sequence_tokens + 1ull);
    order->blocks = found->blocks(order);
    if (sequence_tokens < SAMPLE_ORDER_CHUNK_TOKENS) order->chunk_blocks = SAMPLE_ORDER_CHUNK_TOKENS / sequence_tokens;
    order->groups = order->blocks / (SAMPLE_ORDER_GROUP_CHUNKS * order->chunk_blocks);
    return 0;
}

uint64_t sample_order_left(const SampleOrder *order, uint64_t sample) {
    if (!order->ends) return UINT64_MAX;
    return sample < order->blocks ? order->blocks - sample : 0;
}

void sample_order_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group) {
    order->mode->group(order, sample, group);
}

uint64_t sample_order_token(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample, unsigned *extent) {
    return order->mode->token(order, group, sample, extent);
}

uint32_t sample_order_starts(const SampleOrder *order, uint64_t token) {
    if (!order->documents) return 1;
    uint64_t left = order->tokens - order->sequence_tokens - token;
    return left < order->sequence_tokens ? (uint32_t)left : order->sequence_tokens;
}
