// The feed of a run, and the change from one dataset to another.
#include "trainer/engine/engine_data.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/json_write.h"
#include "common/log.h"
#include "common/machine/stop.h"
#include "trainer/setup/data_check.h"
#include "trainer/setup/vocabulary.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// Called while a rank waits for data, which never comes when the rank that started the loader has ended.
static int check_while_waiting(void *self) {
    Engine *engine = self;
    if (loader_process_check(&engine->loader_process) < 0) return -1;
    return collective_check_ended(&engine->collective);
}

int engine_data_open(Engine *engine) {
    const Config *config = &engine->config;
    int64_t rows =
        config->batch_size.value > config->eval_batch_size ? config->batch_size.value : config->eval_batch_size;
    FeedConfig feed = {
        .vocab_size = (uint32_t)engine->model.shape.vocab,
        .sequence_tokens = (uint32_t)config->block_size,
        .max_rows = (uint32_t)rows,
        .pin = engine->backend->pin,
        .unpin = engine->backend->unpin,
        .stop = &stop_requested,
    };
    loader_process_configure(&engine->loader_process, config, &feed);
    feed.while_waiting = check_while_waiting, feed.while_waiting_self = engine;
    memcpy(feed.vocab_fp, engine->state.vocab_fp, sizeof feed.vocab_fp);
    if (vocabulary_fingerprint(config, feed.vocab_fp) < 0) return -1;
    if (vocabulary_token_bytes(config, engine->token_bytes) < 0) return -1;
    if (*engine->begins_with && memcmp(feed.vocab_fp, engine->state.vocab_fp, sizeof feed.vocab_fp))
        return fail(EX_PROTOCOL,
                    "'%s' is another vocabulary than that with which the run in '%s' was trained: name the right file "
                    "by --vocabulary",
                    config->vocabulary, config->out_dir);
    if (engine->state.dataset_count) memcpy(feed.dataset, engine_use(engine)->fingerprint, sizeof feed.dataset);
    if (engine->recorded) memcpy(feed.dataset, engine->recorded->fingerprint, sizeof feed.dataset);
    feed.as_before = engine->recorded;
    engine->feed = feed_open(&feed);
    if (!engine->feed || data_check(config, feed_dataset(engine->feed)) < 0) return -1;
    engine->source = source_of_feed(engine->feed);
    memcpy(engine->state.vocab_fp, feed_dataset(engine->feed)->vocab_fp, sizeof engine->state.vocab_fp);
    return 0;
}

