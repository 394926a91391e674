// state.json of a checkpoint, to and from text.
#include "trainer/checkpoint/run_state.h"
#include "common/err.h"
#include "common/hash.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FORMAT = 1, HASH_DIGITS = 2 * SAFE_HASH_BYTES };

void run_state_init(RunState *state) {
    *state = (RunState){.chain_rule = CHAIN_RULE, .bits = BITS, .first_loss = NAN, .last_loss = NAN, .best_loss = NAN};
}

// The fields of state.json, in its order: FIELD(kind, name, where `state` or `hashes` holds it). A kind has two
// functions: KIND_json returns the JSON, or NULL for a field that is left out, and take_KIND reads it. false: it is
// missing or of another type.
#define FIELDS(FIELD)                                                                                                  \
    FIELD(number, "step", &state->step)                                                                                \
    FIELD(number, "updates", &state->updates)                                                                          \
    FIELD(new_number, "tokens", &state->tokens)                                                                        \
    FIELD(link, "chain", state->chain)                                                                                 \
    FIELD(rule, "chain_rule", &state->chain_rule)                                                                      \
    FIELD(bits, "bits", &state->bits)                                                                                  \
    FIELD(new_number, "sampling_number", &state->sampling)                                                             \
    FIELD(number, "nonfinite", &state->nonfinite)                                                                      \
    FIELD(number, "nonfinite_streak", &state->nonfinite_streak)                                                        \
    FIELD(scaler, "scaler", &state->scaler)                                                                            \
    FIELD(series, "spike_losses", &state->spikes.loss)                                                                 \
    FIELD(series, "spike_norms", &state->spikes.norm)                                                                  \
    FIELD(cooldown, "cooldown", &state->cooldown)                                                                      \
    FIELD(flag, "evaluated", &state->evaluated)                                                                        \
    FIELD(real, "first_loss", &state->first_loss)                                                                      \
    FIELD(real, "last_loss", &state->last_loss)                                                                        \
    FIELD(real, "best_loss", &state->best_loss)                                                                        \
    FIELD(number, "best_step", &state->best_step)                                                                      \
    FIELD(new_number, "eval_rule", &state->eval_rule)                                                                  \
    FIELD(fingerprint, "vocabulary", state->vocab_fp)                                                                  \
    FIELD(datasets, "datasets", state)                                                                                 \
    FIELD(index, "dataset", &state->dataset)                                                                           \
    FIELD(changes, "changes", state)                                                                                   \
    FIELD(flag, "rolled_back", &state->rolled_back)                                                                    \
    FIELD(number, "skip_from", &state->skip_from)                                                                      \
    FIELD(number, "skip_to", &state->skip_to)                                                                          \
    FIELD(text, "choices", state->choices)                                                                             \
    FIELD(text, "init_from", state->init_from)                                                                         \
    FIELD(hash, "model_hash", hashes->model)                                                                           \
    FIELD(hash, "optimizer_hash", hashes->optimizer)                                                                   \
    FIELD(new_hash, "model_config_hash", hashes)

// ---- to text

static json_t *hex(const void *data, size_t size) {
    char digits[65];
    hex_encode(digits, data, size);
    return json_string(digits);
}

uint64_t run_state_own_samples(const RunState *state, int dataset) {
    const DatasetUse *use = &state->datasets[dataset];
    for (int i = 0; dataset && state->change_count < CHANGES_MAX && i < state->change_count; i++)
        if (!memcmp(state->changes[i].new, use->fingerprint, sizeof use->fingerprint))
            return use->consumed -
                   state->changes[i].consumed; // at its first change only a dataset that continues has any
    return use->consumed;
}

static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }
static json_t *number_json(const uint64_t *value) { return number(*value); }
static json_t *new_number_json(const uint64_t *value) { return number(*value); }
static json_t *rule_json(const uint64_t *value) { return *value ? number(*value) : NULL; }
static json_t *bits_json(const uint64_t *value) { return number(*value); }
static json_t *index_json(const int *value) { return json_integer(*value); }
static json_t *real_json(const double *value) { return isfinite(*value) ? json_real(*value) : json_null(); }
static json_t *flag_json(const bool *value) { return json_boolean(*value); }
static json_t *fingerprint_json(const uint8_t *value) { return hex(value, 32); }
static json_t *link_json(const uint8_t *value) {
    static const uint8_t none[32];
    return memcmp(value, none, sizeof none) ? hex(value, sizeof none) : NULL; // before the first step
}
static json_t *hash_json(const uint8_t *value) { return hex(value, SAFE_HASH_BYTES); }
static json_t *new_hash_json(const CheckpointHashes *hashes) { return hash_json(hashes->model_config); }
static json_t *text_json(const char *value) { return *value ? json_string(value) : NULL; }

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

static json_t *scaler_json(const LossScaler *scaler) {
    if (!(scaler->scale > 0)) return NULL; // a run without loss scaling
    return json_pack("{s:f, s:o, s:o}", "scale", (double)scaler->scale, "good", number(scaler->good), "overflow_streak",
                     number(scaler->overflow_streak));
}

