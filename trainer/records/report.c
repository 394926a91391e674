// report.html: curves, samples, the data log, the plan, the configuration.
#include "trainer/records/report.h"
#include "common/file/file.h"
#include "common/hash.h"
#include "common/log.h"
#include "trainer/config/until.h"
#include "trainer/records/chart.h"
#include "trainer/records/history.h"
#include "trainer/records/html.h"
#include "trainer/records/metrics.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

// Of the last evaluation: the loss of the averaged weights, bits per byte, and the losses of the sources of a mixture.
static void print_evaluation(Buffer *out, json_t *evaluation) {
    static const char bpb[] = "<tr><th>bits per byte at step %.0f</th><td>%.4f, training data %.4f</td></tr>\n";
    const double step = json_number_value(json_object_get(evaluation, "step"));
    const json_t *epochs = json_object_get(evaluation, "epochs");
    const json_t *val = json_object_get(evaluation, "val_bpb"), *train = json_object_get(evaluation, "train_bpb");
    const json_t *average = json_object_get(evaluation, "ema_val_loss");
    const char *key;
    json_t *value;
    if (json_is_number(average))
        buffer_print(out, "<tr><th>validation loss of the averaged weights</th><td>%.4f</td></tr>\n",
                     json_number_value(average));
    if (json_is_number(val)) buffer_print(out, bpb, step, json_number_value(val), json_number_value(train));
    if (json_is_number(epochs))
        buffer_print(out, "<tr><th>epochs of the data at step %.0f</th><td>%.2f</td></tr>\n", step,
                     json_number_value(epochs));
    json_object_foreach(evaluation, key, value)
        if (strchr(key, '/') && json_is_number(value)) {
            buffer_print(out, "<tr><th>");
            html_string(out, key);
            buffer_print(out, "</th><td>%.4f</td></tr>\n", json_number_value(value));
        }
}

static void print_summary(Buffer *out, const Report *report, const Curves *curves, const History *history) {
    const RunState *state = report->state;
    char count[16];
    const uint64_t end = schedule_end(report->config, &state->cooldown);
    buffer_print(out, "<table>\n<tr><th>steps</th><td>%llu", (unsigned long long)state->step);
    if (end != UNTIL_STEPS) buffer_print(out, " of %llu", (unsigned long long)end);
    if (state->nonfinite) buffer_print(out, ", %llu not finite and not applied", (unsigned long long)state->nonfinite);
    buffer_print(out, "</td></tr>\n<tr><th>tokens seen</th><td>%s</td></tr>\n",
                 human_count(count, (double)state->tokens));
    if (isfinite(state->first_loss))
        buffer_print(out, "<tr><th>validation loss before</th><td>%.4f</td></tr>\n", state->first_loss);
    if (isfinite(state->best_loss))
        buffer_print(out, "<tr><th>best validation loss</th><td>%.4f at step %llu</td></tr>\n", state->best_loss,
                     (unsigned long long)state->best_step);
    if (isfinite(state->last_loss))
        buffer_print(out, "<tr><th>validation loss now</th><td>%.4f</td></tr>\n", state->last_loss);
    if (history->rule_count > 1) {
        buffer_print(out, "<tr><th>evaluation</th><td>");
        history_add_rules(history, out);
        buffer_print(out, "</td></tr>\n");
    }
    print_evaluation(out, curves->evaluation);
    if (curves->seconds > 0)
        buffer_print(out, "<tr><th>speed</th><td>%.0f tokens/s in steps, mean of the run</td></tr>\n",
                     curves->tokens / curves->seconds);
    if (curves->seconds > 0)
        buffer_print(out, "<tr><th>time in steps</th><td>%s</td></tr>\n", human_time(count, curves->seconds));
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    buffer_print(out, "<tr><th>memory</th><td>arena of %s by the plan, ",
                 human_bytes(count, (double)report->plan->bytes));
    buffer_print(out, "process of at most %s</td></tr>\n", human_bytes(count, (double)usage.ru_maxrss * 1024));
    json_t *gpu = metrics_last_with(report->config->out_dir, "gpu_busy");
    if (gpu) {
        buffer_print(out, "<tr><th>GPU at the last logged step</th><td>%s used by all processes, ",
                     human_bytes(count, json_number_value(json_object_get(gpu, "gpu_used_bytes"))));
        buffer_print(out, "%s free, %.0f %% busy</td></tr>\n",
                     human_bytes(count, json_number_value(json_object_get(gpu, "gpu_free_bytes"))),
                     100 * json_number_value(json_object_get(gpu, "gpu_busy")));
        json_decref(gpu);
    }
    json_t *last = metrics_last_with(report->config->out_dir, "processor_lost");
    const double lost = json_number_value(json_object_get(last, "processor_lost"));
    if (lost > 0.2)
        buffer_print(
            out, "<tr><th>processor</th><td>%.0f %% of the time of the last steps lost to other programs</td></tr>\n",
            100 * lost);
    json_decref(last);
    buffer_print(out, "<tr><th>written</th><td>");
    const time_t now = time(NULL);
    char date[32];
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", gmtime(&now));
    buffer_print(out, "%s</td></tr>\n<tr><th>backend</th><td>", date);
    html_string(out, report->backend_text);
    buffer_print(out, "</td></tr>\n</table>\n");
}

