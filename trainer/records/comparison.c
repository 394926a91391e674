// The page that compares runs.
#include "trainer/records/comparison.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/hash.h"
#include "common/log.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/records/chart.h"
#include "trainer/records/comparison_internal.h"
#include "trainer/records/html.h"
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int read_state(ComparedRun *run) {
    char path[PATH_MAX_BYTES];
    uint64_t step;
    return checkpoint_any(run->name, path, &step) ? saved_state_read(&run->saved, path) : 0;
}

static int read_run(ComparedRun *run, const char *name) {
    run->name = name;
    if (curves_read(&run->curves, name) < 0) return -1;
    if (run->curves.damaged)
        return fail(EX_DATA,
                    "'%s/metrics.jsonl', line %" PRIu64
                    ": not a line of a run, which has a step, and numbers for losses; "
                    "remove the line, or leave the run out",
                    name, run->curves.damaged);
    history_read(&run->history, name, UINT64_MAX);
    return read_state(run);
}

static void close_run(ComparedRun *run) {
    curves_close(&run->curves);
    history_close(&run->history);
    saved_state_close(&run->saved);
    *run = (ComparedRun){0};
}

static void print_cell(Buffer *out, const char *format, double value) {
    buffer_print(out, "<td>");
    if (isfinite(value)) buffer_print(out, format, value);
    buffer_print(out, "</td>");
}

static double last_value(const ComparedRun *run, const char *key) {
    const Curve *curve = curves_find(&run->curves, key);
    return curve->count ? curve->points[curve->count - 1].value : NAN;
}

// The lowest validation loss. NAN: none was evaluated.
static double lowest_loss(const ComparedRun *run) {
    const Curve *curve = curves_find(&run->curves, "val_loss");
    double lowest = run->saved.config ? run->saved.state.best_loss : NAN;
    for (size_t i = 0; i < curve->count; i++) lowest = fmin(lowest, curve->points[i].value); // fmin passes over NAN
    return isfinite(lowest) ? lowest : NAN;
}

// Whether a run has a checkpoint with losses, and so their rule.
static bool has_rule(const ComparedRun *run) { return run->saved.config && isfinite(lowest_loss(run)); }

bool compared_evaluates_other(const ComparedRun *run, const ComparedRun *first) {
    return has_rule(run) && run->saved.state.eval_rule != first->saved.state.eval_rule;
}

bool compared_evaluations_differ(const ComparedRun *from, const ComparedRun *to, Buffer *reason) {
    const ComparedRun *const runs[2] = {from, to};
    for (int i = 0; i < 2 && !reason->size; i++)
        if (!runs[i]->saved.config)
            buffer_print(reason, "'%s' has no checkpoint, which names its evaluation", runs[i]->name);
        else if (!curves_find(&runs[i]->curves, "val_loss")->count)
            buffer_print(reason, "'%s' has no evaluation", runs[i]->name);
        else if (runs[i]->history.rule_count > 1)
            buffer_print(reason, "'%s' has changed its evaluation", runs[i]->name);
    if (!reason->size && compared_evaluates_other(to, from))
        buffer_print(reason, "'%s' and '%s' evaluate other tokens", from->name, to->name);
    return reason->size;
}

// The end of the runs if none has a rule.
static const ComparedRun *first_with_rule(const ComparedRun *runs, int count) {
    const ComparedRun *first = runs;
    while (first < runs + count && !has_rule(first)) first++;
    return first;
}

// The first run that has a checkpoint; the end of the runs if none has.
static const ComparedRun *first_saved(const ComparedRun *runs, int count) {
    const ComparedRun *first = runs;
    while (first < runs + count && !first->saved.config) first++;
    return first;
}

// Losses of different evaluations do not compare.
static bool losses_compare(const ComparedRun *runs, int count) {
    const ComparedRun *first = first_with_rule(runs, count);
    for (int i = 0; first < runs + count && i < count; i++)
        if (compared_evaluates_other(&runs[i], first) || runs[i].history.rule_count > 1) return false;
    return true;
}

// A run without a loss comes last.
static int by_loss(const void *a, const void *b) {
    const double x = lowest_loss(a), y = lowest_loss(b);
    if (isfinite(x) != isfinite(y)) return isfinite(x) ? -1 : 1;
    return x < y ? -1 : x > y ? 1 : strcmp(((const ComparedRun *)a)->name, ((const ComparedRun *)b)->name);
}

