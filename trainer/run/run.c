// A training run: opening it and closing it.
#include "trainer/run/run.h"
#include "common/cli/version.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/json_write.h"
#include "common/log.h"
#include "common/machine/pool.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/model/gemm_rate.h"
#include "trainer/model/sample.h"
#include "trainer/plan/plan_auto.h"
#include "trainer/plan/plan_check.h"
#include "trainer/plan/plan_fit.h"
#include "trainer/plan/step_cost.h"
#include "trainer/records/evaluation.h"
#include "trainer/run/run_data.h"
#include "trainer/run/run_directory.h"
#include "trainer/setup/answer_share.h"
#include "trainer/setup/data_check.h"
#include "trainer/setup/vocabulary.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Starts as many threads as OpenMP and ZeroMQ will, for a moment: they end the program when a thread cannot start.
static int check_threads(const Config *config) {
    enum { OTHERS = 3 }; // two threads of ZeroMQ, one that writes checkpoints
    char job;
    Pool *pool = pool_open((config->threads ? (unsigned)config->threads : pool_cores()) + OTHERS, NULL, &job, 1, 1);
    if (!pool) return -1;
    pool_close(pool);
    return 0;
}

int run_open_weights(Run *run) {
    const char *init_from = run->config.init_from;
    Network *whole = run_whole(run);
    if (*run->saves.resumed_from) return checkpoint_load(whole, run->saves.resumed_from, true);
    if (strcmp(init_from, "scratch")) return checkpoint_load_model(whole, init_from, run->config.added_ids);
    return network_init(whole, (uint64_t)run->config.seed);
}

// Runs every operation once at full shape, so that kernels, products and recordings allocate their device memory now
// and not in the middle of the run. The staging buffer is large enough for any tensor, and so for a row of logits.
static void warm_up(Run *run) {
    log_line("warming up");
    sample_warm_up(&run->network, run->network.staging);
    for (int split = SPLIT_TRAIN; split <= SPLIT_VAL; split++) {
        Evaluation evaluation;
        evaluation_init(&evaluation, &run->config, run->feed, split, run_use(run)->consumed);
        for (unsigned i = 0; i < evaluation.part_count; i++)
            evaluate_warm_up(&run->network, evaluation.parts[i].samples);
    }
    step_warm_up(&run->network, &run->config);
}

// Measures the rate that the rate of a step is compared with.
static void measure_products(Run *run) {
    const double rate = network_gemm_rate(&run->network);
    const unsigned world = run->collective.world;
    run->pace.gemm_rate = world * rate, run->pace.peak_rate = world * gpu_peak(run->backend_text).flops;
    log_line("measured peak: %.3g TFLOP/s, of matrix products of this model%s", rate * 1e-12,
             world > 1 ? ", in each process" : "");
}

// Compares the directory of the initial weights, if one is given, with that of the run in out_dir.
static int check_init_from(const Run *run) {
    const char *given = run->config.init_from, *first = run->state.init_from;
    if (!strcmp(given, "scratch") || !strcmp(given, "resume")) return 0;
    if (!strncmp(given, first, sizeof run->state.init_from - 1)) return 0;
    return fail(EX_USAGE,
                "init_from is '%s', and the run in '%s', at step %llu, began from '%s': leave init_from out to resume "
                "it (another out_dir, or --fresh, starts a new run)",
                given, run->config.out_dir, (unsigned long long)run->state.step, *first ? first : "scratch");
}

