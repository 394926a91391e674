// The sampling modes, as sampling.h specifies them. A mode is a row of SAMPLING_ALL_MODES, which names three functions.
#include "loader/protocol/sampling.h"
#include "common/err.h"
#include "common/rng.h"
#include "dataset/split.h"
#include <stddef.h>

struct SamplingMode {
    unsigned number;
    bool ends, documents;
    uint64_t (*blocks)(const SampleOrder *order);
    void (*group)(const SampleOrder *order, uint64_t sample, ShuffleGroup *group);
    uint64_t (*token)(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample);
};

// --- permutations

static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

void permutation_init(Permutation *permutation, uint64_t seed, uint32_t place, uint64_t epoch, uint32_t stage,
                      uint64_t count) {
    *permutation = (Permutation){.count = count};
    // The bit length of count-1, not of count: with the latter a power of 4 plus 1 loses an element.
    unsigned bits = count > 1 ? 64 - (unsigned)__builtin_clzll(count - 1) : 0;
    permutation->half = (bits + 1) / 2;
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (uint32_t i = 0; i < SAMPLE_ORDER_ROUNDS / 4; i++) {
        uint32_t counter[4] = {2 * place + i, stage, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
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

static void whole_split(const SampleOrder *order, ShuffleGroup *group) {
    *group = (ShuffleGroup){.samples = UINT64_MAX, .extent_count = 1, .extents[0].tokens = order->tokens};
}

static void crop_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group) {
    (void)sample;
    whole_split(order, group);
}

static uint64_t crop_token(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample) {
    (void)group;
    const uint64_t stream = (uint64_t)order->place << 32 | order->split;
    return (uint64_t)((unsigned __int128)rng_u64(order->seed, stream, sample) * order->blocks >> 64);
}

// --- permuted: one group, the whole split

static uint64_t epoch_blocks(const SampleOrder *order) { return (order->tokens - 1) / order->sequence_tokens; }

static void permuted_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group) {
    (void)sample;
    whole_split(order, group);
    permutation_init(&group->inside, order->seed, order->place, 0, 0, order->blocks);
}

static uint64_t permuted_token(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample) {
    return permutation_at(&group->inside, sample) * order->sequence_tokens;
}

// --- epoch: groups of a chunk from each stratum

// The position at which a group begins in its epoch.
static uint64_t group_begin(const SampleOrder *order, uint64_t number) {
    return (uint64_t)((unsigned __int128)number * order->blocks / order->groups);
}

static void add_extent(const SampleOrder *order, ShuffleGroup *group, uint64_t block, uint64_t count) {
    uint64_t T = order->sequence_tokens;
    if (count) group->extents[group->extent_count++] = (SampleExtent){group->shift + block * T, count * T + 1};
}

static void group_of_epoch(const SampleOrder *order, uint64_t sample, uint64_t shift, ShuffleGroup *group) {
    uint64_t epoch = sample / order->blocks, position = sample % order->blocks;
    uint64_t number = (uint64_t)((((unsigned __int128)position + 1) * order->groups - 1) / order->blocks);
    uint64_t begin = group_begin(order, number), in_chunks = SAMPLE_ORDER_STRATA * order->chunk_blocks;
    *group = (ShuffleGroup){.first_sample = epoch * order->blocks + begin, .epoch = epoch, .shift = shift};
    group->samples = group_begin(order, number + 1) - begin;
    permutation_init(&group->inside, order->seed, order->place, epoch, (uint32_t)(SAMPLE_ORDER_STRATA + number),
                     group->samples);
    Permutation permutation;
    for (uint32_t i = 0; i < SAMPLE_ORDER_STRATA; i++) {
        permutation_init(&permutation, order->seed, order->place, epoch, i, order->groups);
        uint64_t chunk = i * order->groups + permutation_at(&permutation, number);
        add_extent(order, group, chunk * order->chunk_blocks, order->chunk_blocks);
    }
    uint64_t first = in_chunks * order->groups, remain = order->blocks - first, own = group->samples - in_chunks;
    if (!own) return;
    permutation_init(&permutation, order->seed, order->place, epoch, UINT32_MAX - 1, remain);
    group->remaining = (begin - number * in_chunks + permutation_at(&permutation, epoch % remain)) % remain;
    uint64_t to_end = remain - group->remaining;
    add_extent(order, group, first + group->remaining, own < to_end ? own : to_end);
    add_extent(order, group, first, own < to_end ? 0 : own - to_end);
}

static void epoch_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group) {
    group_of_epoch(order, sample, 0, group);
}