static json_t *cooldown_json(const Cooldown *cooldown) {
    if (!cooldown->begun || schedule_ends_uncooled(cooldown)) return NULL; // another time continues the run
    return json_pack("{s:o, s:o, s:o, s:f, s:b}", "begun", number(cooldown->begun), "from", number(cooldown->from),
                     "steps", number(cooldown->steps), "done", cooldown->done, "at_once", cooldown->at_once);
}

static json_t *series_json(const SpikeSeries *series) {
    json_t *list = json_array();
    for (int i = 0; i < series->count; i++) json_array_append_new(list, json_real(series->values[i]));
    return list;
}

// Whether a checkpoint has the key, with this value.
static bool has_key(const Config *config, int key, char value[256]) {
    char initial[256];
    if (config_class(key) == CLASS_PLACE) return false;
    config_value(config, key, value, 256);
    config_default(key, initial, sizeof initial);
    return !config_omits_default(key) || strcmp(value, initial);
}

json_t *run_state_config(const Config *config) {
    json_t *object = json_object();
    char value[256];
    for (int key = 0; key < KEY_COUNT; key++)
        if (has_key(config, key, value)) json_object_set_new(object, config_key(key), json_string(value));
    return object;
}

void run_state_add_defaults(json_t *config) {
    char value[256];
    for (int key = 0; key < KEY_COUNT; key++)
        if (config_omits_default(key) && !json_object_get(config, config_key(key))) {
            config_default(key, value, sizeof value);
            json_object_set_new(config, config_key(key), json_string(value));
        }
}

// Words of version 0.1.0.
static const struct {
    int key;
    const char *old, *word;
} old_words[] = {
    {KEY_recompute, "0", "none"},          {KEY_recompute, "1", "gelu"},        {KEY_recompute, "2", "norm"},
    {KEY_recompute, "3", "mlp"},           {KEY_recompute, "4", "qkv"},         {KEY_recompute, "5", "block"},
    {KEY_optimizer_state, "full", "fp32"}, {KEY_optimizer_state, "m8", "bf16"}, {KEY_optimizer_state, "sr", "bf16_sr"},
};

static const char *text_of(const json_t *config, int key) {
    return json_string_value(json_object_get(config, config_key(key)));
}

static void set_text(json_t *config, int key, const char *text) {
    json_object_set_new(config, config_key(key), json_string(text));
}

// The size of an evaluation was eval_iters batches if eval_tokens was 0.
static void upgrade_eval_iters(json_t *config) {
    static const int keys[] = {KEY_eval_iters, KEY_eval_tokens, KEY_batch_size, KEY_block_size, KEY_eval_block_size};
    Config saved;
    char tokens[32];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const char *text = text_of(config, keys[i]);
        config_default(keys[i], tokens, sizeof tokens);
        if (!config_parse(&saved, keys[i], text ? text : tokens) || !config_in_range(&saved, keys[i])) return;
    }
    snprintf(tokens, sizeof tokens, "%lld", (long long)config_eval_tokens(&saved));
    if (!config_is_default(&saved, KEY_eval_iters)) set_text(config, KEY_eval_tokens, tokens);
}

void run_state_upgrade(json_t *config) {
    const char *decay_lr = text_of(config, KEY_decay_lr);
    if (decay_lr && !strcmp(decay_lr, "False"))
        set_text(config, KEY_lr_schedule, "constant"), set_text(config, KEY_warmup_iters, "0");
    if (text_of(config, KEY_eval_iters)) upgrade_eval_iters(config);
    json_object_del(config, config_key(KEY_decay_lr)), json_object_del(config, config_key(KEY_eval_iters));
    for (size_t i = 0; i < sizeof old_words / sizeof *old_words; i++) {
        const char *word = text_of(config, old_words[i].key);
        if (word && !strcmp(word, old_words[i].old)) set_text(config, old_words[i].key, old_words[i].word);
    }
}

static json_t *values_of(Bytes text) {
    json_t *root = json_loadb((const char *)text.data, text.size, 0, NULL);
    json_object_del(root, "hash");
    run_state_upgrade(json_object_get(root, "config"));
    return root;
}

bool run_state_same(Bytes text, Bytes other) {
    json_t *values = values_of(text), *others = values_of(other);
    const bool same = values && json_equal(values, others);
    json_decref(values), json_decref(others);
    return same;
}

void run_state_print_fixed(const Config *config, Buffer *out) {
    char value[256];
    for (int key = 0; key < KEY_COUNT; key++)
        if (!config_may_change(key) && has_key(config, key, value))
            buffer_print(out, "%s=%s\n", config_key(key), value);
}

// The hash is written as the last key, over all text before it: `, "hash": "..."}\n` has a fixed length.
static const char hash_head[] = ",\n \"hash\": \"", hash_tail[] = "\"\n}\n";

