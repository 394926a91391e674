// The law a second time. See law.h.
#include "tests/simulate/law.h"
#include "tests/unit/loader/fixture_loader.h"
#include <openssl/sha.h>

typedef __uint128_t u128;

enum { CROP = 0, SEQUENTIAL = 3, EPOCH = 6, SHIFTED = 7, DOCUMENTS = 8, PERMUTED = 9, REST = 10, SUM = 65536 };

// --- Philox4x32-10 (Salmon et al., SC 2011, figure 4)

static void philox(const uint32_t counter[4], uint64_t key, uint32_t out[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    memcpy(out, counter, 4 * sizeof *out);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)out[0] * 0xD2511F53u, b = (uint64_t)out[2] * 0xCD9E8D57u;
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ out[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ out[3] ^ k1,
                                  (uint32_t)a};
        memcpy(out, next, sizeof next);
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
}

static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

// P(stage, m)(index) of a seed, the place of a source and an epoch
static uint64_t P(uint64_t seed, uint32_t c, uint64_t epoch, uint32_t stage, uint64_t m, uint64_t index) {
    uint32_t key[8];
    unsigned bits = 0;
    if (m == 1) return 0;
    for (uint32_t i = 0; i < 2; i++)
        philox((uint32_t[]){2 * c + i, stage, (uint32_t)epoch, (uint32_t)(epoch >> 32)}, seed, key + 4 * i);
    while (bits < 64 && (m - 1) >> bits) bits++;
    const unsigned h = (bits + 1) / 2;
    const uint64_t mask = ((uint64_t)1 << h) - 1;
    do {
        uint64_t left = index >> h, right = index & mask;
        for (int r = 0; r < 8; r++) {
            const uint64_t next = left ^ mix((uint64_t)key[r] << 32 | right) >> (64 - h);
            left = right, right = next;
        }
        index = left << h | right;
    } while (index >= m);
    return index;
}

// --- one split of one source

static uint64_t blocks(unsigned mode, uint64_t N, uint64_t T) {
    if (mode == SHIFTED || mode == DOCUMENTS) return N / T > 2 ? N / T - 1 : 1;
    return (N - 1) / T;
}

static uint64_t epoch_block(uint64_t seed, uint32_t c, uint64_t n, uint64_t T, uint64_t g) {
    const uint64_t e = g / n, p = g % n, L = ((uint64_t)1 << 18) / T ? ((uint64_t)1 << 18) / T : 1;
    const uint64_t G = (n - 1) / (64 * L) + 1, K = n / (64 * G), R = n - 64 * G * K;
    uint64_t j = 0;
    while (j + 1 < G && (u128)(j + 1) * n / G <= p) j++;
    const uint64_t begin = (uint64_t)((u128)j * n / G), end = (uint64_t)((u128)(j + 1) * n / G);
    const uint64_t q = P(seed, c, e, (uint32_t)(64 + j), end - begin, p - begin);
    if (q < 64 * K) {
        const uint64_t i = q / K, chunk = i * G + P(seed, c, e, (uint32_t)i, G, j);
        return chunk * K + q % K;
    }
    const uint64_t s = P(seed, c, e, 0xFFFFFFFEu, R, e % R);
    return 64 * G * K + (begin + q - 64 * K * (j + 1) + s) % R;
}

static uint64_t first_token(unsigned mode, uint64_t seed, uint32_t c, unsigned split, uint64_t N, uint64_t T,
                            uint64_t sample) {
    const uint64_t n = blocks(mode, N, T);
    if (mode == CROP) {
        uint32_t out[4];
        philox((uint32_t[]){(uint32_t)sample, (uint32_t)(sample >> 32), split, c}, seed, out);
        return (uint64_t)((u128)((uint64_t)out[1] << 32 | out[0]) * (N - T) >> 64);
    }
    if (mode == SEQUENTIAL) return sample * T;
    if (mode == REST) return N - 1 - T;
    if (mode == PERMUTED) return P(seed, 0, 0, 0, n, sample) * T;
    const uint64_t block = epoch_block(seed, c, n, T, sample);
    if (mode == EPOCH) return block * T;
    const uint64_t e = sample / n, m = T < N - T ? T : N - T;
    return P(seed, c, e / m, 0xFFFFFFFFu, m, e % m) + block * T;
}

// --- several sources

static bool ends(unsigned mode) { return mode == SEQUENTIAL || mode == PERMUTED || mode == REST; }

void law_scale(const uint32_t *given, unsigned count, uint32_t *weights) {
    uint64_t total = 0, left[LAW_SOURCES], sum = 0;
    for (unsigned i = 0; i < count; i++) total += given[i];
    for (unsigned i = 0; i < count; i++) {
        weights[i] = (uint32_t)((uint64_t)SUM * given[i] / total);
        left[i] = (uint64_t)SUM * given[i] % total, sum += weights[i];
    }
    for (; sum < SUM; sum++) {
        unsigned most = 0;
        for (unsigned i = 1; i < count; i++)
            if (left[i] > left[most]) most = i;
        weights[most]++, left[most] = 0;
    }
}

static void sample_in(const uint32_t *weights, unsigned count, uint64_t p, unsigned *source, uint64_t *r) {
    uint64_t V = SUM;
    for (*source = 0; *source < count; ++*source) {
        const uint64_t w = weights[*source];
        *r = (uint64_t)((u128)p * w / V);
        if ((u128)(p + 1) * w / V > *r) return;
        p -= *r, V -= w;
    }
}

