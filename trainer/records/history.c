// The history of a run. See history.h.
#include "trainer/records/history.h"
#include "common/err.h"
#include "common/file/file.h"
#include "trainer/checkpoint/run_state.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

// Two processes that begin at the same step: the later one has replaced the earlier one.
static void add_keys(History *history, uint64_t step, json_t *keys) {
    if (history->key_count && history->keys[history->key_count - 1].step == step)
        json_decref(history->keys[--history->key_count].keys);
    history->keys = array_grow(history->keys, history->key_count, sizeof *history->keys);
    run_state_upgrade(keys);
    run_state_add_defaults(keys);
    history->keys[history->key_count++] = (HistoryKeys){step, json_incref(keys)};
}

// An evaluation without a rule is taken for one of the rule before or after it.
static void add_rule(History *history, uint64_t step, const char *hex) {
    const uint64_t rule = hex ? strtoull(hex, NULL, 16) : 0;
    HistoryRule *last = history->rule_count ? &history->rules[history->rule_count - 1] : NULL;
    if (last && (!rule || !last->rule || last->rule == rule)) {
        if (rule) last->rule = rule;
        return;
    }
    history->rules = array_grow(history->rules, history->rule_count, sizeof *history->rules);
    history->rules[history->rule_count++] = (HistoryRule){step, rule};
}

static bool has(Bytes line, const char *text) { return memmem(line.data, line.size, text, strlen(text)); }

// A checkpoint of step `last` has no process that began with it.
static void add_line(History *history, Bytes line, uint64_t last) {
    if (!has(line, "\"config\": {") && !has(line, "\"val_loss\"")) return;
    json_t *object = json_loadb((const char *)line.data, line.size, 0, NULL);
    const uint64_t step = (uint64_t)json_integer_value(json_object_get(object, "step"));
    json_t *keys = json_object_get(object, "config");
    if (json_is_object(keys) && (step < last || !step)) add_keys(history, step, keys);
    if (json_object_get(object, "val_loss") && step <= last)
        add_rule(history, step, json_string_value(json_object_get(object, "eval_rule")));
    json_decref(object);
}

void history_read(History *history, const char *run, uint64_t last) {
    char path[PATH_MAX_BYTES];
    Buffer text = {0};
    Bytes line;
    *history = (History){0};
    if (file_read(&text, path_join(path, run, "metrics.jsonl"), SIZE_MAX / 2) < 0) err_clear();
    for (Bytes rest = {text.data, text.size}; bytes_next_line(&rest, &line);) add_line(history, line, last);
    buffer_close(&text);
}

void history_close(History *history) {
    for (size_t i = 0; i < history->key_count; i++) json_decref(history->keys[i].keys);
    free(history->keys);
    free(history->rules);
    *history = (History){0};
}

// The next value that differs from `value`, and its step. NULL: no such value.
static const char *next_value(const History *history, const char *key, const char *value, size_t *i) {
    for (; *i < history->key_count; ++*i) {
        const char *text = json_string_value(json_object_get(history->keys[*i].keys, key));
        if (text && !(value && !strcmp(text, value))) return text;
    }
    return NULL;
}

void history_add(const History *history, const char *key, const char *now, Buffer *out) {
    size_t i = 0;
    const char *value = next_value(history, key, NULL, &i);
    buffer_print(out, "%s", value ? value : now);
    while (value && (value = next_value(history, key, value, &i)))
        buffer_print(out, ", from step %" PRIu64 " on %s", history->keys[i].step + 1, value);
}

bool history_changed(const History *history, const char *key) {
    size_t i = 0;
    const char *first = next_value(history, key, NULL, &i);
    return first && next_value(history, key, first, &i);
}

void history_add_rules(const History *history, Buffer *out) {
    buffer_print(out, "evaluations read other tokens");
    for (size_t i = 1; i < history->rule_count; i++)
        buffer_print(out, "%s from step %" PRIu64 " on", i > 1 ? ", and" : "", history->rules[i].step);
    buffer_print(out, ": losses before and after do not compare");
}

uint64_t history_rule_step(const History *history, uint64_t rule) {
    for (size_t i = history->rule_count; i-- > 0;)
        if (history->rules[i].rule == rule) return history->rules[i].step;
    return 0;
}
