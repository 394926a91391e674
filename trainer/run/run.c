// A training run: opening, dataset changes, saving, rolling back.
#include "trainer/run/run.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/machine/pool.h"
#include "trainer/model/gemm_rate.h"
#include "trainer/model/sample.h"
#include "trainer/plan/plan_auto.h"
#include "trainer/plan/plan_check.h"
#include "trainer/run/ranks.h"
#include "trainer/setup/backend_for.h"
#include "trainer/setup/vocabulary.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- the directory

// Moves the files of an earlier run to out_dir/before-1, or the next free number.
static int move_aside(const char *out_dir) {
    char folder[PATH_MAX_BYTES];
    for (int i = 1;; i++) {
        snprintf(folder, sizeof folder, "%.*s/before-%d", PATH_MAX_BYTES - 64, out_dir, i);
        if (mkdir(folder, 0777) == 0) break;
        if (errno != EEXIST) return fail_create(folder);
    }
    uint64_t step;
    char from[PATH_MAX_BYTES], to[PATH_MAX_BYTES];
    static const char *const files[] = {"metrics.jsonl", "report.html"};
    int moved = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(from, sizeof from, "%.*s/%s", PATH_MAX_BYTES - 64, out_dir, files[i]);
        snprintf(to, sizeof to, "%.*s/%s", PATH_MAX_BYTES - 64, folder, files[i]);
        if (rename(from, to) == 0)
            moved++;
        else if (errno != ENOENT)
            return fail_errno("cannot move '%s' to '%s'", from, folder);
    }
    while (checkpoint_any(out_dir, from, &step)) {
        snprintf(to, sizeof to, "%.*s/ckpt-%08llu", PATH_MAX_BYTES - 64, folder, (unsigned long long)step);
        if (rename(from, to) < 0) return fail_errno("cannot move '%s' to '%s'", from, folder);
        moved++;
    }
    if (!moved)
        rmdir(folder);
    else
        log_line("--fresh: the earlier run is now in '%s'", folder);
    return 0;
}

static int open_directory(Run *run, bool fresh) {
    const char *out_dir = run->config->out_dir;
    if (dir_make(out_dir) < 0 || lock_take(&run->lock, out_dir) < 0) return -1;
    dir_sweep(out_dir, NULL);
    if (fresh && move_aside(out_dir) < 0) return -1;
    run_state_init(&run->state);
    int found = checkpoint_find(out_dir, run->config, run->checkpoint, &run->state);
    if (found < 0) return -1;
    if (!found) run->checkpoint[0] = 0;
    if (!found && !strcmp(run->config->init_from, "resume"))
        return fail(EX_NOINPUT, "init_from is 'resume', and there is no checkpoint in '%s'", out_dir);
    run->saved_step = run->state.step;
    if (!run->state.tokens) // of a checkpoint of version 0.1.0, which did not count them
        run->state.tokens = run->state.step * run_sequences(run) * (uint64_t)run->config->block_size;
    loss_scaler_init(&run->state.scaler, dtype_is_narrow(run->backend->act_type));
    if (found) log_line("resuming at step %llu from '%s'", (unsigned long long)run->state.step, run->checkpoint);
    if (found && strcmp(run->config->init_from, "scratch") && strcmp(run->config->init_from, "resume"))
        log_warn("init_from is '%s', and the run resumes from its own checkpoint: --fresh starts a new run",
                 run->config->init_from);
    return 0;
}

// ---- data

static int check_dataset(const Run *run, const FeedDataset *dataset) {
    static const char *const splits[] = {"training", "validation"};
    const bool evaluates = run->config->eval_interval || run->config->eval_only;
    for (int split = SPLIT_TRAIN; split <= (evaluates ? SPLIT_VAL : SPLIT_TRAIN); split++) {
        bool val = split == SPLIT_VAL;
        uint64_t block = (uint64_t)(val ? config_eval_block(run->config) : run->config->block_size);
        if (dataset->tokens[split] <= block)
            return fail(EX_USAGE, "the %s data of '%s' has %llu tokens, block_size %llu needs at least %llu%s",
                        splits[split], dataset->name, (unsigned long long)dataset->tokens[split],
                        (unsigned long long)block, (unsigned long long)block + 1,
                        val ? ": tokenize with --val 0.01 or more, or set eval_interval=0" : "");
    }
    return 0;
}