// The state that the run begins with: of the newest checkpoint, or before the first step.
static int open_state(Run *run) {
    const Config *config = &run->config;
    RunState *state = &run->state;
    const bool resumes = !strcmp(config->init_from, "resume");
    run_state_init(state);
    const int found = !run->replays ? checkpoint_find(config->out_dir, config, run->saves.resumed_from, state)
                      : run->replayed_from
                          ? checkpoint_of_step(config->out_dir, run->replayed_from, run->saves.resumed_from, state)
                          : 0;
    if (found < 0) return -1;
    if (!found && run->replays) snprintf(state->choices, sizeof state->choices, "%s", run->replayed_choices);
    if (!found) *run->saves.resumed_from = 0;
    if (!found && !run->replays && model_refuse(config->out_dir) < 0) return -1;
    if (!found && resumes)
        return fail(EX_NOINPUT, "init_from is 'resume', and there is no checkpoint in '%s'", config->out_dir);
    if (!state->tokens) // version 0.1.0 did not count them
        state->tokens = state->step * run_sequences(run) * (uint64_t)config->block_size;
    loss_scaler_init(&state->scaler, dtype_is_narrow(run->backend->act_type));
    if (found && !run->replays && !config->eval_only && run_owns(run))
        checkpoint_rotate(config->out_dir, state->best_step);
    if (found) log_line("resuming at step %llu from '%s'", (unsigned long long)state->step, run->saves.resumed_from);
    if (found && run_is_complete(run))
        log_line("the run in '%s' is complete (step %llu of %lld): nothing is trained; raise max_iters to go on",
                 config->out_dir, (unsigned long long)state->step, (long long)config->max_iters);
    if (found && state->sampling != (uint64_t)config->sampling && config->sampling >= SAMPLING_EPOCH)
        log_warn(
            "this run began with another order of samples, which was less mixed: of the current epoch, some samples "
            "come a second time and some not at all");
    state->sampling = config->sampling; // lower numbers than SAMPLING_EPOCH have kept their order
    if (found) return check_init_from(run);
    if (strcmp(config->init_from, "scratch"))
        snprintf(state->init_from, sizeof state->init_from, "%s", config->init_from);
    return 0;
}

static int open_directory(Run *run, bool fresh) {
    if (!ranks_first(&run->collective)) return 0;
    if (run->replays) return open_state(run);
    if (run_directory_open(&run->lock, run->config.out_dir, fresh) < 0) return -1;
    return open_state(run);
}

static int open_backend(Run *run, const Config *given, bool fresh) {
    Config *config = &run->config;
    *config = *given;
    config->world = run->collective.world, config->local_world = run->collective.local_world;
    config->local_first = run->collective.local_first;
    if (ranks_share_processors(&run->collective, config) < 0) return -1;
    if (!fresh) checkpoint_resolve_auto(config->out_dir, config);
    run->backend = backend_for_rank(config, run->collective.local, run->backend_text);
    if (!run->backend && given->dtype != config->dtype)
        return fail_in("the run in '%s' has dtype %s", config->out_dir, dtype_name(config->dtype));
    if (!run->backend) return -1;
    return collective_load(&run->collective, run->backend->collective);
}

// Refuses a run whose first checkpoint cannot be written, and warns where a later one may not: two are kept and the best,
// while the next is written.
static int check_disk(const Run *run) {
    enum { KEPT = 4 };
    const char *out_dir = run->config.out_dir;
    const uint64_t bytes = checkpoint_bytes(&run->model, run->plan.optimizer);
    char at[PATH_MAX_BYTES], needed[16], available[16];
    if (!run_owns(run) || run->config.eval_only || run_is_complete(run)) return 0;
    if (checkpoint_check_space(out_dir, bytes) < 0) return -1;
    const int64_t space = checkpoint_space(out_dir, at);
    if (space >= 0 && (uint64_t)space < KEPT * bytes)
        log_warn("%s are free in '%s': a run needs room for %d checkpoints of %s",
                 human_bytes(available, (double)space), out_dir, KEPT, human_bytes(needed, (double)bytes));
    return 0;
}

// Does all else that can be refused before a loader is started or memory is allocated.
static int prepare(Run *run, bool fresh) {
    Config *config = &run->config;
    config->dtype = run->backend->act_type;
    const Config given = *config;
    plan_auto(config, run->backend, true);
    ModelShape shape = model_shape(config);
    model_open(&run->model, &shape);
    memory_plan_init(&run->plan, config, &run->model, run->backend, optimizer_of(config->optimizer));
    if (memory_plan_check(&run->plan, &given, run->backend, true) < 0 || open_directory(run, fresh) < 0 ||
        check_disk(run) < 0)
        return -1;
    const MemoryLimits limits = memory_limits(config, run->backend, true);
    run->host_left = plan_host_left(&run->plan, run->backend, &limits);
    return check_threads(config);
}

