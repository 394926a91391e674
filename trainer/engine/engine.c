// Opening and closing the engine of a run.
#include "trainer/engine/engine.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/machine/pool.h"
#include "common/machine/stop.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/engine/engine_data.h"
#include "trainer/model/sample.h"
#include "trainer/plan/plan_check.h"
#include "trainer/plan/plan_fit.h"
#include "trainer/records/evaluation.h"
#include "trainer/setup/data_check.h"
#include <stdio.h>
#include <string.h>

void engine_record(Engine *engine, Buffer *members) {
    if (engine->record) engine->record(engine->record_self, (Bytes){members->data, members->size});
    buffer_close(members);
}

// ---- before memory is allocated

// Starts as many threads as OpenMP and ZeroMQ will, for a moment: they end the program when a thread cannot start.
static int check_threads(const Config *config) {
    enum { OTHERS = 3 }; // two threads of ZeroMQ, one that writes checkpoints
    char job;
    Pool *pool = pool_open((config->threads ? (unsigned)config->threads : pool_cores()) + OTHERS, NULL, &job, 1, 1);
    if (!pool) return -1;
    pool_close(pool);
    return 0;
}

static int open_backend(Engine *engine, const Config *given, bool fresh) {
    Config *config = &engine->config;
    Collective *ranks = &engine->collective;
    *config = *given;
    config->world = ranks->world, config->local_world = ranks->local_world;
    config->local_first = ranks->local_first;
    if (ranks_share_processors(ranks, config) < 0) return -1;
    if (!fresh && checkpoint_resolve_auto(config->out_dir, config) < 0) return -1;
    engine->backend = backend_for_rank(config, ranks->local, engine->backend_text);
    if (!engine->backend && given->dtype != config->dtype)
        return fail_in("the run in '%s' has dtype %s", config->out_dir, dtype_name(config->dtype));
    if (!engine->backend) return -1;
    return collective_load(ranks, engine->backend->collective);
}

static int open_plan(Engine *engine) {
    Config *config = &engine->config;
    config->dtype = engine->backend->act_type;
    if (memory_plan_of_run(&engine->plan, &engine->model, config, engine->backend, true) < 0) return -1;
    const MemoryLimits limits = memory_limits(config, engine->backend, true);
    engine->host_left = plan_host_left(&engine->plan, engine->backend, &limits);
    return check_threads(config) < 0 ? -1 : stop_check("the plan was made");
}

static void print_batch(const Engine *engine, const FeedBatch *batch) {
    const size_t row_bytes = ((size_t)engine->config.block_size + 1) * shape_id_bytes(&engine->model.shape);
    uint8_t hash[32];
    char hex[65];
    sha256(batch->ids, batch->rows * row_bytes, hash);
    hex_encode(hex, hash, 32);
    log_line("step %llu: samples %llu to %llu, sha256 %.16s", (unsigned long long)engine->state.step,
             (unsigned long long)batch->first_sample, (unsigned long long)(batch->first_sample + batch->rows - 1), hex);
}

static void receive_batch(void *self, const FeedBatch *batch) {
    Engine *engine = self;
    chain_add_batch(&engine->chain, &engine->network, batch);
    if (engine->prints_batches) print_batch(engine, batch);
}

int engine_open(Engine *engine, const Config *config, bool fresh, bool print_ranks) {
    Collective *ranks = &engine->collective;
    engine->stream.received = receive_batch, engine->stream.received_self = engine;
    engine->prints_batches = print_ranks;
    run_state_init(&engine->state);
    if (ranks_open(ranks, config, &engine->loader_process, print_ranks) < 0 ||
        ranks_agree(ranks, open_backend(engine, config, fresh)) < 0 || collective_open_device(ranks) < 0)
        return -1;
    return ranks_agree(ranks, open_plan(engine));
}

// Compares the directory of the initial weights, if one is given, with the run's in out_dir.
static int check_init_from(const Engine *engine) {
    const char *given = engine->config.init_from, *first = engine->state.init_from;
    if (!strcmp(given, "scratch") || !strcmp(given, "resume")) return 0;
    if (!strncmp(given, first, sizeof engine->state.init_from - 1)) return 0;
    return fail(EX_USAGE,
                "init_from is '%s', and the run in '%s', at step %llu, began from '%s': leave init_from out to resume "
                "it (another out_dir, or train --fresh, starts a new run)",
                given, engine->config.out_dir, (unsigned long long)engine->state.step, *first ? first : "scratch");
}

int engine_take_state(Engine *engine, bool found) {
    const Config *config = &engine->config;
    RunState *state = &engine->state;
    if (!found) *engine->begins_with = 0;
    if (!found && !strcmp(config->init_from, "resume"))
        return fail(EX_NOINPUT, "init_from is 'resume', and there is no checkpoint in '%s'", config->out_dir);
    if (!state->tokens) // version 0.1.0 did not count them
        state->tokens = state->step * engine_sequences(engine) * (uint64_t)config->block_size;
    loss_scaler_init(&state->scaler, dtype_is_narrow(engine->backend->act_type));
    if (found) log_line("resuming at step %llu from '%s'", (unsigned long long)state->step, engine->begins_with);
    if (found && state->sampling != (uint64_t)config->sampling && config->sampling >= SAMPLING_EPOCH)
        log_warn(
            "this run began with another order of samples, which was less mixed: of the current epoch, some samples "
            "come a second time and some not at all");
    state->sampling = config->sampling; // lower numbers than SAMPLING_EPOCH have kept their order
    if (found) return check_init_from(engine);
    if (strcmp(config->init_from, "scratch"))
        snprintf(state->init_from, sizeof state->init_from, "%s", config->init_from);
    return 0;
}

