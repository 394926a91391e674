// A training run: opening it and closing it.
#include "trainer/run/run.h"
#include "common/cli/version.h"
#include "common/err.h"
#include "common/json_write.h"
#include "common/log.h"
#include "common/machine/stop.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/config/until.h"
#include "trainer/engine/engine_data.h"
#include "trainer/model/gemm_rate.h"
#include "trainer/plan/gpu_card.h"
#include "trainer/plan/step_cost.h"
#include "trainer/run/run_directory.h"
#include "trainer/setup/answer_share.h"
#include "trainer/setup/vocabulary.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Measures the rate that the rate of a step is compared with.
static void measure_products(Run *run) {
    const Engine *engine = &run->engine;
    const double rate = network_gemm_rate(&run->engine.network);
    const unsigned world = engine->collective.world;
    const GpuCard *card = gpu_card_of(engine->backend_text);
    run->pace.gemm_rate = world * rate, run->pace.peak_rate = card ? world * card->flops : 0;
    log_line("measured peak: %.3g TFLOP/s, of matrix products of this model%s", rate * 1e-12,
             world > 1 ? ", in each process" : "");
}

// What the bits of the run depend on beside its data and configuration, and their price.
static void print_scope(const Engine *engine) {
    const char *place = engine->backend->in_host_memory ? "this processor" : "this kind of GPU";
    char price[96] = "";
    if (engine->plan.portable && engine->backend->portable_cost > 1)
        snprintf(price, sizeof price, ". Without AVX2 a step takes %.1f times that of reduce_order=fast (predicted)",
                 1 + step_cost_order(&engine->model, engine->backend, &engine->config));
    log_line("bits: %s, %s number of processes%s", engine->plan.portable ? "any processor" : place,
             engine->plan.fixed_order ? "any" : "this", price);
}

// Refuses a run whose first checkpoint cannot be written, and warns if a later one may not: two are kept, those of the
// lowest loss and of the highest grade, and that before a cooldown, while the next is written.
static int check_disk(const Run *run) {
    const int kept = 4 + (run->engine.config.lr_schedule == LR_WSD) + !!run->engine.config.items_interval;
    const char *out_dir = run->engine.config.out_dir;
    const uint64_t bytes = checkpoint_bytes(&run->engine.model, run->engine.plan.optimizer);
    char at[PATH_MAX_BYTES], needed[16], available[16];
    if (run_is_complete(run)) return 0;
    if (checkpoint_check_space(out_dir, bytes) < 0) return -1;
    const int64_t space = checkpoint_space(out_dir, at);
    if (space >= 0 && (uint64_t)space < (uint64_t)kept * bytes)
        log_warn("%s are free in '%s': a run needs room for %d checkpoints of %s",
                 human_bytes(available, (double)space), out_dir, kept, human_bytes(needed, (double)bytes));
    return 0;
}

// A run that has cooled down, and whose rate would now be higher again.
static void warn_cooled(const Run *run) {
    static const int keys[] = {KEY_lr_schedule, KEY_warmup_iters, KEY_lr_decay_iters, KEY_cooldown_iters};
    const Config *config = &run->engine.config;
    const RunState *state = &run->engine.state;
    Config before = *config;
    SavedState saved;
    if (saved_state_read(&saved, run->engine.begins_with) < 0) return err_clear();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *text = json_string_value(json_object_get(saved.config, config_key(keys[i])));
        if (text) config_parse(&before, keys[i], text);
    }
    saved_state_close(&saved);
    const uint64_t begun = schedule_cooldown(&before, &state->cooldown);
    if (!begun || state->step <= begun || state->cooldown.begun ||
        schedule_rate(config, &state->cooldown, state->step) <= schedule_rate(&before, &state->cooldown, state->step))
        return;
    log_warn("the weights have cooled down since step %llu: --branch_from=%s/ckpt-%08llu with another out_dir goes on "
             "from before that, while that checkpoint is kept (until the next save here)",
             (unsigned long long)begun, config->out_dir, (unsigned long long)begun);
}