// OpenMP and ZeroMQ end the program where a thread cannot be started: as many are started here before, for a moment.
static int check_threads(const Config *config) {
    enum { OTHERS = 3 }; // two threads of ZeroMQ, one that writes checkpoints
    char job;
    Pool *pool = pool_open((config->threads ? (unsigned)config->threads : pool_cores()) + OTHERS, NULL, &job, 1, 1);
    if (!pool) return -1;
    pool_close(pool);
    return 0;
}

// While a rank waits for data: where the loader is that of a rank that has ended, none would ever come.
static int check_while_waiting(void *self) {
    Run *run = self;
    if (loader_process_check(&run->loader_process) < 0) return -1;
    return collective_check_ended(&run->collective);
}

static int open_feed(Run *run) {
    const Config *config = run->config;
    int64_t rows =
        config->batch_size.value > config->eval_batch_size ? config->batch_size.value : config->eval_batch_size;
    FeedConfig feed = {
        .vocab_size = (uint32_t)run->model.shape.vocab,
        .sequence_tokens = (uint32_t)config->block_size,
        .max_rows = (uint32_t)rows,
        .pin = run->backend->pin,
        .unpin = run->backend->unpin,
        .stop = &run->stop,
    };
    loader_process_configure(&run->loader_process, config, &feed);
    feed.while_waiting = check_while_waiting, feed.while_waiting_self = run;
    memcpy(feed.vocab_fp, run->state.vocab_fp, sizeof feed.vocab_fp);
    if (vocabulary_fingerprint(config, feed.vocab_fp) < 0) return -1;
    if (*run->checkpoint && memcmp(feed.vocab_fp, run->state.vocab_fp, sizeof feed.vocab_fp))
        return fail(EX_PROTOCOL,
                    "'%s' has other characters than those with which the run in '%s' was trained: name the right file "
                    "by --vocabulary",
                    config->vocabulary, config->out_dir);
    if (run->state.dataset_count) memcpy(feed.dataset, run_use(run)->fingerprint, sizeof feed.dataset);
    run->feed = feed_open(&feed);
    if (!run->feed || vocabulary_check(config, feed_dataset(run->feed)) < 0) return -1;
    run->source = source_of_feed(run->feed);
    memcpy(run->state.vocab_fp, feed_dataset(run->feed)->vocab_fp, sizeof run->state.vocab_fp);
    return 0;
}

static DatasetUse *find_use(RunState *state, const FeedDataset *dataset) {
    for (int i = 0; i < state->dataset_count; i++)
        if (!memcmp(state->datasets[i].fingerprint, dataset->fingerprint, 32)) return &state->datasets[i];
    if (state->dataset_count == DATASETS_MAX) return NULL;
    DatasetUse *use = &state->datasets[state->dataset_count++];
    memcpy(use->fingerprint, dataset->fingerprint, 32);
    snprintf(use->name, sizeof use->name, "%s", dataset->name);
    return use;
}

static void log_change(RunState *state, const DatasetUse *old, const DatasetUse *new) {
    if (state->change_count == CHANGES_MAX)
        memmove(state->changes, state->changes + 1, sizeof *state->changes * (size_t)--state->change_count);
    DatasetChange *change = &state->changes[state->change_count++];
    *change = (DatasetChange){.step = state->step, .consumed = new->consumed};
    memcpy(change->old, old->fingerprint, 32);
    memcpy(change->new, new->fingerprint, 32);
}