// A part of the memory that the plan and the copy for checkpoints leave. 0: the loader's default.
static uint64_t loader_cache_bytes(const Run *run) {
    const uint64_t part = 4, left = run->host_left;
    const uint64_t copy =
        run_divided(run) ? 0 : run->plan.copy_bytes + run->plan.staging; // `left` is without a required one
    if (left == UINT64_MAX) return 0;
    const uint64_t bytes = (left > copy ? left - copy : left) / part;
    return bytes > LOADER_CACHE_LEAST ? bytes : LOADER_CACHE_LEAST;
}

static int start_loader(Run *run) {
    FeedDataset dataset;
    const int found = data_check_find(&run->config, &dataset);
    if (found < 0 || (found && data_check(&run->config, &dataset) < 0)) return -1;
    return loader_process_open(&run->loader_process, &run->config, loader_cache_bytes(run));
}

// One loader serves all processes of a machine.
static int open_loader(Run *run) {
    const bool starts = run->collective.rank == run->collective.local_first;
    if (ranks_agree(&run->collective, starts ? start_loader(run) : 0) < 0) return -1;
    return ranks_share_loader(&run->collective, &run->config, &run->loader_process);
}

static int open_network(Run *run) {
    if (run_data_open(run) < 0 || network_open(&run->network, run->backend, &run->model, &run->plan) < 0) return -1;
    run->network.collective = &run->collective;
    chain_open(&run->chain, &run->network, &run->config);
    if (!ranks_first(&run->collective)) return 0;
    const bool divided = run_divided(run);
    CheckpointWriter *writer = &run->saves.writer;
    if (divided || !(run->config.eval_only || run->replays))
        checkpoint_writer_open(writer, &run->network, &run->config, run->host_left);
    char bytes[16];
    if (divided && !writer->view.arena)
        return fail(
            EX_MEMORY,
            "cannot allocate %s of host memory, which rank 0 needs for checkpoints of what the processes divide",
            human_bytes(bytes, (double)run->plan.copy_bytes));
    return run_open_weights(run);
}

MetricsEnd run_metrics_end(const Run *run) {
    const RunState *state = &run->state;
    MetricsEnd end = {(int64_t)state->step, state->evaluated, state->rolled_back, 0};
    for (int i = 0; i < state->dataset_count; i++)
        if (state->datasets[i].consumed > end.consumed) end.consumed = state->datasets[i].consumed;
    return end;
}

static int open_output(Run *run) {
    const Config *config = &run->config;
    if (!config->eval_only && !run->replays) measure_products(run); // any process may have to complete the record
    if (!run_owns(run)) {
        if (!config->eval_only && !run->replays) metrics_follow(&run->metrics);
        return 0;
    }
    if (vocabulary_keep(config, config->out_dir) < 0) return -1;
    const MetricsEnd end = *run->saves.resumed_from ? run_metrics_end(run) : (MetricsEnd){.step = -1};
    if (metrics_open(&run->metrics, config->out_dir, end, config->tensorboard_log) < 0) return -1;
    if (*run->saves.resumed_from && run->metrics.kept_step < run->state.step)
        log_warn("'%s' ends with step %llu: the steps after it up to %llu are not recorded", run->metrics.path,
                 (unsigned long long)run->metrics.kept_step, (unsigned long long)run->state.step);
    const unsigned long long lost = run->metrics.lost_steps;
    if (!lost) return 0;
    log_line("%llu step%s after step %llu %s not saved before the run ended", lost, lost == 1 ? "" : "s",
             (unsigned long long)run->state.step, lost == 1 ? "was" : "were");
    metrics_add_lost(&run->metrics, run->state.step);
    run->metrics.kills++;
    return 0;
}

static int share_state(Run *run) {
    Collective *ranks = &run->collective;
    if (collective_broadcast(ranks, &run->state, sizeof run->state) < 0) return -1;
    return collective_broadcast(ranks, run->saves.resumed_from, sizeof run->saves.resumed_from);
}

