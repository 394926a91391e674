// The JSON documents of a checkpoint.
#include "trainer/checkpoint/run_state.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/hash.h"
#include "common/log.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>

enum { FORMAT = 1, HASH_DIGITS = 2 * SAFE_HASH_BYTES };

void run_state_init(RunState *state) { *state = (RunState){.first_loss = NAN, .last_loss = NAN, .best_loss = NAN}; }

// ---- to text

static json_t *hex(const void *data, size_t size) {
    char digits[65];
    hex_encode(digits, data, size);
    return json_string(digits);
}

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }
static json_t *real(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *datasets_json(const RunState *state) {
    json_t *list = json_array();
    for (int i = 0; i < state->dataset_count; i++) {
        const DatasetUse *use = &state->datasets[i];
        json_array_append_new(list, json_pack("{s:o, s:s, s:o}", "fingerprint", hex(use->fingerprint, 32), "name",
                                              use->name, "consumed", number(use->consumed)));
    }
    return list;
}

static json_t *changes_json(const RunState *state) {
    json_t *list = json_array();
    for (int i = 0; i < state->change_count; i++) {
        const DatasetChange *change = &state->changes[i];
        json_array_append_new(list, json_pack("{s:o, s:o, s:o, s:o}", "step", number(change->step), "old",
                                              hex(change->old, 32), "new", hex(change->new, 32), "consumed",
                                              number(change->consumed)));
    }
    return list;
}

static json_t *loss_scaler_json(const LossScaler *scaler) {
    return json_pack("{s:f, s:o, s:o}", "scale", (double)scaler->scale, "good", number(scaler->good), "overflow_streak",
                     number(scaler->overflow_streak));
}

static json_t *series_json(const SpikeSeries *series) {
    json_t *list = json_array();
    for (int i = 0; i < series->count; i++) json_array_append_new(list, json_real(series->values[i]));
    return list;
}

static json_t *config_json(const Config *config) {
    json_t *object = json_object();
    for (int key = 0; key < KEY_COUNT; key++) {
        char value[256], initial[256];
        if (config_class(key) == CLASS_PLACE) continue;
        config_value(config, key, value, sizeof value);
        config_default(key, initial, sizeof initial);
        if (config_class(key) == CLASS_OPTION && !strcmp(value, initial)) continue;
        json_object_set_new(object, config_key(key), json_string(value));
    }
    return object;
}

// The hash is written as the last key, over all text before it: `, "hash": "..."}\n` has a fixed length.
static const char hash_head[] = ",\n \"hash\": \"", hash_tail[] = "\"\n}\n";

void run_state_print(const RunState *state, const Config *config, const CheckpointHashes *hashes, Buffer *out) {
    json_t *root = json_object();
    json_object_set_new(root, "format", json_integer(FORMAT));
    json_object_set_new(root, "step", number(state->step));
    json_object_set_new(root, "updates", number(state->updates));
    json_object_set_new(root, "tokens", number(state->tokens));
    json_object_set_new(root, "nonfinite", number(state->nonfinite));
    json_object_set_new(root, "nonfinite_streak", number(state->nonfinite_streak));
    if (state->scaler.scale > 0) json_object_set_new(root, "scaler", loss_scaler_json(&state->scaler));
    json_object_set_new(root, "spike_losses", series_json(&state->spikes.loss));
    json_object_set_new(root, "spike_norms", series_json(&state->spikes.norm));
    json_object_set_new(root, "evaluated", json_boolean(state->evaluated));
    json_object_set_new(root, "first_loss", real(state->first_loss));
    json_object_set_new(root, "last_loss", real(state->last_loss));
    json_object_set_new(root, "best_loss", real(state->best_loss));
    json_object_set_new(root, "best_step", number(state->best_step));
    json_object_set_new(root, "vocabulary", hex(state->vocab_fp, 32));
    json_object_set_new(root, "datasets", datasets_json(state));
    json_object_set_new(root, "dataset", json_integer(state->dataset));
    json_object_set_new(root, "changes", changes_json(state));
    json_object_set_new(root, "rolled_back", json_boolean(state->rolled_back));
    json_object_set_new(root, "skip_from", number(state->skip_from));
    json_object_set_new(root, "skip_to", number(state->skip_to));
    if (*state->choices) json_object_set_new(root, "choices", json_string(state->choices));
    json_object_set_new(root, "model_hash", hex(hashes->model, SAFE_HASH_BYTES));
    json_object_set_new(root, "optimizer_hash", hex(hashes->optimizer, SAFE_HASH_BYTES));
    json_object_set_new(root, "model_config_hash", hex(hashes->model_config, SAFE_HASH_BYTES));
    json_object_set_new(root, "config", config_json(config));
    char *text = json_dumps(root, JSON_INDENT(1)), digits[HASH_DIGITS + 1];
    if (!text) die(EX_MEMORY, "no memory for the state of the run");
    size_t length = strlen(text) - 2; // without "\n}"
    uint8_t hash[SAFE_HASH_BYTES];
    safe_hash(text, length, hash);
    hex_encode(digits, hash, sizeof hash);
    buffer_add(out, text, length);
    buffer_print(out, "%s%s%s", hash_head, digits, hash_tail);
    free(text);
    json_decref(root);
}

// ---- from text

// Version 0.1.0 wrote some numbers under other names.
static const struct {
    const char *key, *old;
} renamed[] = {{"nonfinite_streak", "nonfinite_row"},
               {"skip_from", "pass_from"},
               {"skip_to", "pass_to"},
               {"overflow_streak", "excused"}};

static bool take_number(const json_t *object, const char *key, uint64_t *value) {
    const json_t *found = json_object_get(object, key);
    for (size_t i = 0; !found && i < sizeof renamed / sizeof *renamed; i++)
        if (!strcmp(key, renamed[i].key)) found = json_object_get(object, renamed[i].old);
    *value = (uint64_t)json_integer_value(found);
    return json_is_integer(found) && json_integer_value(found) >= 0;
}

static bool take_real(const json_t *object, const char *key, double *value) {
    const json_t *found = json_object_get(object, key);
    *value = json_is_real(found) ? json_real_value(found) : NAN;
    return json_is_real(found) || json_is_null(found);
}

static bool take_hex(const json_t *object, const char *key, void *data, size_t size) {
    const char *digits = json_string_value(json_object_get(object, key));
    return digits && hex_decode(data, digits, size) == 0;
}

static bool take_datasets(const json_t *list, RunState *state) {
    if (!json_is_array(list) || json_array_size(list) > DATASETS_MAX) return false;
    state->dataset_count = (int)json_array_size(list);
    for (int i = 0; i < state->dataset_count; i++) {
        const json_t *entry = json_array_get(list, (size_t)i);
        DatasetUse *use = &state->datasets[i];
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (!name || !take_hex(entry, "fingerprint", use->fingerprint, 32) ||
            !take_number(entry, "consumed", &use->consumed))
            return false;
        snprintf(use->name, sizeof use->name, "%s", name);
    }
    return true;
}

static bool take_changes(const json_t *list, RunState *state) {
    if (!json_is_array(list) || json_array_size(list) > CHANGES_MAX) return false;
    state->change_count = (int)json_array_size(list);
    for (int i = 0; i < state->change_count; i++) {
        const json_t *entry = json_array_get(list, (size_t)i);
        DatasetChange *change = &state->changes[i];
        if (!take_number(entry, "step", &change->step) || !take_hex(entry, "old", change->old, 32) ||
            !take_hex(entry, "new", change->new, 32) || !take_number(entry, "consumed", &change->consumed))
            return false;
    }
    return true;
}

// Runs in fp16 have one.
static bool take_scaler(const json_t *object, LossScaler *scaler) {
    double scale = 0;
    uint64_t good = 0, overflow_streak = 0;
    if (object && !(take_real(object, "scale", &scale) && scale >= 1 && scale <= 0x1p127 &&
                    take_number(object, "good", &good) && take_number(object, "overflow_streak", &overflow_streak)))
        return false;
    *scaler = (LossScaler){(float)scale, (uint32_t)good, (uint32_t)overflow_streak};
    return true;
}

// Checkpoints of version 0.1.0 have none.
static bool take_series(const json_t *list, SpikeSeries *series) {
    series->count = (int)json_array_size(list);
    if (list && (!json_is_array(list) || json_array_size(list) > SPIKE_WINDOW)) return false;
    for (int i = 0; i < series->count; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        if (!json_is_real(value)) return false;
        series->values[i] = json_real_value(value);
    }
    return true;
}

// Runs on a GPU have some.
static bool take_choices(const json_t *text, char choices[CHOICES_BYTES]) {
    *choices = 0;
    if (!text) return true;
    if (!json_is_string(text) || json_string_length(text) >= CHOICES_BYTES) return false;
    memcpy(choices, json_string_value(text), json_string_length(text) + 1);
    return true;
}

static bool take_state(SavedState *saved, const json_t *root) {
    RunState *state = &saved->state;
    uint64_t dataset;
    state->rolled_back = json_is_true(json_object_get(root, "rolled_back"));
    state->evaluated = json_is_true(json_object_get(root, "evaluated"));
    bool whole = take_number(root, "step", &state->step) && take_number(root, "updates", &state->updates) &&
                 take_number(root, "nonfinite", &state->nonfinite) &&
                 take_number(root, "nonfinite_streak", &state->nonfinite_streak) &&
                 take_scaler(json_object_get(root, "scaler"), &state->scaler) &&
                 take_series(json_object_get(root, "spike_losses"), &state->spikes.loss) &&
                 take_series(json_object_get(root, "spike_norms"), &state->spikes.norm) &&
                 take_real(root, "first_loss", &state->first_loss) && take_real(root, "last_loss", &state->last_loss) &&
                 take_real(root, "best_loss", &state->best_loss) && take_number(root, "best_step", &state->best_step) &&
                 take_hex(root, "vocabulary", state->vocab_fp, 32) &&
                 take_datasets(json_object_get(root, "datasets"), state) && take_number(root, "dataset", &dataset) &&
                 take_changes(json_object_get(root, "changes"), state) &&
                 take_number(root, "skip_from", &state->skip_from) && take_number(root, "skip_to", &state->skip_to) &&
                 take_choices(json_object_get(root, "choices"), state->choices) &&
                 take_hex(root, "model_hash", saved->hashes.model, SAFE_HASH_BYTES) &&
                 take_hex(root, "optimizer_hash", saved->hashes.optimizer, SAFE_HASH_BYTES);
    if (json_object_get(root, "tokens")) whole = whole && take_number(root, "tokens", &state->tokens);
    saved->hashes.has_model_config = json_object_get(root, "model_config_hash");
    if (saved->hashes.has_model_config)
        whole = whole && take_hex(root, "model_config_hash", saved->hashes.model_config, SAFE_HASH_BYTES);
    if (!whole || dataset >= (uint64_t)state->dataset_count) return false;
    state->dataset = (int)dataset;
    saved->config = json_incref(json_object_get(root, "config"));
    return json_is_object(saved->config);
}

int saved_state_parse(SavedState *saved, Bytes text) {
    size_t tail = sizeof hash_head - 1 + HASH_DIGITS + sizeof hash_tail - 1;
    char digits[HASH_DIGITS + 1], end[sizeof hash_head + HASH_DIGITS + sizeof hash_tail];
    uint8_t hash[SAFE_HASH_BYTES];
    if (text.size <= tail) return fail(EX_DATA, "cut short");
    safe_hash(text.data, text.size - tail, hash);
    hex_encode(digits, hash, sizeof hash);
    snprintf(end, sizeof end, "%s%s%s", hash_head, digits, hash_tail);
    if (memcmp(text.data + text.size - tail, end, tail)) return fail(EX_DATA, "damaged");
    json_t *root = json_loadb((const char *)text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
    json_int_t format = json_integer_value(json_object_get(root, "format"));
    int result = 0;
    if (!root)
        result = fail(EX_DATA, "not JSON");
    else if (format > FORMAT)
        result =
            fail(EX_DATA, "written by a newer trainer (format %lld, this one reads %d)", (long long)format, FORMAT);
    else if (!take_state(saved, root))
        result = fail(EX_DATA, "a key is missing or of another type");
    json_decref(root);
    return result;
}

void saved_state_close(SavedState *saved) {
    json_decref(saved->config);
    saved->config = NULL;
}

int saved_state_compare(const SavedState *saved, const Config *config, const char *path) {
    Buffer differences = {0};
    for (int key = 0; key < KEY_COUNT; key++) {
        char now[256], initial[256];
        const char *then = json_string_value(json_object_get(saved->config, config_key(key)));
        config_value(config, key, now, sizeof now);
        config_default(key, initial, sizeof initial);
        if (!then && config_class(key) == CLASS_OPTION) then = initial;
        if (config_class(key) == CLASS_PLACE || !then) continue;
        char was[256];
        Config earlier = *config; // older spellings of a word have the same value
        if (config_parse(&earlier, key, then)) config_value(&earlier, key, was, sizeof was), then = was;
        if (!strcmp(then, now)) continue;
        if (config_class(key) == CLASS_RUN)
            log_line("%s is now %s, was %s until step %llu", config_key(key), now, then,
                     (unsigned long long)saved->state.step);
        else
            buffer_print(&differences, "%s%s is %s, was %s", differences.size ? "; " : "", config_key(key), now, then);
    }
    int result = 0;
    if (differences.size)
        result =
            fail(EX_USAGE, "the checkpoint '%s' is of another run: %s (another out_dir, or --fresh, starts a new one)",
                 path, (const char *)differences.data);
    buffer_close(&differences);
    return result;
}

static int64_t saved_int(const SavedState *saved, int key) {
    const char *text = json_string_value(json_object_get(saved->config, config_key(key)));
    return text ? strtoll(text, NULL, 10) : 0;
}

static void saved_value(const SavedState *saved, int key, Config *config) {
    const char *text = json_string_value(json_object_get(saved->config, config_key(key)));
    if (text) config_parse(config, key, text);
}

void saved_state_settings(const SavedState *saved, Config *config) {
    static const int keys[] = {KEY_dtype,      KEY_batch_size,  KEY_block_size,      KEY_document_mask,
                               KEY_eval_iters, KEY_eval_tokens, KEY_eval_block_size, KEY_always_save_checkpoint};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) saved_value(saved, keys[i], config);
}

void saved_state_resolve_auto(const SavedState *saved, Config *config) {
    int64_t rows = saved_int(saved, KEY_batch_size), micros = saved_int(saved, KEY_gradient_accumulation_steps);
    int64_t asked = config->batch_size.value;
    if (config->dtype == DTYPE_AUTO) saved_value(saved, KEY_dtype, config);
    if (config->recompute == RECOMPUTE_AUTO)
        saved_value(saved, KEY_recompute, config), saved_value(saved, KEY_recompute_layers, config);
    if (!config->loss_chunk_rows) saved_value(saved, KEY_loss_chunk_rows, config);
    if (!config->batch_size.is_auto || rows * micros != asked * config->gradient_accumulation_steps) return;
    if (!config->eval_tokens) config->eval_tokens = config->eval_iters * asked * config_eval_block(config);
    config->batch_size = (AutoInt){false, rows}, config->gradient_accumulation_steps = micros;
}
