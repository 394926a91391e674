// The law a second time. See law.h.
#include "tests/simulate/law.h"
#include "common/err.h"
#include "loader/protocol/sampling.h"
#include "tests/simulate/sim.h"
#include "tests/unit/loader/fixture_loader.h"
#include <openssl/sha.h>

typedef __uint128_t u128;

enum { SEQUENTIAL = 3, DOCUMENTS = 8, PERMUTED = 9, REST = 10, SUM = 65536 };

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

// Of a sample of the stream: the group that holds it, and its first token in the order of its split.
static uint64_t first_token(const Stream *stream, const LawRequest *request, ShuffleGroup *group) {
    SampleOrder order;
    const uint32_t place = ends(request->mode) ? 0 : stream->first;
    if (sample_order_init(&order, (Sampling)request->mode, (uint8_t)request->split, request->seed, place,
                          stream->tokens, request->sequence_tokens) < 0)
        sim_fail("%s", err_text());
    sample_order_group(&order, stream->sample, group);
    return sample_order_token(&order, group, stream->sample);
}

uint64_t law_epoch(const LawDataset *dataset, const LawRequest *request, uint64_t sample) {
    const Stream stream = stream_of(dataset, request, sample);
    ShuffleGroup group;
    first_token(&stream, request, &group);
    return group.epoch;
}

void law_row(const LawDataset *dataset, const LawRequest *request, uint64_t sample, uint16_t *ids) {
    const Stream stream = stream_of(dataset, request, sample);
    const uint64_t T = request->sequence_tokens, N = stream.tokens;
    ShuffleGroup group;
    uint64_t first = first_token(&stream, request, &group);
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