int run_dataset(Run *run) {
    RunState *state = &run->state;
    const FeedDataset *dataset = feed_dataset(run->feed);
    bool first = !state->dataset_count;
    if (!first && !memcmp(run_use(run)->fingerprint, dataset->fingerprint, 32)) return 0;
    if (check_dataset(run, dataset) < 0) return -1;
    char old_hex[65], new_hex[65];
    hex_encode(new_hex, dataset->fingerprint, 32);
    // A mixture with further weights, which lie ahead: the same stream of samples.
    bool extended = !first && run_use(run)->consumed <= dataset->same_samples && dataset->same_samples;
    if (extended)
        log_line("the weights of '%s' change at sample %llu", dataset->name, (unsigned long long)dataset->same_samples);
    if (!first) {
        hex_encode(old_hex, run_use(run)->fingerprint, 32);
        if (!extended)
            log_warn("the dataset is now '%s' (%.16s), was '%s' (%.16s), from step %llu on", dataset->name, new_hex,
                     run_use(run)->name, old_hex, (unsigned long long)state->step);
        if (!extended && run->config->on_dataset_change == ON_CHANGE_STOP)
            return fail(EX_AGAIN, "stopped: the loader has another dataset, and on_dataset_change is stop");
    }
    int before = state->dataset;
    DatasetUse *use = find_use(state, dataset);
    if (!use) return fail(EX_USAGE, "more than %d datasets in one run", DATASETS_MAX);
    if (extended) use->consumed = state->datasets[before].consumed;
    state->dataset = (int)(use - state->datasets);
    state->skip_from = state->skip_to = 0;
    char name[512];
    metrics_string(name, use->name);
    if (first) {
        metrics_add(&run->metrics, state->step, "\"dataset\": %s, \"fingerprint\": \"%s\"", name, new_hex);
        return 0;
    }
    log_change(state, &state->datasets[before], use);
    metrics_add(&run->metrics, state->step,
                "\"dataset\": %s, \"fingerprint\": \"%s\", \"old\": \"%s\", \"consumed\": %llu", name, new_hex, old_hex,
                (unsigned long long)use->consumed);
    return 0;
}

// ---- open and close

static int open_weights(Run *run) {
    const char *init_from = run->config->init_from;
    Network *whole = ranks_whole(run);
    if (*run->checkpoint) return checkpoint_load(whole, run->checkpoint, true);
    if (strcmp(init_from, "scratch")) return checkpoint_load(whole, init_from, false);
    return network_init(whole, (uint64_t)run->config->seed);
}

// Runs every operation once at full shape, so that kernels, products and recordings allocate their device memory now
// and not in the middle of the run. The staging buffer is large enough for any tensor, and so for a row of logits.
static void warm_up(Run *run) {
    log_line("warming up");
    sample_warm_up(&run->network, run->network.staging);
    for (int split = SPLIT_TRAIN; split <= SPLIT_VAL; split++)
        evaluate_warm_up(&run->network, evaluate_samples(run->config, feed_dataset(run->feed)->tokens[split]));
    step_warm_up(&run->network, run->config);
}

// What the rate of a step is compared with.
static void measure_products(Run *run) {
    run->gemm_rate = network_gemm_rate(&run->network);
    run->peak_rate = gpu_peak_rate(run->backend_text);
    log_line("GEMM rate: %.3g TFLOP/s, measured", run->gemm_rate * 1e-12);
}

static int open_backend(Run *run, const Config *config_given, bool fresh) {
    const Config *config = run->config = &run->resolved;
    run->resolved = *config_given;
    run->resolved.world = run->collective.world;
    if (ranks_share_processors(run, &run->resolved) < 0) return -1;
    if (!fresh) checkpoint_resolve_auto(config->out_dir, &run->resolved);
    run->backend = backend_for_rank(config, run->collective.local, run->backend_text);
    if (!run->backend && config_given->dtype != config->dtype)
        return fail_in("the run in '%s' has dtype %s", config->out_dir, dtype_name(config->dtype));
    if (!run->backend) return -1;
    return collective_load(&run->collective, run->backend->collective);
}