// The directory, and the state that the run begins with: of the newest checkpoint, or before the first step.
static int open_directory(Run *run, bool fresh) {
    Engine *engine = &run->engine;
    const Config *config = &engine->config;
    RunState *state = &engine->state;
    if (!ranks_first(&engine->collective)) return 0;
    if (fresh && until_check_new(config->until) < 0) return -1; // before an earlier run is moved
    if (run_directory_open(&run->lock, config->out_dir, fresh) < 0) return -1;
    const int found = checkpoint_find(config->out_dir, config, engine->begins_with, state);
    if (found < 0 || (!found && model_refuse(config->out_dir) < 0) || engine_take_state(engine, found) < 0) return -1;
    if (found) state->graded_step = metrics_graded(config->out_dir, state->step);
    if (found) checkpoint_rotate(config->out_dir, state, config);
    if (found) warn_cooled(run);
    if (run_is_complete(run) && state->cooldown.begun)
        log_line(
            "the run in '%s' is complete: it has cooled down by step %llu; --branch_from=%s/ckpt-%08llu with another "
            "out_dir goes on from before that",
            config->out_dir, (unsigned long long)state->step, config->out_dir,
            (unsigned long long)state->cooldown.begun);
    else if (run_is_complete(run))
        log_line("the run in '%s' is complete (step %llu of %lld): nothing is trained; raise max_iters to go on",
                 config->out_dir, (unsigned long long)state->step, (long long)config->max_iters);
    return check_disk(run);
}

MetricsEnd run_metrics_end(const RunState *state) {
    MetricsEnd end = {(int64_t)state->step, state->evaluated, state->rolled_back, 0};
    for (int i = 0; i < state->dataset_count; i++)
        if (state->datasets[i].consumed > end.consumed) end.consumed = state->datasets[i].consumed;
    return end;
}

// Reads what the record has about the time of the run, before lines are cut from it.
static void read_until(Run *run) {
    const char *out_dir = run->engine.config.out_dir;
    json_t *cooldown = metrics_last_with(out_dir, "end_s"), *evaluated = metrics_last_with(out_dir, "evaluate_s");
    run->until.line = metrics_last_with(out_dir, "until");
    run->until.end_s = json_number_value(json_object_get(cooldown, "end_s"));
    run->until.at_once = json_is_true(json_object_get(cooldown, "at_once"));
    run->until.evaluate_s = json_number_value(json_object_get(evaluated, "evaluate_s"));
    run->until.evaluate_step_s = json_number_value(json_object_get(evaluated, "evaluate_step_s"));
    json_decref(cooldown), json_decref(evaluated);
}

static int open_output(Run *run) {
    const Config *config = &run->engine.config;
    print_scope(&run->engine);
    measure_products(run);
    if (stop_check("matrix products were timed") < 0) return -1;
    const MetricsEnd end = *run->engine.begins_with ? run_metrics_end(&run->engine.state) : (MetricsEnd){.step = -1};
    if (!run_owns(run)) return metrics_follow(&run->metrics, end), 0; // any process may have to complete the record
    if (vocabulary_keep(config, config->out_dir) < 0) return -1;
    if (*config->until) read_until(run);
    if (metrics_open(&run->metrics, config->out_dir, end, config->tensorboard_log) < 0) return -1;
    if (*run->engine.begins_with && run->metrics.kept_step < run->engine.state.step)
        log_warn("'%s' ends with step %llu: the steps after it up to %llu are not recorded", run->metrics.path,
                 (unsigned long long)run->metrics.kept_step, (unsigned long long)run->engine.state.step);
    const unsigned long long lost = run->metrics.lost_steps;
    if (!lost) return 0;
    log_line("%llu step%s after step %llu %s not saved before the run ended", lost, lost == 1 ? "" : "s",
             (unsigned long long)run->engine.state.step, lost == 1 ? "was" : "were");
    metrics_add_lost(&run->metrics, run->engine.state.step);
    run->metrics.kills++;
    return 0;
}

