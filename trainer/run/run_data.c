// The feed of a run, and the change from one dataset to another.
#include "trainer/run/run_data.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/json_write.h"
#include "common/log.h"
#include "trainer/setup/data_check.h"
#include "trainer/setup/vocabulary.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// Called while a rank waits for data, which never comes when the rank that started the loader has ended.
static int check_while_waiting(void *self) {
    Run *run = self;
    if (loader_process_check(&run->loader_process) < 0) return -1;
    return collective_check_ended(&run->collective);
}

int run_data_open(Run *run) {
    const Config *config = &run->config;
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
    if (vocabulary_token_bytes(config, run->token_bytes) < 0) return -1;
    if (*run->saves.resumed_from && memcmp(feed.vocab_fp, run->state.vocab_fp, sizeof feed.vocab_fp))
        return fail(EX_PROTOCOL,
                    "'%s' is another vocabulary than that with which the run in '%s' was trained: name the right file "
                    "by --vocabulary",
                    config->vocabulary, config->out_dir);
    if (run->state.dataset_count) memcpy(feed.dataset, run_use(run)->fingerprint, sizeof feed.dataset);
    run->feed = feed_open(&feed);
    if (!run->feed || data_check(config, feed_dataset(run->feed)) < 0) return -1;
    run->source = source_of_feed(run->feed);
    memcpy(run->state.vocab_fp, feed_dataset(run->feed)->vocab_fp, sizeof run->state.vocab_fp);
    return 0;
}

static DatasetUse *find_use(Run *run, const FeedDataset *dataset) {
    RunState *state = &run->state;
    for (int i = 0; i < state->dataset_count; i++)
        if (!memcmp(state->datasets[i].fingerprint, dataset->fingerprint, 32)) return &state->datasets[i];
    if (state->dataset_count == DATASETS_MAX) return NULL;
    DatasetUse *use = &state->datasets[state->dataset_count++];
    memcpy(use->fingerprint, dataset->fingerprint, 32);
    snprintf(use->name, sizeof use->name, "%s", run->replays ? run->replayed.name : dataset->name);
    return use;
}

static void add_change(RunState *state, const DatasetUse *old, const DatasetUse *new) {
    if (state->change_count == CHANGES_MAX)
        memmove(state->changes, state->changes + 1, sizeof *state->changes * (size_t)--state->change_count);
    DatasetChange *change = &state->changes[state->change_count++];
    *change = (DatasetChange){.step = state->step, .consumed = new->consumed};
    memcpy(change->old, old->fingerprint, 32);
    memcpy(change->new, new->fingerprint, 32);
}

static int log_change(const Run *run, const DatasetUse *old, const FeedDataset *new) {
    char old_hex[65], new_hex[65];
    hex_encode(old_hex, old->fingerprint, 32);
    hex_encode(new_hex, new->fingerprint, 32);
    log_warn("the dataset is now '%s' (%.16s), was '%s' (%.16s), from step %llu on", new->name, new_hex, old->name,
             old_hex, (unsigned long long)run->state.step + 1);
    if (run->config.on_dataset_change != ON_CHANGE_STOP) return 0;
    return fail(EX_AGAIN, "stopped: the loader has another dataset, and on_dataset_change is stop");
}

static bool is_mixture(const Run *run) { return feed_dataset(run->feed)->source_count > 1; }

// Whether the samples of training are those of a mixture's datasets as one split, without their weights.
static bool is_joined(const Run *run) { return is_mixture(run) && sampling_ends((unsigned)run->config.sampling); }

// Of a mixture: its datasets with their weights, of MIXTURE_SUM, at this sample, or with their tokens where they are
// joined.
static void add_sources(Buffer *line, const Run *run, uint64_t sample) {
    const FeedDataset *dataset = feed_dataset(run->feed);
    if (!is_mixture(run)) return;
    for (unsigned i = 0; i < dataset->source_count; i++) {
        buffer_print(line, i ? ", {\"name\": " : ", \"sources\": [{\"name\": ");
        json_add_string(line, dataset->sources[i].name);
        if (is_joined(run))
            buffer_print(line, ", \"tokens\": %" PRIu64 "}", dataset->sources[i].tokens[SPLIT_TRAIN]);
        else
            buffer_print(line, ", \"weight\": %u}", feed_weight(run->feed, i, sample));
    }
    buffer_print(line, "]");
}