void run_state_print(const RunState *state, const Config *config, const CheckpointHashes *hashes, Buffer *out) {
    json_t *root = json_object();
    json_object_set_new(root, "format", json_integer(FORMAT));
    json_t *value;
#define FIELD(kind, name, member)                                                                                      \
    if ((value = kind##_json(member))) json_object_set_new(root, name, value);
    FIELDS(FIELD)
#undef FIELD
    json_object_set_new(root, "config", run_state_config(config));
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

static const json_t *find(const json_t *object, const char *key) {
    const json_t *found = json_object_get(object, key);
    for (size_t i = 0; !found && i < sizeof renamed / sizeof *renamed; i++)
        if (!strcmp(key, renamed[i].key)) found = json_object_get(object, renamed[i].old);
    return found;
}

static bool take_number(const json_t *found, uint64_t *value) {
    *value = (uint64_t)json_integer_value(found);
    return json_is_integer(found) && json_integer_value(found) >= 0;
}

static bool take_index(const json_t *found, int *value) {
    *value = (int)json_integer_value(found);
    return json_is_integer(found) && json_integer_value(found) == *value && *value >= 0;
}

static bool take_real(const json_t *found, double *value) {
    *value = json_is_real(found) ? json_real_value(found) : NAN;
    return json_is_real(found) || json_is_null(found);
}

static bool take_flag(const json_t *found, bool *value) {
    *value = json_is_true(found);
    return true;
}

static bool take_hex(const json_t *found, uint8_t *data, size_t size) {
    const char *digits = json_string_value(found);
    return digits && hex_decode(data, digits, size) == 0;
}

static bool take_fingerprint(const json_t *found, uint8_t *value) { return take_hex(found, value, 32); }
static bool take_link(const json_t *found, uint8_t *value) { return !found || take_fingerprint(found, value); }
static bool take_hash(const json_t *found, uint8_t *value) { return take_hex(found, value, SAFE_HASH_BYTES); }

// Checkpoints of version 0.1.0 lack the fields that are new.
static bool take_new_number(const json_t *found, uint64_t *value) { return !found || take_number(found, value); }
static bool take_bits(const json_t *found, uint64_t *value) {
    *value = 1;
    return !found || take_number(found, value);
}
static bool take_rule(const json_t *found, uint64_t *value) {
    return take_new_number(found, value) && *value <= CHAIN_RULE;
}
static bool take_new_hash(const json_t *found, CheckpointHashes *hashes) {
    hashes->has_model_config = found;
    return !found || take_hash(found, hashes->model_config);
}

static bool take_datasets(const json_t *list, RunState *state) {
    if (!json_is_array(list) || json_array_size(list) > DATASETS_MAX) return false;
    state->dataset_count = (int)json_array_size(list);
    for (int i = 0; i < state->dataset_count; i++) {
        const json_t *entry = json_array_get(list, (size_t)i);
        DatasetUse *use = &state->datasets[i];
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (!name || !take_fingerprint(find(entry, "fingerprint"), use->fingerprint) ||
            !take_number(find(entry, "consumed"), &use->consumed))
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
        if (!take_number(find(entry, "step"), &change->step) || !take_fingerprint(find(entry, "old"), change->old) ||
            !take_fingerprint(find(entry, "new"), change->new) ||
            !take_number(find(entry, "consumed"), &change->consumed))
            return false;
    }
    return true;
}

// Runs with loss scaling have one.
static bool take_scaler(const json_t *object, LossScaler *scaler) {
    double scale = 0;
    uint64_t good = 0, overflow_streak = 0;
    if (object &&
        !(take_real(find(object, "scale"), &scale) && scale >= 1 && scale <= 0x1p127 &&
          take_number(find(object, "good"), &good) && take_number(find(object, "overflow_streak"), &overflow_streak)))
        return false;
    *scaler = (LossScaler){(float)scale, (uint32_t)good, (uint32_t)overflow_streak};
    return true;
}

static bool take_cooldown(const json_t *found, Cooldown *cooldown) {
    if (!found) return true;
    return take_number(find(found, "begun"), &cooldown->begun) && take_number(find(found, "from"), &cooldown->from) &&
           take_number(find(found, "steps"), &cooldown->steps) && take_real(find(found, "done"), &cooldown->done) &&
           take_flag(find(found, "at_once"), &cooldown->at_once) && !schedule_ends_uncooled(cooldown) &&
           cooldown->done >= 0 && cooldown->done <= 1;
}

// Checkpoints of version 0.1.0 have no series.
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

// Runs on a GPU have choices, and runs that began with a model its directory.
static bool take_text(const json_t *text, char value[CHOICES_BYTES]) {
    *value = 0;
    if (!text) return true;
    if (!json_is_string(text) || json_string_length(text) >= CHOICES_BYTES) return false;
    memcpy(value, json_string_value(text), json_string_length(text) + 1);
    return true;
}

static bool take_state(SavedState *saved, const json_t *root) {
    RunState *state = &saved->state;
    CheckpointHashes *hashes = &saved->hashes;
    bool whole = true;
#define FIELD(kind, name, member) whole = whole && take_##kind(find(root, name), member);
    FIELDS(FIELD)
#undef FIELD
    if (!whole || state->dataset >= state->dataset_count) return false;
    saved->config = json_incref(json_object_get(root, "config"));
    run_state_upgrade(saved->config);
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
