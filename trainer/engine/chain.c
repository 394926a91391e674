// The hash chain of a run.
#include "trainer/engine/chain.h"
#include "common/hash.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void begin_hash(Sha256 *sha, const char *name) {
    char head[64];
    sha256_open(sha);
    sha256_add(sha, head, (size_t)snprintf(head, sizeof head, "millrace chain %s 1\n", name));
}

static void add_u64(Sha256 *sha, uint64_t value) { sha256_add(sha, &value, sizeof value); }
static void add_u32(Sha256 *sha, uint32_t value) { sha256_add(sha, &value, sizeof value); }

static void add_real(Sha256 *sha, double value) {
    uint64_t bits = 0x7ff8000000000000;
    if (isfinite(value)) memcpy(&bits, &value, sizeof bits);
    add_u64(sha, bits);
}

void chain_open(Chain *chain, const Network *network, const Config *config) {
    const unsigned world = network->collective->world;
    *chain = (Chain){.world = world, .id_bytes = shape_id_bytes(&network->model->shape)};
    chain->most = ((size_t)config->gradient_accumulation_steps + world - 1) / world;
    chain->batches = allocate_zeroed(world * chain->most, sizeof *chain->batches);
}

void chain_close(Chain *chain) {
    free(chain->batches);
    *chain = (Chain){0};
}

// ---- a step

static ChainBatch *own_batches(const Chain *chain, const Network *network) {
    return chain->batches + network->collective->rank * chain->most;
}

void chain_begin(Chain *chain) { chain->count = 0; }

void chain_add_batch(Chain *chain, const Network *network, const FeedBatch *batch) {
    Sha256 sha;
    assert(chain->count < chain->most);
    ChainBatch *own = own_batches(chain, network) + chain->count++;
    own->first_sample = batch->first_sample;
    begin_hash(&sha, "batch");
    add_u64(&sha, batch->first_sample), add_u32(&sha, batch->rows), add_u32(&sha, chain->id_bytes);
    sha256_add(&sha, batch->ids, batch->rows * ((size_t)network->model->shape.block + 1) * chain->id_bytes);
    sha256_close(&sha, own->hash);
}

static int by_sample(const void *a, const void *b) {
    const uint64_t x = ((const ChainBatch *)a)->first_sample, y = ((const ChainBatch *)b)->first_sample;
    return (x > y) - (x < y);
}

int chain_share(Chain *chain, const Network *network) {
    const size_t share = chain->most * sizeof *chain->batches;
    for (size_t i = chain->count; i < chain->most; i++) own_batches(chain, network)[i].first_sample = UINT64_MAX;
    if (chain->world == 1) return 0;
    return collective_all_gather(network->collective, chain->batches, chain->world * share, share);
}

// The hash of the step's data, from the batches of all processes.
static void data_hash(Chain *chain, uint8_t hash[32]) {
    const size_t count = chain->world * chain->most;
    qsort(chain->batches, count, sizeof *chain->batches, by_sample);
    Sha256 sha;
    begin_hash(&sha, "data");
    for (size_t i = 0; i < count && chain->batches[i].first_sample != UINT64_MAX; i++)
        sha256_add(&sha, chain->batches[i].hash, sizeof chain->batches[i].hash);
    sha256_close(&sha, hash);
}

static void weights_hash(const Network *network, uint8_t hash[32]) {
    const size_t most = network->plan->staging / sizeof(float);
    Sha256 sha;
    begin_hash(&sha, "weights");
    for (int i = 0; i < network->model->count; i++) {
        const Tensor *tensor = &network->model->tensors[i];
        const size_t total = (size_t)tensor->file_rows * (size_t)tensor->cols;
        for (size_t first = 0; first < total; first += most) {
            const size_t count = total - first < most ? total - first : most;
            network_read(network, network->plan->params, par_type(network->ops), tensor->offset + first, count,
                         network->staging);
            sha256_add(&sha, network->staging, count * sizeof(float));
        }
    }
    sha256_close(&sha, hash);
}

static bool weights_due(const Config *config, uint64_t step) {
    const uint64_t between = (uint64_t)config->eval_interval;
    return between && step % between == 0;
}

static void first_link(const Config *config, RunState *state) {
    Buffer text = {0};
    Sha256 sha;
    run_state_print_fixed(config, &text);
    begin_hash(&sha, "run");
    sha256_add(&sha, text.data, text.size);
    sha256_add(&sha, state->vocab_fp, sizeof state->vocab_fp);
    sha256_close(&sha, state->chain);
    buffer_close(&text);
}

void chain_end(Chain *chain, const Network *network, const Config *config, const uint8_t fingerprint[32],
               const StepResult *result, RunState *state) {
    static const uint8_t none[sizeof state->chain];
    uint8_t data[32], weights[32] = {0};
    Sha256 sha;
    data_hash(chain, data);
    if (!memcmp(state->chain, none, sizeof none)) first_link(config, state);
    if (weights_due(config, state->step)) weights_hash(network, weights);
    begin_hash(&sha, "step");
    sha256_add(&sha, state->chain, sizeof state->chain);
    add_u64(&sha, state->step);
    if (state->chain_rule < CHAIN_RULE) fingerprint = state->datasets[state->dataset].fingerprint;
    sha256_add(&sha, fingerprint, sizeof state->datasets->fingerprint);
    sha256_add(&sha, data, sizeof data);
    add_real(&sha, result->loss), add_real(&sha, (double)result->norm);
    sha256_add(&sha, weights, sizeof weights);
    sha256_close(&sha, state->chain);
}