// `old` is NULL for the first dataset of the run. `from`: the sample from which on the weights hold, if it is a later one.
static void record_weights(Run *run, const DatasetUse *use, const DatasetUse *old, uint64_t from) {
    char hex[65];
    Buffer line = {0};
    buffer_print(&line, "\"dataset\": ");
    json_add_string(&line, use->name);
    hex_encode(hex, use->fingerprint, 32);
    buffer_print(&line, ", \"fingerprint\": \"%s\"", hex);
    add_sources(&line, run, from ? from : use->consumed);
    if (from) buffer_print(&line, ", \"weights_from\": %" PRIu64, from);
    if (old) {
        hex_encode(hex, old->fingerprint, 32);
        buffer_print(&line, ", \"old\": \"%s\", \"consumed\": %" PRIu64, hex, use->consumed);
    }
    metrics_add(&run->metrics, run->state.step, "%.*s", (int)line.size, (const char *)line.data);
    buffer_close(&line);
}

// A line for each of the weights that the loader's schedule has from `from` on, or from the next sample on.
static void record_use(Run *run, const DatasetUse *use, const DatasetUse *old, uint64_t from) {
    record_weights(run, use, old, from);
    if (!is_mixture(run) || is_joined(run)) return;
    for (uint64_t next = from ? from : use->consumed; (next = feed_weights_end(run->feed, next)) != UINT64_MAX;)
        record_weights(run, use, NULL, next);
}

int run_data_check_complete(const Run *run) {
    const FeedDataset *dataset = feed_dataset(run->feed);
    const DatasetUse *last = &run->state.datasets[run->state.dataset];
    if (!run_is_complete(run) || !run->state.dataset_count || dataset->same_samples) return 0;
    if (!memcmp(last->fingerprint, dataset->fingerprint, sizeof last->fingerprint)) return 0;
    return fail(EX_USAGE,
                "the run in '%s' is complete (step %llu of %lld), nothing was trained: the dataset is '%s', was '%s' "
                "(raise max_iters to go on; another out_dir, or --fresh, starts a new run)",
                run->config.out_dir, (unsigned long long)run->state.step, (long long)run->config.max_iters,
                dataset->name, last->name);
}

static int check_replayed(const Run *run, const FeedDataset *dataset) {
    char hex[65], other[65];
    if (!memcmp(run->replayed.fingerprint, dataset->fingerprint, 32)) return 0;
    hex_encode(hex, run->replayed.fingerprint, 32), hex_encode(other, dataset->fingerprint, 32);
    return fail(
        EX_NOINPUT,
        "step %llu used the dataset '%s' (%.16s), and '%s' is another (%.16s): name it by --dataset, or serve it "
        "and give --loader",
        (unsigned long long)run->state.step + 1, run->replayed.name, hex, dataset->name, other);
}

static int check_pass(const Run *run, const DatasetUse *use) {
    return run->replays ? 0 : data_check_pass(&run->config, feed_dataset(run->feed), run->state.step, use->consumed);
}

int run_data_update(Run *run) {
    RunState *state = &run->state;
    const FeedDataset *dataset = feed_dataset(run->feed);
    const DatasetUse *old = state->dataset_count ? run_use(run) : NULL;
    if (run->replays && check_replayed(run, dataset) < 0) return -1;
    if (old && !memcmp(old->fingerprint, dataset->fingerprint, 32)) return check_pass(run, old);
    if (data_check(&run->config, dataset) < 0) return -1;
    // A mixture with further weights from a later sample on is the same stream of samples until there.
    const bool extended = old && dataset->same_samples && old->consumed <= dataset->same_samples;
    if (extended)
        log_line("the weights of '%s' change at sample %llu", dataset->name, (unsigned long long)dataset->same_samples);
    else if (old && log_change(run, old, dataset) < 0)
        return -1;
    DatasetUse *use = find_use(run, dataset);
    if (!use) return fail(EX_USAGE, "more than %d datasets in one run", DATASETS_MAX);
    if (extended) use->consumed = old->consumed;
    if (check_pass(run, use) < 0) return -1;
    state->dataset = (int)(use - state->datasets);
    state->skip_from = state->skip_to = 0;
    if (old) add_change(state, old, use);
    if (is_joined(run))
        log_line(
            "in this order of samples the %u datasets of '%s' are one split: their weights count in evaluations alone",
            dataset->source_count, dataset->name);
    record_use(run, use, old, extended ? dataset->same_samples : 0);
    return 0;
}