static void print_batch(const Run *run, const FeedBatch *batch) {
    const size_t row_bytes = ((size_t)run->config.block_size + 1) * shape_id_bytes(&run->model.shape);
    uint8_t hash[32];
    char hex[65];
    sha256(batch->ids, batch->rows * row_bytes, hash);
    hex_encode(hex, hash, 32);
    log_line("step %llu: samples %llu to %llu, sha256 %.16s", (unsigned long long)run->state.step,
             (unsigned long long)batch->first_sample, (unsigned long long)(batch->first_sample + batch->rows - 1), hex);
}

static void receive_batch(void *self, const FeedBatch *batch) {
    Run *run = self;
    chain_add_batch(&run->chain, &run->network, batch);
    if (run->prints_batches) print_batch(run, batch);
}

// The line of this process, from which the steps behind it can be repeated.
static void record_process(Run *run) {
    const Config *config = &run->config;
    char path[PATH_MAX_BYTES], whole[2 * PATH_MAX_BYTES], folder[PATH_MAX_BYTES], answers[40] = "";
    AnswerShare share;
    Buffer data = {0};
    json_t *keys = run_state_config(config);
    char *text = json_dumps(keys, 0);
    if (!text) die(EX_MEMORY, "no memory for the configuration");
    const bool local = !*config->loader && loader_process_dataset(path, config);
    const bool relative = local && *path != '/' && getcwd(folder, sizeof folder);
    snprintf(whole, sizeof whole, "%s%s%s", relative ? folder : "", relative ? "/" : "", local ? path : config->loader);
    json_add_string(&data, whole);
    if (answer_share_find(&share, config) > 0)
        snprintf(answers, sizeof answers, ", \"answer_share\": %.4f", (double)share.counted / (double)share.answers);
    err_clear(); // the loader has opened the dataset, and tells its errors
    metrics_add(&run->metrics, run->state.step,
                "\"arena_bytes\": %llu, \"world\": %u%s, \"version\": \"%s%s%s\", \"%s\": %.*s, \"config\": %s",
                (unsigned long long)run->plan.bytes, run->collective.world, answers, version,
                *version_commit ? " " : "", version_commit, local ? "data" : "loader", (int)data.size,
                (const char *)data.data, text);
    buffer_close(&data);
    free(text);
    json_decref(keys);
}

int run_open(Run *run, const Config *config, bool fresh, bool print_ranks) {
    Collective *ranks = &run->collective;
    run->stream.received = receive_batch, run->stream.received_self = run;
    run->prints_batches = print_ranks;
    if (ranks_open(ranks, config, &run->loader_process, print_ranks) < 0 ||
        ranks_agree(ranks, open_backend(run, config, fresh)) < 0 || collective_open_device(ranks) < 0 ||
        ranks_agree(ranks, prepare(run, fresh)) < 0 || ranks_compare_config(ranks, &run->config, run->backend) < 0 ||
        share_state(run) < 0 || open_loader(run) < 0 || ranks_agree(ranks, open_network(run)) < 0 ||
        ranks_compare_data(ranks, feed_dataset(run->feed)) < 0 ||
        ranks_share_weights(&run->network, run_whole(run)) < 0)
        return -1;
    run->saves.step = run->state.step, run->saves.evaluated = run->state.evaluated;
    run->backend->choices_set(run->state.choices);
    if (run->backend->needs_warm_up && !run->config.eval_only) warm_up(run);
    if (ranks->lost) return -1;
    run->backend->choices_get(run->state.choices, sizeof run->state.choices);
    int status = open_output(run);
    if (status == 0) status = feed_attach(run->feed);
    if (status == 0) status = run_data_check_complete(run);
    if (status == 0) status = run_data_update(run);
    if (status == 0) record_process(run);
    return ranks_agree(ranks, status);
}

void run_close(Run *run) {
    checkpoint_writer_close(&run->saves.writer);
    ranks_close(&run->collective, run->stop);
    feed_close(run->feed);
    loader_process_close(&run->loader_process);
    metrics_close(&run->metrics);
    chain_close(&run->chain);
    network_close(&run->network);
    model_close(&run->model);
    if (run->backend) run->backend->close();
    lock_drop(&run->lock);
    run->feed = NULL;
}