static bool has_average(const ComparedRun *runs, int count) {
    bool found = false;
    for (int i = 0; i < count; i++) found |= curves_find(&runs[i].curves, "ema_val_loss")->count > 0;
    return found;
}

static void print_table(Buffer *out, const ComparedRun *runs, int count) {
    const bool averages = has_average(runs, count);
    const bool has_best = count > 1 && losses_compare(runs, count) && isfinite(lowest_loss(runs));
    buffer_print(out,
                 "<table><tr><th>run</th><th>step</th><th>tokens</th><th>validation loss</th>%s<th>lowest</th>"
                 "<th>bits per byte</th><th>tokens/s in steps</th><th>memory (arena)</th></tr>\n",
                 averages ? "<th>of the averaged weights</th>" : "");
    for (int i = 0; i < count; i++) {
        const ComparedRun *run = &runs[i];
        const Curve *steps = curves_find(&run->curves, "loss");
        char text[16];
        buffer_print(out, "<tr><td>");
        html_string(out, run->name);
        buffer_print(out, "</td><td>%.0f</td><td>%s</td>", steps->count ? steps->points[steps->count - 1].step : 0,
                     human_count(text, run->curves.tokens));
        print_cell(out, "%.4f", last_value(run, "val_loss"));
        if (averages) print_cell(out, "%.4f", last_value(run, "ema_val_loss"));
        print_cell(out, !i && has_best ? "<b>%.4f</b> best" : "%.4f", lowest_loss(run));
        print_cell(out, "%.4f", last_value(run, "val_bpb"));
        print_cell(out, "%.0f", run->curves.tokens / run->curves.seconds);
        const double arena = last_value(run, "arena_bytes"); // runs of version 0.1 lack it
        buffer_print(out, "<td>%s</td></tr>\n", isfinite(arena) ? human_bytes(text, arena) : "");
    }
    buffer_print(out, "</table>\n");
}

static void print_chart(Buffer *out, const char *title, const char *key, bool smooth, const ComparedRun *runs,
                        int count) {
    ChartLine *lines = allocate_zeroed((size_t)count, sizeof *lines);
    for (int i = 0; i < count; i++)
        lines[i] = (ChartLine){runs[i].name, curves_find(&runs[i].curves, key), (i + 1) % CHART_COLORS, smooth};
    chart_print(out, title, lines, (size_t)count);
    free(lines);
}

const char *compared_value(const ComparedRun *run, int key, char text[static PATH_MAX_BYTES]) {
    const char *saved = json_string_value(json_object_get(run->saved.config, config_key(key)));
    Buffer values = {0};
    *text = 0;
    if (!run->saved.config) return text;
    config_default(key, text, PATH_MAX_BYTES);
    history_add(&run->history, config_key(key), saved ? saved : text, &values);
    snprintf(text, PATH_MAX_BYTES, "%.*s", (int)values.size, (const char *)values.data);
    buffer_close(&values);
    return text;
}

static void print_use(Buffer *out, const RunState *state, const uint8_t fingerprint[32]) {
    char hex[65];
    for (int i = 0; i < state->dataset_count; i++)
        if (!memcmp(state->datasets[i].fingerprint, fingerprint, 32)) html_string(out, state->datasets[i].name);
    hex_encode(hex, fingerprint, 32);
    buffer_print(out, " <code>%.12s</code>", hex);
}

// The datasets and the evaluation as the checkpoint names them: losses of different ones do not compare.
static void print_dataset(Buffer *out, const ComparedRun *run) {
    const RunState *state = &run->saved.state;
    buffer_print(out, "<td>");
    if (run->saved.config && state->dataset_count)
        print_use(out, state,
                  state->change_count ? state->changes[0].old : state->datasets[state->dataset].fingerprint);
    for (int i = 0; i < state->change_count; i++) {
        buffer_print(out, ", from step %llu on ", (unsigned long long)state->changes[i].step + 1);
        print_use(out, state, state->changes[i].new);
    }
    buffer_print(out, "</td>");
}

static void print_data(Buffer *out, const ComparedRun *runs, int count) {
    const ComparedRun *first = first_with_rule(runs, count); // there is one if losses do not compare
    buffer_print(out, "<tr><th>dataset</th>");
    for (int i = 0; i < count; i++) print_dataset(out, &runs[i]);
    buffer_print(out, "</tr>\n");
    if (losses_compare(runs, count)) return;
    buffer_print(out, "<tr><th>evaluation</th>");
    for (int i = 0; i < count; i++) {
        buffer_print(out, "<td>%s",
                     compared_evaluates_other(&runs[i], first)
                         ? "of other tokens: its losses do not compare with the first"
                         : "");
        if (runs[i].history.rule_count > 1) {
            buffer_print(out, compared_evaluates_other(&runs[i], first) ? "; " : "");
            history_add_rules(&runs[i].history, out);
        }
        buffer_print(out, "</td>");
    }
    buffer_print(out, "</tr>\n");
}