// The line of this process, from which the steps after it can be repeated.
static void record_process(Run *run) {
    const Config *config = &run->engine.config;
    char path[PATH_MAX_BYTES], whole[2 * PATH_MAX_BYTES], folder[PATH_MAX_BYTES], answers[40] = "";
    AnswerShare share;
    Buffer data = {0}, machine = {0};
    json_t *keys = run_state_config(config);
    char *text = json_dumps(keys, 0);
    if (!text) die(EX_MEMORY, "no memory for the configuration");
    const bool local = !*config->loader && loader_process_dataset(path, config);
    const bool relative = local && *path != '/' && getcwd(folder, sizeof folder);
    snprintf(whole, sizeof whole, "%s%s%s", relative ? folder : "", relative ? "/" : "", local ? path : config->loader);
    json_add_string(&data, whole);
    snprintf(whole, sizeof whole, "%.*s", (int)strcspn(run->engine.state.choices, "\n"), run->engine.state.choices);
    json_add_string(&machine, whole);
    if (run_owns(run) && answer_share_find(&share, config) > 0)
        snprintf(answers, sizeof answers, ", \"answer_share\": %.4f", (double)share.counted / (double)share.answers);
    err_clear(); // the loader has opened the dataset, and tells its errors
    metrics_add(&run->metrics, run->engine.state.step,
                "\"arena_bytes\": %llu, \"world\": %u%s, \"bits\": %d, "
                "\"version\": \"%s%s%s\", \"machine\": %.*s, \"%s\": %.*s, \"config\": %s",
                (unsigned long long)run->engine.plan.bytes, run->engine.collective.world, answers, BITS, version,
                *version_commit ? " " : "", version_commit, (int)machine.size, (const char *)machine.data,
                local ? "data" : "loader", (int)data.size, (const char *)data.data, text);
    buffer_close(&data), buffer_close(&machine);
    free(text);
    json_decref(keys);
}

// Fails (2) when the run is complete and the loader has another dataset than its last step had.
static int check_complete(const Run *run) {
    const FeedDataset *dataset = feed_dataset(run->engine.feed);
    const RunState *state = &run->engine.state;
    const DatasetUse *last = &state->datasets[state->dataset];
    if (!run_is_complete(run) || !state->dataset_count || feed_same_samples(run->engine.feed, last->fingerprint))
        return 0;
    return fail(EX_USAGE,
                "the run in '%s' is complete (step %llu of %lld), nothing was trained: the dataset is '%s', was '%s' "
                "(raise max_iters to go on; another out_dir, or train --fresh, starts a new run)",
                run->engine.config.out_dir, (unsigned long long)state->step, (long long)run->engine.config.max_iters,
                dataset->name, last->name);
}

// Engine.record
static void record_line(void *self, Bytes members) {
    Run *run = self;
    metrics_add_members(&run->metrics, run->engine.state.step, members);
}

int run_open(Run *run, const Config *config, bool fresh, bool print_ranks) {
    Engine *engine = &run->engine;
    Collective *ranks = &engine->collective;
    engine->record = record_line, engine->record_self = run;
    run->saves.writer.copy = &engine->copy, run->saves.writer.config = &engine->config;
    run->saves.writer.lock = &run->lock;
    if (engine_open(engine, config, fresh, print_ranks) < 0 || ranks_agree(ranks, open_directory(run, fresh)) < 0 ||
        engine_connect(engine) < 0)
        return -1;
    if (run_owns(run) && !engine_divided(engine))
        host_copy_open(&engine->copy, &engine->network, &engine->config, engine->host_left);
    if (engine_open_weights(engine, true) < 0) return -1;
    run->saves.step = engine->state.step, run->saves.evaluated = engine->state.evaluated;
    int status = open_output(run);
    if (status == 0) status = feed_attach(engine->feed);
    if (status == 0) status = check_complete(run);
    if (status == 0) status = engine_data_update(engine, true);
    if (status == 0) record_process(run);
    return ranks_agree(ranks, status);
}

void run_close(Run *run) {
    checkpoint_writer_close(&run->saves.writer);
    items_close(&run->items.file);
    vocab_close(run->items.vocab);
    engine_close(&run->engine);
    metrics_close(&run->metrics);
    json_decref(run->until.line);
    lock_drop(&run->lock);
}