static uint64_t epoch_token(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample) {
    uint64_t at = permutation_at(&group->inside, sample - group->first_sample), T = order->sequence_tokens;
    uint64_t in_chunks = SAMPLE_ORDER_STRATA * order->chunk_blocks, first = in_chunks * order->groups;
    if (at < in_chunks) return group->extents[at / order->chunk_blocks].first_token + at % order->chunk_blocks * T;
    return group->shift + (first + (group->remaining + at - in_chunks) % (order->blocks - first)) * T;
}

// --- shifted, documents: an epoch whose blocks begin elsewhere

static uint64_t shifted_blocks(const SampleOrder *order) {
    uint64_t whole = order->tokens / order->sequence_tokens;
    return whole > 1 ? whole - 1 : 1;
}

static void shifted_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group) {
    uint64_t epoch = sample / order->blocks, shifts = order->tokens - order->sequence_tokens;
    if (shifts > order->sequence_tokens) shifts = order->sequence_tokens;
    Permutation permutation;
    permutation_init(&permutation, order->seed, order->place, epoch / shifts, UINT32_MAX, shifts);
    group_of_epoch(order, sample, permutation_at(&permutation, epoch % shifts), group);
}

// --- sequential: groups of as many samples, in the order of the stream

static void sequential_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group) {
    uint64_t number = (uint64_t)((((unsigned __int128)sample + 1) * order->groups - 1) / order->blocks);
    *group = (ShuffleGroup){.first_sample = group_begin(order, number)};
    group->samples = group_begin(order, number + 1) - group->first_sample;
    add_extent(order, group, group->first_sample, group->samples);
}

static uint64_t sequential_token(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample) {
    (void)group;
    return sample * order->sequence_tokens;
}

// --- rest: the end of the split

static uint64_t rest_blocks(const SampleOrder *order) {
    (void)order;
    return 1;
}

static uint64_t rest_token(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample) {
    (void)group, (void)sample;
    return order->tokens - 1 - order->sequence_tokens;
}

static void rest_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group) {
    const uint64_t first = rest_token(order, NULL, sample);
    *group = (ShuffleGroup){.samples = 1, .extent_count = 1, .extents[0] = {first, order->tokens - first}};
}

// --- the table

static const SamplingMode modes[] = {
#define ROW(NAME, name, number, ends, documents, blocks, group, token, ...)                                            \
    {number, ends, documents, blocks, group, token},
    SAMPLING_ALL_MODES(ROW, )};

const SamplingMode *sampling_mode(unsigned number) {
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (modes[i].number == number) return &modes[i];
    return NULL;
}

bool sampling_ends(unsigned number) {
    const SamplingMode *mode = sampling_mode(number);
    return mode && mode->ends;
}

int sample_order_init(SampleOrder *order, Sampling mode, uint8_t split, uint64_t seed, uint32_t place, uint64_t tokens,
                      uint32_t sequence_tokens) {
    const SamplingMode *found = sampling_mode(mode);
    *order = (SampleOrder){.mode = found,
                           .split = split,
                           .ends = found->ends,
                           .documents = found->documents,
                           .place = found->ends ? 0 : place,
                           .sequence_tokens = sequence_tokens,
                           .seed = seed,
                           .tokens = tokens};
    if (tokens <= sequence_tokens)
        return fail(EX_DATA, "the %s split has %llu tokens, a sample of block size %u needs %llu", split_names[split],
                    (unsigned long long)tokens, sequence_tokens, sequence_tokens + 1ull);
    order->blocks = found->blocks(order);
    uint64_t chunk_most = sequence_tokens < SAMPLE_ORDER_CHUNK_TOKENS ? SAMPLE_ORDER_CHUNK_TOKENS / sequence_tokens : 1;
    uint64_t group_most = SAMPLE_ORDER_STRATA * chunk_most;
    order->groups = (order->blocks - 1) / group_most + 1;
    order->chunk_blocks = order->blocks / (SAMPLE_ORDER_STRATA * order->groups);
    return 0;
}

uint64_t sample_order_left(const SampleOrder *order, uint64_t sample) {
    if (!order->ends) return UINT64_MAX;
    return sample < order->blocks ? order->blocks - sample : 0;
}

void sample_order_group(const SampleOrder *order, uint64_t sample, ShuffleGroup *group) {
    order->mode->group(order, sample, group);
}

uint64_t sample_order_token(const SampleOrder *order, const ShuffleGroup *group, uint64_t sample) {
    return order->mode->token(order, group, sample);
}

uint32_t sample_order_starts(const SampleOrder *order, uint64_t token) {
    if (!order->documents) return 1;
    uint64_t left = order->tokens - order->sequence_tokens - token;
    return left < order->sequence_tokens ? (uint32_t)left : order->sequence_tokens;
}
