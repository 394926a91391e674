// trainer status: the progress of a run, from its newest checkpoint and from the metrics that it writes while it runs.
#include "common/cli/cli.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/json_write.h"
#include "common/log.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/config/until.h"
#include "trainer/records/history.h"
#include "trainer/records/metrics.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool json, watch;
static const Option options[] = {
    {OPT_FLAG, "json", &json, NULL, "print one JSON object"},
    {OPT_FLAG, "watch", &watch, NULL, "print a line whenever the run has advanced, until Ctrl-C"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

static void print_loss(const char *name, double loss) {
    if (json && isfinite(loss))
        printf(", \"%s\": %.9g", name, loss);
    else if (json)
        printf(", \"%s\": null", name);
    else if (isfinite(loss))
        printf("%-22s %.4f\n", name, loss);
}

static void print_number(const char *name, double value) {
    if (json)
        printf(", \"%s\": %.0f", name, value);
    else
        printf("%-22s %.0f\n", name, value);
}

static int watch_run(const char *run) {
    MetricsStep last, shown = {.step = UINT64_MAX};
    for (;; usleep(200000)) {
        if (!metrics_last(&last, run) || last.step == shown.step) continue;
        if (json) {
            printf("{\"step\": %llu", (unsigned long long)last.step);
            print_loss("loss", last.loss);
            printf(", \"tokens_per_s\": %.1f}\n", last.tokens_per_s);
        } else {
            printf("step %6llu | loss %.4f | %.0f tok/s\n", (unsigned long long)last.step, last.loss,
                   last.tokens_per_s);
        }
        if (fflush(stdout)) return 0; // the reader has closed it
        shown = last;
    }
}

static void print_bytes(const char *name, double value) {
    char text[16];
    if (json)
        printf(", \"%s_bytes\": %.0f", name, value);
    else
        printf("%-22s %s\n", name, human_bytes(text, value));
}

// Memory and use of the GPU at the last step that was logged, by all processes.
static void print_usage(const char *run) {
    json_t *line = metrics_last_with(run, "gpu_busy");
    if (!line) return;
    print_bytes("gpu_used", json_number_value(json_object_get(line, "gpu_used_bytes")));
    print_bytes("gpu_free", json_number_value(json_object_get(line, "gpu_free_bytes")));
    const double busy = json_number_value(json_object_get(line, "gpu_busy"));
    if (json)
        printf(", \"gpu_busy\": %.2f", busy);
    else
        printf("%-22s %.0f %%\n", "gpu_busy", 100 * busy);
    json_decref(line);
}

// Prints the processor time that other programs had in the last steps, if it was much.
static void print_lost(const char *run) {
    json_t *line = metrics_last_with(run, "processor_lost");
    const double lost = json_number_value(json_object_get(line, "processor_lost"));
    if (lost > 0.2 && json)
        printf(", \"processor_lost\": %.2f", lost);
    else if (lost > 0.2)
        printf("%-22s %.0f %% of its time, to other programs\n", "processor_lost", 100 * lost);
    json_decref(line);
}

static void print_until(const char *run) {
    char text[48];
    json_t *line = metrics_last_of(run, "until", "arena_bytes"); // a later start of a process has no time
    const time_t at = (time_t)json_integer_value(json_object_get(line, "until_at"));
    if (at && json)
        printf(", \"until_at\": %lld", (long long)at);
    else if (at)
        printf("%-22s %s\n", "until", until_text(at, text));
    json_decref(line);
}

// The path of the checkpoint, and the last step of the run in it.
static int print_checkpoint(const char *path) {
    SavedState saved;
    if (saved_state_read(&saved, path) < 0) return -1;
    const Cooldown *cooldown = &saved.state.cooldown;
    const double most = strtod(json_string_value(json_object_get(saved.config, "max_iters")), NULL);
    if (cooldown->begun || most != UNTIL_STEPS)
        print_number("max_iters", cooldown->begun ? (double)(cooldown->from + cooldown->steps) : most);
    Buffer text = {0};
    json_add_string(&text, path);
    if (json)
        printf(", \"checkpoint\": %.*s", (int)text.size, (const char *)text.data);
    else
        printf("%-22s %s\n", "checkpoint", path);
    buffer_close(&text);
    saved_state_close(&saved);
    return 0;
}

// The lowest loss, its step, and the first evaluation that it is compared with: one of other tokens is not.
static void print_best(const char *run, const RunState *state) {
    History history;
    print_loss(json ? "best_val_loss" : "best_val_loss (saved)", state->best_loss);
    if (!isfinite(state->best_loss)) return;
    history_read(&history, run, state->step);
    print_number("best_step", (double)state->best_step);
    print_number("best_since", (double)history_rule_step(&history, state->eval_rule));
    history_close(&history);
}

// The last evaluation of metrics.jsonl, which may be later than the checkpoint: its step, loss, bits per byte, the
// losses of the sources of a mixture, and the epochs of the data before it.
static void print_evaluation(json_t *evaluation) {
    const char *key;
    json_t *value;
    print_number("evaluated_step", json_number_value(json_object_get(evaluation, "step")));
    json_object_foreach(evaluation, key, value)
        if (!strcmp(key, "val_loss") || !strcmp(key, "ema_val_loss") || strstr(key, "_bpb") || strchr(key, '/'))
            print_loss(key, json_is_number(value) ? json_number_value(value) : NAN);
    value = json_object_get(evaluation, "epochs");
    if (value) print_loss("evaluated_epochs", json_number_value(value));
}

static int run(int count, char **arguments) {
    char path[PATH_MAX_BYTES];
    RunState state;
    MetricsStep last;
    if (count != 1) return fail(EX_USAGE, "expected one argument, the run directory");
    if (watch) return watch_run(arguments[0]);
    const bool started = metrics_last(&last, arguments[0]);
    run_state_init(&state);
    int found = checkpoint_newest(arguments[0], NULL, path, &state);
    if (found < 0) return -1;
    if (!found && !started && model_refuse(arguments[0]) < 0) return -1;
    if (!found && !started) return fail(EX_NOINPUT, "there is no checkpoint in '%s'", arguments[0]);
    if (json)
        printf("{\"step\": %llu", (unsigned long long)state.step);
    else
        printf("%-22s %llu\n", found ? "step" : "step (not saved yet)", (unsigned long long)state.step);
    print_loss("val_loss_before", state.first_loss);
    print_best(arguments[0], &state);
    json_t *evaluation = metrics_last_with(arguments[0], "val_loss");
    if (evaluation)
        print_evaluation(evaluation);
    else
        print_loss("val_loss", state.last_loss);
    json_decref(evaluation);
    print_number("tokens", (double)state.tokens);
    if (started) {
        print_number("last_step", (double)last.step);
        print_loss("last_loss", last.loss);
        print_number("tokens_per_s", last.tokens_per_s);
        if (!json) printf("%-22s the median of the last steps (millrace status --man)\n", "");
    }
    print_until(arguments[0]);
    print_usage(arguments[0]);
    print_lost(arguments[0]);
    const int result = found ? print_checkpoint(path) : 0;
    if (json) printf("}\n");
    return result;
}

const Command trainer_status = {"status", "RUN", "print the progress, losses and speed of a run", options, run, NULL};