static DatasetUse *find_use(Engine *engine, const FeedDataset *dataset) {
    RunState *state = &engine->state;
    for (int i = 0; i < state->dataset_count; i++)
        if (!memcmp(state->datasets[i].fingerprint, dataset->fingerprint, 32)) return &state->datasets[i];
    if (state->dataset_count == DATASETS_MAX) return NULL;
    DatasetUse *use = &state->datasets[state->dataset_count++];
    memcpy(use->fingerprint, dataset->fingerprint, 32);
    snprintf(use->name, sizeof use->name, "%s", engine->recorded ? engine->recorded->name : dataset->name);
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

static int log_change(const Engine *engine, const DatasetUse *old, const FeedDataset *new) {
    char old_hex[65], new_hex[65];
    hex_encode(old_hex, old->fingerprint, 32);
    hex_encode(new_hex, new->fingerprint, 32);
    log_warn("the dataset is now '%s' (%.16s), was '%s' (%.16s), from step %llu on", new->name, new_hex, old->name,
             old_hex, (unsigned long long)engine->state.step + 1);
    if (engine->config.on_dataset_change != ON_CHANGE_STOP) return 0;
    return fail(EX_AGAIN, "stopped: the loader has another dataset, and on_dataset_change is stop");
}

static bool is_mixture(const Engine *engine) { return feed_dataset(engine->feed)->source_count > 1; }

// Whether the samples of training come from a mixture's datasets as one split, without their weights.
static bool is_joined(const Engine *engine) {
    return is_mixture(engine) && sampling_ends((unsigned)engine->config.sampling);
}

// Adds the datasets of a mixture with their weights, of MIXTURE_SUM, at this sample, or with their tokens if they are
// joined.
static void add_sources(Buffer *line, const Engine *engine, uint64_t sample) {
    const FeedDataset *dataset = feed_dataset(engine->feed);
    if (!is_mixture(engine)) return;
    for (unsigned i = 0; i < dataset->source_count; i++) {
        buffer_print(line, i ? ", {\"name\": " : ", \"sources\": [{\"name\": ");
        json_add_string(line, dataset->sources[i].name);
        if (is_joined(engine))
            buffer_print(line, ", \"tokens\": %" PRIu64 "}", dataset->sources[i].tokens[SPLIT_TRAIN]);
        else
            buffer_print(line, ", \"weight\": %u}", feed_weight(engine->feed, i, sample));
    }
    buffer_print(line, "]");
}

// `old` is NULL for the first dataset of the run. `from`: the sample from which on the weights hold, if it is a later
// one.
static void record_weights(Engine *engine, const DatasetUse *use, const DatasetUse *old, uint64_t from) {
    char hex[65];
    Buffer line = {0};
    buffer_print(&line, ", \"dataset\": ");
    json_add_string(&line, use->name);
    hex_encode(hex, use->fingerprint, 32);
    buffer_print(&line, ", \"fingerprint\": \"%s\"", hex);
    add_sources(&line, engine, from ? from : use->consumed);
    if (from) buffer_print(&line, ", \"weights_from\": %" PRIu64, from);
    if (old) {
        hex_encode(hex, old->fingerprint, 32);
        buffer_print(&line, ", \"old\": \"%s\", \"consumed\": %" PRIu64, hex, use->consumed);
    }
    engine_record(engine, &line);
}

// A line for each of the weights that the loader's schedule has from `from` on, or from the next sample on.
static void record_use(Engine *engine, const DatasetUse *use, const DatasetUse *old, uint64_t from) {
    record_weights(engine, use, old, from);
    if (!is_mixture(engine) || is_joined(engine)) return;
    for (uint64_t next = from ? from : use->consumed; (next = feed_weights_end(engine->feed, next)) != UINT64_MAX;)
        record_weights(engine, use, NULL, next);
}

// Whether the order of samples has enough of them for the steps that are left.
static int check_pass(const Engine *engine, const DatasetUse *use) {
    return data_check_pass(&engine->config, feed_dataset(engine->feed), engine->state.step, use->consumed);
}

int engine_data_update(Engine *engine, bool trains) {
    RunState *state = &engine->state;
    const FeedDataset *dataset = feed_dataset(engine->feed);
    const DatasetUse *old = state->dataset_count ? engine_use(engine) : NULL;
    if (old && !memcmp(old->fingerprint, dataset->fingerprint, 32)) return trains ? check_pass(engine, old) : 0;
    if (data_check(&engine->config, dataset) < 0) return -1;
    // A mixture with further weights from a later sample on is the same stream of samples until there.
    const uint64_t same = old ? feed_same_samples(engine->feed, old->fingerprint) : 0;
    const bool extended = same && old->consumed <= same;
    if (extended)
        log_line("the weights of '%s' change at sample %llu", dataset->name, (unsigned long long)same);
    else if (old && log_change(engine, old, dataset) < 0)
        return -1;
    DatasetUse *use = find_use(engine, dataset);
    if (!use) return fail(EX_USAGE, "more than %d datasets in one run", DATASETS_MAX);
    if (extended) use->consumed = old->consumed;
    if (trains && check_pass(engine, use) < 0) return -1;
    state->dataset = (int)(use - state->datasets);
    state->skip_from = state->skip_to = 0;
    if (old) add_change(state, old, use);
    if (is_joined(engine))
        log_line(
            "in this order of samples the %u datasets of '%s' are one split: their weights count in evaluations alone",
            dataset->source_count, dataset->name);
    record_use(engine, use, old, extended ? same : 0);
    return 0;
}