// Everything else that can be refused before a loader is started or memory is allocated.
static int prepare(Run *run, bool fresh) {
    const Config *config = run->config;
    run->resolved.dtype = run->backend->act_type;
    plan_auto(&run->resolved, run->backend, true);
    ModelShape shape = model_shape(config);
    model_open(&run->model, &shape);
    memory_plan_init(&run->plan, config, &run->model, run->backend, optimizer_of(config->optimizer));
    if (memory_plan_check(&run->plan, config, run->backend, true) < 0) return -1;
    if (ranks_first(run) && open_directory(run, fresh) < 0) return -1;
    return check_threads(config);
}

// One loader serves all processes of a machine.
static int open_loader(Run *run) {
    const bool starts = run->collective.rank == run->collective.local_first;
    if (ranks_agree(run, starts ? loader_process_open(&run->loader_process, run->config) : 0) < 0) return -1;
    return ranks_share_loader(run);
}

static int open_network(Run *run) {
    if (open_feed(run) < 0 || check_dataset(run, feed_dataset(run->feed)) < 0 ||
        network_open(&run->network, run->backend, &run->model, &run->plan) < 0)
        return -1;
    run->network.collective = &run->collective;
    if (!ranks_first(run)) return 0;
    const bool divided = run->plan.shards > 1;
    if (divided || !run->config->eval_only) checkpoint_writer_open(&run->writer, &run->network, run->config);
    char bytes[16];
    if (divided && !run->writer.view.arena)
        return fail(EX_MEMORY,
                    "rank 0 needs %s more of this machine's memory for checkpoints of what the processes divide: "
                    "--zero_stage=0 divides nothing",
                    human_bytes(bytes, (double)run->plan.copy_bytes));
    return open_weights(run);
}

static int open_output(Run *run) {
    const Config *config = run->config;
    if (!config->eval_only && !log_silent) measure_products(run);
    if (!run_owns(run)) return 0;
    if (vocabulary_keep(config, config->out_dir) < 0) return -1;
    return metrics_open(&run->metrics, config->out_dir, *run->checkpoint ? (int64_t)run->state.step : -1,
                        run->state.evaluated, config->tensorboard_log);
}

int run_open(Run *run, const Config *config_given, bool fresh) {
    if (ranks_agree(run, open_backend(run, config_given, fresh)) < 0 || collective_open_device(&run->collective) < 0 ||
        ranks_agree(run, prepare(run, fresh)) < 0 || ranks_compare_config(run) < 0 || ranks_share_state(run) < 0 ||
        open_loader(run) < 0 || ranks_agree(run, open_network(run)) < 0 || ranks_compare_data(run) < 0 ||
        ranks_share_weights(run) < 0)
        return -1;
    run->saved_step = run->state.step;
    if (run->backend->choices_set) run->backend->choices_set(run->state.choices);
    if (run->backend->needs_warm_up && !run->config->eval_only) warm_up(run);
    if (run->collective.lost) return -1;
    if (run->backend->choices_get) run->backend->choices_get(run->state.choices, sizeof run->state.choices);
    int status = open_output(run);
    if (status == 0) status = feed_attach(run->feed);
    if (status == 0) status = run_dataset(run);
    return ranks_agree(run, status);
}

void run_close(Run *run) {
    checkpoint_writer_close(&run->writer);
    ranks_close(run);
    feed_close(run->feed);
    loader_process_close(&run->loader_process);
    metrics_close(&run->metrics);
    network_close(&run->network);
    model_close(&run->model);
    if (run->backend) run->backend->close();
    lock_drop(&run->lock);
    buffer_close(&run->sample);
    run->feed = NULL;
}