static void print_data(Buffer *out, const RunState *state) {
    char hex[65];
    buffer_print(out, "<h2>Data</h2>\n<table><tr><th>dataset</th><th>fingerprint</th><th>samples used</th></tr>\n");
    for (int i = 0; i < state->dataset_count; i++) {
        const DatasetUse *use = &state->datasets[i];
        hex_encode(hex, use->fingerprint, 32);
        buffer_print(out, "<tr><td>");
        html_string(out, use->name);
        buffer_print(out, "</td><td><code>%s</code></td><td>%llu</td></tr>\n", hex,
                     (unsigned long long)run_state_own_samples(state, i));
    }
    for (int i = 0; i < state->change_count; i++) {
        const DatasetChange *change = &state->changes[i];
        hex_encode(hex, change->new, 32);
        buffer_print(out, "<tr><td>changed at step %llu</td><td><code>%s</code></td><td>from sample %llu</td></tr>\n",
                     (unsigned long long)change->step, hex, (unsigned long long)change->consumed);
    }
    hex_encode(hex, state->vocab_fp, 32);
    buffer_print(out, "<tr><td>vocabulary</td><td><code>%s</code></td><td></td></tr>\n</table>\n", hex);
}

static void print_settings(Buffer *out, const Report *report, const History *history) {
    Buffer plan = {0}, values = {0};
    memory_plan_print(report->plan, report->config, report->model, report->backend, &plan);
    buffer_print(out, "<h2>Memory plan</h2>\n<pre>");
    html_text(out, (const char *)plan.data, plan.size);
    buffer_print(out, "</pre>\n<h2>Configuration</h2>\n<pre>");
    buffer_close(&plan);
    for (int key = 0; key < KEY_COUNT; key++) {
        char value[256];
        if (!*config_keys[key].help && !config_is_part(key)) continue; // a translated key of nanoGPT
        config_value(report->config, key, value, sizeof value);
        values.size = 0;
        history_add(history, config_key(key), value, &values);
        buffer_print(out, "%-28s = ", config_key(key));
        html_text(out, values.data, values.size);
        buffer_print(out, "\n");
    }
    buffer_close(&values);
    buffer_print(out, "</pre>\n");
}

// The sources of a mixture have curves of their own, "val/NAME".
static void print_charts(Buffer *out, const Curves *curves) {
    enum { LINES_MAX = 4 + FEED_SOURCES_MAX };
    ChartLine losses[LINES_MAX] = {
        {"each step", curves_find(curves, "loss"), 0, true},
        {"training data", curves_find(curves, "train_loss"), 1, false},
        {"validation data", curves_find(curves, "val_loss"), 2, false},
        {"validation data, averaged weights", curves_find(curves, "ema_val_loss"), 3, false}};
    size_t count = 4;
    for (size_t i = 0; i < curves->count && count < LINES_MAX; i++)
        if (!strncmp(curves->curves[i].name, "val/", 4))
            losses[count] = (ChartLine){curves->curves[i].name, &curves->curves[i], (int)count % CHART_COLORS, false},
            count++;
    static const struct {
        const char *title, *key;
        bool smooth;
    } others[] = {{"Right items, mean of the tasks", "items_accuracy", false},
                  {"Learning rate", "lr", true},
                  {"Norm of the gradient", "norm", true},
                  {"Tokens a second", "tok_s", true},
                  {"Data wait, %", "wait", true}};
    buffer_print(out, "<div class=\"charts\">\n");
    chart_print(out, "Loss", losses, count);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const ChartLine line = {others[i].title, curves_find(curves, others[i].key), 3, others[i].smooth};
        chart_print(out, others[i].title, &line, 1);
    }
    buffer_print(out, "</div>\n");
}

// The texts that the run has sampled, the newest first, and of each step the last.
static void print_samples(Buffer *out, const json_t *samples) {
    enum { SAMPLES_MAX = 12 };
    const json_t *step = NULL;
    int shown = 0;
    for (size_t i = json_array_size(samples); i > 0 && shown < SAMPLES_MAX; i--) {
        const json_t *line = json_array_get(samples, i - 1), *text = json_object_get(line, "sample");
        if (step && json_equal(step, json_object_get(line, "step"))) continue;
        step = json_object_get(line, "step");
        if (!shown++) buffer_print(out, "<h2>Samples</h2>\n");
        buffer_print(out, "<h3>step %.0f</h3>\n<pre>", json_number_value(step));
        html_text(out, json_string_value(text), json_string_length(text));
        buffer_print(out, "</pre>\n");
    }
}

static void print_page(Buffer *out, const Report *report, const Curves *curves) {
    char title[PATH_MAX_BYTES + 16];
    History history;
    history_read(&history, report->config->out_dir, UINT64_MAX);
    snprintf(title, sizeof title, "Training run %s", report->config->out_dir);
    html_begin(out, title);
    print_summary(out, report, curves, &history);
    print_charts(out, curves);
    print_samples(out, curves->samples);
    print_data(out, report->state);
    print_settings(out, report, &history);
    history_close(&history);
    buffer_print(out, "</html>\n");
}

int report_write(const Report *report) {
    Curves curves;
    Buffer page = {0};
    char path[PATH_MAX_BYTES];
    if (curves_read(&curves, report->config->out_dir) < 0) return -1;
    print_page(&page, report, &curves);
    path_join(path, report->config->out_dir, "report.html");
    const int result = file_write(path, (Bytes){page.data, page.size});
    curves_close(&curves);
    buffer_close(&page);
    return result;
}