void law_prepare(LawDataset *dataset) {
    for (unsigned k = 0; k + 1 < dataset->entry_count; k++) {
        const uint32_t *weights = dataset->entries[k].weights;
        const uint64_t count = dataset->entries[k + 1].from - dataset->entries[k].from;
        uint64_t *base = dataset->entries[k + 1].base;
        for (unsigned i = 0; i < dataset->source_count; i++)
            base[i] = dataset->entries[k].base[i] + count / SUM * weights[i];
        for (uint64_t p = 0; p < count % SUM; p++) { // one sample at a time, as the law counts them
            unsigned source;
            uint64_t r;
            sample_in(weights, dataset->source_count, p, &source, &r);
            base[source]++;
        }
    }
}

static void mixture_sample(const LawDataset *dataset, uint64_t sample, unsigned *source, uint64_t *number) {
    unsigned entry = dataset->entry_count - 1;
    while (dataset->entries[entry].from > sample) entry--;
    sample_in(dataset->entries[entry].weights, dataset->source_count, sample - dataset->entries[entry].from, source,
              number);
    *number += dataset->entries[entry].base[*source];
}

// The stream that a sample reads: its sources, from `first` on, and its number there.
typedef struct {
    const LawDataset *dataset;
    unsigned first, count, split;
    uint64_t tokens, sample;
} Stream;

static Stream stream_of(const LawDataset *dataset, const LawRequest *request, uint64_t sample) {
    Stream stream = {dataset, 0, dataset->source_count, request->split, 0, sample};
    if (request->source)
        stream.first = request->source - 1, stream.count = 1;
    else if (dataset->source_count > 1 && request->split == 0 && !ends(request->mode))
        mixture_sample(dataset, sample, &stream.first, &stream.sample), stream.count = 1;
    for (unsigned i = 0; i < stream.count; i++)
        stream.tokens += dataset->sources[stream.first + i]->tokens[request->split];
    return stream;
}

static uint16_t id_of(const Stream *stream, uint64_t position) {
    unsigned i = stream->first;
    while (position >= stream->dataset->sources[i]->tokens[stream->split])
        position -= stream->dataset->sources[i++]->tokens[stream->split];
    return test_id(stream->dataset->sources[i]->salt, (int)stream->split, position);
}

uint64_t law_samples(const LawDataset *dataset, const LawRequest *request) {
    if (!ends(request->mode)) return UINT64_MAX;
    if (request->mode == REST) return 1;
    return (stream_of(dataset, request, 0).tokens - 1) / request->sequence_tokens;
}

uint64_t law_epoch(const LawDataset *dataset, const LawRequest *request, uint64_t sample) {
    if (ends(request->mode) || request->mode == CROP) return 0;
    const Stream stream = stream_of(dataset, request, sample);
    return stream.sample / blocks(request->mode, stream.tokens, request->sequence_tokens);
}

void law_row(const LawDataset *dataset, const LawRequest *request, uint64_t sample, uint16_t *ids) {
    const Stream stream = stream_of(dataset, request, sample);
    const uint64_t T = request->sequence_tokens, N = stream.tokens;
    const uint32_t place = ends(request->mode) ? 0 : stream.first;
    uint64_t first = first_token(request->mode, request->seed, place, request->split, N, T, stream.sample);
    for (uint64_t at = first; request->mode == DOCUMENTS && at < first + T && at + T < N; at++)
        if (id_of(&stream, at) == TEST_EOT) {
            first = at;
            break;
        }
    for (uint64_t i = 0; i <= T; i++) ids[i] = id_of(&stream, first + i);
}

// --- fingerprints

void law_fingerprint(const LawDataset *dataset, unsigned entries, uint8_t fingerprint[32]) {
    char text[2000], *at = text;
    memcpy(fingerprint, dataset->sources[0]->fingerprint, 32);
    if (dataset->source_count == 1) return;
    at += sprintf(at, "mixture of streams\n");
    for (unsigned i = 0; i < dataset->source_count; i++) {
        for (int k = 0; k < 32; k++) at += sprintf(at, "%02x", dataset->sources[i]->fingerprint[k]);
        at += sprintf(at, " %u\n", dataset->entries[0].weights[i]);
    }
    SHA256((const uint8_t *)text, (size_t)(at - text), fingerprint);
    for (unsigned k = 1; k < entries; k++) {
        at = text;
        for (int i = 0; i < 32; i++) at += sprintf(at, "%02x", fingerprint[i]);
        at += sprintf(at, " %llu", (unsigned long long)dataset->entries[k].from);
        for (unsigned i = 0; i < dataset->source_count; i++) at += sprintf(at, " %u", dataset->entries[k].weights[i]);
        *at++ = '\n';
        SHA256((const uint8_t *)text, (size_t)(at - text), fingerprint);
    }
}

uint64_t law_same_samples(const LawDataset *before, const LawDataset *after) {
    uint8_t old[32], new[32];
    law_fingerprint(before, before->entry_count, old);
    for (unsigned k = 1; k <= after->entry_count; k++) {
        law_fingerprint(after, k, new);
        if (!memcmp(old, new, 32)) return k == after->entry_count ? UINT64_MAX : after->entries[k].from;
    }
    return 0;
}