// The keys whose values differ between two of the runs that have a checkpoint, or changed in one.
static void print_differences(Buffer *out, const ComparedRun *runs, int count) {
    char text[PATH_MAX_BYTES], other[PATH_MAX_BYTES];
    const ComparedRun *first = first_saved(runs, count);
    if (first == runs + count) return;
    buffer_print(out, "<h2>Data, and different keys</h2>\n<table><tr><th></th>");
    for (int i = 0; i < count; i++) {
        buffer_print(out, "<th>");
        html_string(out, runs[i].name);
        buffer_print(out, "</th>");
    }
    buffer_print(out, "</tr>\n");
    print_data(out, runs, count);
    for (int key = 0; key < KEY_COUNT; key++) {
        bool differs = false;
        for (int i = 0; i < count; i++)
            differs |= runs[i].saved.config &&
                       (history_changed(&runs[i].history, config_key(key)) ||
                        strcmp(compared_value(&runs[i], key, text), compared_value(first, key, other)));
        if (!differs) continue;
        buffer_print(out, "<tr><th>%s</th>", config_key(key));
        for (int i = 0; i < count; i++) {
            buffer_print(out, "<td>");
            html_string(out, compared_value(&runs[i], key, text));
            buffer_print(out, "</td>");
        }
        buffer_print(out, "</tr>\n");
    }
    buffer_print(out, "</table>\n");
}

static void print_page(Buffer *out, const ComparedRun *runs, int count, const Buffer *pair) {
    static const struct {
        const char *title, *key;
        bool smooth;
    } charts[] = {{"Loss on validation data", "val_loss", false},
                  {"Right items, mean of the tasks", "items_accuracy", false},
                  {"Loss of each step", "loss", true},
                  {"Learning rate", "lr", true},
                  {"Norm of the gradient", "norm", true},
                  {"Tokens a second", "tok_s", true}};
    html_begin(out, "Training runs");
    print_table(out, runs, count);
    buffer_add(out, pair->data, pair->size);
    buffer_print(out, "<div class=\"charts\">\n");
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++)
        print_chart(out, charts[i].title, charts[i].key, charts[i].smooth, runs, count);
    buffer_print(out, "</div>\n");
    print_differences(out, runs, count);
    buffer_print(out, "</html>\n");
}

// Whether a directory was named before.
static bool is_again(char **names, int i) {
    struct stat own, other;
    for (int k = 0; k < i && stat(names[i], &own) == 0; k++)
        if (stat(names[k], &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino)
            return log_warn("'%s' is the directory '%s' once more, and is left out", names[i], names[k]), true;
    return false;
}

int comparison_write(const char *path, char **names, int count, Buffer *text) {
    Buffer page = {0}, pair = {0};
    int result = 0, read = 0;
    ComparedRun *runs = allocate_zeroed((size_t)count, sizeof *runs);
    for (int i = 0; i < count && result == 0; i++) {
        if (is_again(names, i)) continue;
        result = read_run(&runs[read], names[i]);
        const bool empty = result < 0 && err_code() == EX_NOINPUT && count > 1; // a run that was refused, for runs/*
        if (empty) log_warn("'%s' has no steps, and is left out", names[i]), err_clear();
        if (empty) close_run(&runs[read]);
        read += result == 0;
        if (empty) result = 0;
    }
    if (result == 0 && !read) result = fail(EX_NOINPUT, "none of these directories holds the steps of a run");
    if (result == 0 && read == 2) result = run_pair_print(&runs[0], &runs[1], &pair, text);
    if (result == 0 && read > 2) result = run_groups_print(runs, read, &pair, text);
    if (result == 0) {
        if (losses_compare(runs, read)) qsort(runs, (size_t)read, sizeof *runs, by_loss);
        print_page(&page, runs, read, &pair);
        result = file_write_over(path, (Bytes){page.data, page.size}, strlen("<!doctype html>"));
    }
    for (int i = 0; i < count; i++) close_run(&runs[i]);
    free(runs);
    buffer_close(&page);
    buffer_close(&pair);
    return result;
}
