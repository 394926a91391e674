// The data of a run's base.
#include "trainer/audit/base_data.h"
#include "common/err.h"
#include "common/log.h"
#include "dataset/val_rule.h"
#include "trainer/audit/record.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/checkpoint/saved_state.h"
#include <string.h>

static bool read_rule(const char *path, const uint8_t fingerprint[32], ValRule *rule) {
    Dataset dataset;
    const bool found = dataset_open_manifest(&dataset, path) == 0 && !memcmp(dataset.fingerprint, fingerprint, 32);
    if (found) *rule = val_rule_of(&dataset);
    dataset_close(&dataset);
    err_clear(); // another dataset may lie there now
    return found;
}

// The rule of a dataset that the run of `record` has read.
static bool recorded_rule(const Record *record, const uint8_t fingerprint[32], ValRule *rule) {
    char path[PATH_MAX_BYTES];
    RecordLine line;
    for (Bytes rest = record->text; record_next(record, &rest, &line) > 0;)
        if (line.kind == LINE_PROCESS && record_text(&line, "data", path, sizeof path) &&
            read_rule(path, fingerprint, rule))
            return true;
    return err_clear(), false;
}

static void compare(const Engine *engine, const Record *record, const DatasetUse *base) {
    const FeedDataset *dataset = feed_dataset(engine->feed);
    char path[PATH_MAX_BYTES], text[VAL_RULE_TEXT], base_text[VAL_RULE_TEXT];
    ValRule rule, base_rule;
    if (*engine->config.loader || !loader_process_dataset(path, &engine->config) ||
        !read_rule(path, dataset->fingerprint, &rule) || !recorded_rule(record, base->fingerprint, &base_rule))
        log_line(
            "the weights were trained on '%s', and how that and '%s' chose their validation documents is not known here",
            base->name, dataset->name);
    else if (!val_rule_same(&rule, &base_rule))
        log_warn(
            "the weights were trained on '%s', made with %s, and '%s' was made with %s: of a document of both, one may "
            "be trained on and the other validated on: tokenize both with one --val and --seed",
            base->name, val_rule_text(&base_rule, base_text), dataset->name, val_rule_text(&rule, text));
}

// With each dataset that a run has read up to this state.
static void compare_all(const Engine *engine, const char *run, const RunState *trained) {
    const uint8_t *own = feed_dataset(engine->feed)->fingerprint;
    Record record = {0};
    if (record_open(&record, run) == 0)
        for (int i = 0; i < trained->dataset_count; i++) {
            const DatasetUse *use = &trained->datasets[i];
            if (use->consumed && memcmp(use->fingerprint, own, 32)) compare(engine, &record, use);
        }
    err_clear();
    record_close(&record);
}

void base_data_compare(const Engine *engine) {
    const RunState *state = &engine->state;
    char path[PATH_MAX_BYTES], run[PATH_MAX_BYTES];
    SavedState base = {0};
    if (state->step && !state->datasets[state->dataset].consumed) compare_all(engine, engine->config.out_dir, state);
    if (state->step || !*state->init_from) return;
    model_path(path, state->init_from, engine->config.out_dir);
    path_split(path, run);
    if (saved_state_read(&base, path) == 0) compare_all(engine, run, &base.state);
    err_clear(); // the model of another program: its data is not known
    saved_state_close(&base);
}
