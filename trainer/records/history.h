// The history of a run, from the lines of its metrics.jsonl: the values of its keys, and the rules of its evaluations.
#pragma once

#include "common/bytes.h"

// The values of the keys as text, in the steps after `step`.
typedef struct {
    uint64_t step;
    struct json_t *keys;
} HistoryKeys;

// The evaluations from step `step` on have this rule (trainer/records/evaluation.h); 0: versions that did not record
// it.
typedef struct {
    uint64_t step, rule;
} HistoryRule;

typedef struct {
    HistoryKeys *keys;
    HistoryRule *rules;
    size_t key_count, rule_count;
} History;

// Reads the lines that hold for the steps up to `last`; lines that cannot be read are left out.
void history_read(History *history, const char *run, uint64_t last);
void history_close(History *history); // accepts a zeroed struct

// Adds the values of a key, as "0.0006, from step 1201 on 0.0003"; `now` if the run has no line with this key.
void history_add(const History *history, const char *key, const char *now, Buffer *out);
bool history_changed(const History *history, const char *key); // whether it had several values

// Adds from which steps on the evaluations have other rules; rule_count is 2 or more.
void history_add_rules(const History *history, Buffer *out);
// The step of the evaluation since which all have this rule, so that their losses compare; 0 if it is not known.
uint64_t history_rule_step(const History *history, uint64_t rule);