// ---- data and memory

// A part of the memory that the plan and the copy for checkpoints leave. 0: the loader's default.
static uint64_t loader_cache_bytes(const Engine *engine) {
    const uint64_t part = 4, left = engine->host_left;
    const uint64_t copy =
        engine_divided(engine) ? 0 : engine->plan.copy_bytes + engine->plan.staging; // `left` is without a required one
    if (left == UINT64_MAX) return 0;
    const uint64_t bytes = (left > copy ? left - copy : left) / part;
    return bytes > LOADER_CACHE_LEAST ? bytes : LOADER_CACHE_LEAST;
}

static int start_loader(Engine *engine) {
    FeedDataset dataset;
    const int found = data_check_find(&engine->config, &dataset);
    if (found < 0 || (found && data_check(&engine->config, &dataset) < 0)) return -1;
    return loader_process_open(&engine->loader_process, &engine->config, loader_cache_bytes(engine));
}

// One loader serves all processes of a machine.
static int open_loader(Engine *engine) {
    Collective *ranks = &engine->collective;
    const bool starts = ranks->rank == ranks->local_first;
    if (ranks_agree(ranks, starts ? start_loader(engine) : 0) < 0) return -1;
    return ranks_share_loader(ranks, &engine->config, &engine->loader_process);
}

static int share_state(Engine *engine) {
    Collective *ranks = &engine->collective;
    if (collective_broadcast(ranks, &engine->state, sizeof engine->state) < 0) return -1;
    return collective_broadcast(ranks, engine->begins_with, sizeof engine->begins_with);
}

static int open_network(Engine *engine) {
    if (engine_data_open(engine) < 0 ||
        network_open(&engine->network, engine->backend, &engine->model, &engine->plan) < 0)
        return -1;
    engine->network.collective = &engine->collective;
    chain_open(&engine->chain, &engine->network, &engine->config);
    if (!ranks_first(&engine->collective) || !engine_divided(engine)) return 0;
    host_copy_open(&engine->copy, &engine->network, &engine->config, engine->host_left);
    char bytes[16];
    if (engine->copy.view.arena) return 0;
    return fail(EX_MEMORY,
                "cannot allocate %s of host memory, which rank 0 needs for checkpoints of what the processes divide",
                human_bytes(bytes, (double)engine->plan.copy_bytes));
}

int engine_connect(Engine *engine) {
    Collective *ranks = &engine->collective;
    if (ranks_compare_config(ranks, &engine->config, engine->backend) < 0 || share_state(engine) < 0 ||
        open_loader(engine) < 0 || ranks_agree(ranks, open_network(engine)) < 0)
        return -1;
    return ranks_compare_data(ranks, feed_dataset(engine->feed));
}

// ---- weights

int engine_load(Engine *engine) {
    const char *init_from = engine->config.init_from;
    Network *whole = engine_whole(engine);
    if (*engine->begins_with) return checkpoint_load(whole, engine->begins_with, true);
    if (strcmp(init_from, "scratch")) return checkpoint_load_model(whole, init_from, engine->config.added_ids);
    return network_init(whole, (uint64_t)engine->config.seed);
}

// Runs every operation once at full shape, so that kernels, products and recordings allocate their device memory now
// and not in the middle of the run. The staging buffer is large enough for any tensor, and so for a row of logits.
static void warm_up_all(Engine *engine) {
    log_line("warming up");
    sample_warm_up(&engine->network, engine->network.staging);
    for (int time = 0; time < 2 && engine->plan.optimizer->averages; time++) step_swap_average(&engine->network);
    for (int split = SPLIT_TRAIN; split <= SPLIT_VAL; split++) {
        Evaluation evaluation;
        evaluation_init(&evaluation, &engine->config, engine->feed, split, engine_use(engine)->consumed);
        for (unsigned i = 0; i < evaluation.part_count; i++)
            evaluate_warm_up(&engine->network, evaluation.parts[i].samples);
    }
    step_warm_up(&engine->network, &engine->config);
}

int engine_open_weights(Engine *engine, bool warm_up) {
    Collective *ranks = &engine->collective;
    const Backend *backend = engine->backend;
    if (ranks_agree(ranks, ranks_first(ranks) ? engine_load(engine) : 0) < 0 ||
        ranks_share_weights(&engine->network, engine_whole(engine)) < 0)
        return -1;
    if (engine->state.bits != BITS && ranks_first(ranks))
        log_warn("the run was computed by version %llu of the arithmetic, and goes on with version %d: its bits are "
                 "not those of a run that stayed with one of them",
                 (unsigned long long)engine->state.bits, BITS);
    engine->state.bits = BITS;
    backend->choices_set(engine->state.choices);
    if (backend->needs_warm_up && warm_up) warm_up_all(engine);
    if (ranks->lost) return -1;
    backend->choices_get(engine->state.choices, sizeof engine->state.choices);
    return 0;
}

void engine_close(Engine *engine) {
    ranks_close(&engine->collective, stop_requested);
    feed_close(engine->feed);
    loader_process_close(&engine->loader_process);
    chain_close(&engine->chain);
    host_copy_close(&engine->copy);
    network_close(&engine->network);
    model_close(&engine->model);
    if (engine->backend) engine->backend->close();
    engine->feed = NULL;
}