// Takes note of a save that has ended. A failure is a warning.
static void collect_save(Run *run, bool wait) {
    int result = checkpoint_writer_result(&run->writer, wait);
    if (result > 0) {
        run->saved_step = run->writer.state.step;
        metrics_add(&run->metrics, run->state.step, "\"saved_step\": %llu, \"save_ms\": %.1f",
                    (unsigned long long)run->saved_step, (double)(clock_ns() - run->save_started_ns) * 1e-6);
    }
    if (result >= 0) return;
    log_warn("no checkpoint: %s; training continues", err_text());
    err_clear();
}

void run_check_save(Run *run) { collect_save(run, false); }

int run_save(Run *run, bool last) {
    const uint64_t started = clock_ns();
    collect_save(run, true);
    const bool divided = run->plan.shards > 1;
    bool needed = run->saved_step != run->state.step;
    int status = divided ? ranks_gather_state(run, &needed) : 0;
    if (status == 0 && !needed) return 0;
    if (!run_owns(run)) return run->saved_step = run->state.step, status;
    if (status == 0 && metrics_flush(&run->metrics) == 0) {
        if (!last &&
            checkpoint_writer_start(&run->writer, divided ? NULL : &run->network, &run->state, run->metrics.fd)) {
            run->save_started_ns = started;
            metrics_add(&run->metrics, run->state.step, "\"save_wait_ms\": %.1f",
                        (double)(clock_ns() - started) * 1e-6);
            return 0;
        }
        if (metrics_sync(&run->metrics) == 0 &&
            checkpoint_save(ranks_whole(run), &run->state, run->config, run->config->out_dir) == 0) {
            run->saved_step = run->state.step;
            return 0;
        }
    }
    if (last) return -1;
    log_warn("no checkpoint: %s; training continues", err_text());
    err_clear();
    return 0;
}

// The newest checkpoint, or the initial weights.
static int restore(Run *run, RunState *state) {
    char path[PATH_MAX_BYTES];
    int found = checkpoint_find(run->config->out_dir, run->config, path, state);
    if (found < 0) return -1;
    if (found) return checkpoint_load(ranks_whole(run), path, true);
    run_state_init(state);
    memcpy(state->vocab_fp, run->state.vocab_fp, sizeof state->vocab_fp);
    memcpy(state->choices, run->state.choices, sizeof state->choices);
    state->first_loss = state->last_loss = run->state.first_loss, state->evaluated = true;
    return open_weights(run);
}

int run_roll_back(Run *run) {
    uint64_t bad = run->state.nonfinite_streak * run_sequences(run), nonfinite = run->state.nonfinite;
    uint64_t skip_to = run_use(run)->consumed, step = run->state.step;
    RunState state = run->state;
    if (run->state.rolled_back)
        return fail(EX_NONFINITE,
                    "step %llu: the loss is again not finite after a roll-back; try a lower learning_rate",
                    (unsigned long long)step);
    collect_save(run, true);
    if (ranks_agree(run, run_owns(run) ? restore(run, &state) : 0) < 0) return -1;
    run->state = state;
    if (ranks_share_state(run) < 0 || ranks_share_weights(run) < 0) return -1;
    loss_scaler_init(&run->state.scaler, dtype_is_narrow(run->backend->act_type));
    if (run_owns(run)) {
        metrics_close(&run->metrics);
        if (metrics_open(&run->metrics, run->config->out_dir, (int64_t)run->state.step, run->state.evaluated,
                         run->config->tensorboard_log) < 0)
            return -1;
    }
    if (run_dataset(run) < 0) return -1;
    run->state.rolled_back = true, run->state.nonfinite = nonfinite, run->state.nonfinite_streak = 0;
    run->state.skip_from = skip_to - bad, run->state.skip_to = skip_to;
    log_warn("three steps in a row were not finite: going back from step %llu to %llu and skipping their samples",
             (unsigned long long)step, (unsigned long long)run->state.step);
    metrics_add(&run->metrics, run->state.step, "\"rolled_back_from\": %llu", (unsigned long long)step);
    return 0;
}
