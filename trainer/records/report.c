// report.html: loss curves as inline SVG, the plan, the configuration, the data log, a sample. No script, no link out.
#include "trainer/records/report.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/hash.h"
#include "common/log.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 900, HEIGHT = 380, LEFT = 56, RIGHT = 16, TOP = 16, BOTTOM = 36, POINTS_MAX = 800 };

typedef struct {
    double step, loss;
} Point;

typedef struct {
    Point *points;
    size_t count, capacity;
} Curve;

typedef struct {
    Curve step, val, train; // losses of steps and of the two evaluated splits
    double tokens, seconds; // sums over all steps
    json_t *evaluation;     // the last one
} Curves;

// ---- metrics.jsonl

static void curve_add(Curve *curve, const json_t *line, const char *key) {
    const json_t *loss = json_object_get(line, key);
    if (!json_is_number(loss)) return;
    if (curve->count == curve->capacity) {
        curve->capacity = curve->capacity ? 2 * curve->capacity : 256;
        curve->points = realloc(curve->points, curve->capacity * sizeof *curve->points);
        if (!curve->points) die(EX_MEMORY, "no memory for the report");
    }
    curve->points[curve->count++] = (Point){json_number_value(json_object_get(line, "step")), json_number_value(loss)};
}

static int read_curves(const char *path, Curves *curves) {
    Buffer text = {0};
    if (file_read(&text, path, SIZE_MAX / 2) < 0) return -1;
    for (Bytes rest = {text.data, text.size}, line; bytes_next_line_or_rest(&rest, &line);) {
        json_t *object = json_loadb((const char *)line.data, line.size, 0, NULL);
        curve_add(&curves->step, object, "loss");
        curve_add(&curves->val, object, "val_loss");
        curve_add(&curves->train, object, "train_loss");
        double seconds = 1e-3 * json_number_value(json_object_get(object, "ms"));
        curves->seconds += seconds;
        curves->tokens += seconds * json_number_value(json_object_get(object, "tok_s"));
        if (json_object_get(object, "val_loss"))
            json_decref(curves->evaluation), curves->evaluation = json_incref(object);
        json_decref(object);
    }
    buffer_close(&text);
    return 0;
}

// ---- plot

typedef struct {
    double last_step, low, high;
} Plot;

static double x_of(const Plot *plot, double step) {
    return LEFT + (WIDTH - LEFT - RIGHT) * (plot->last_step > 0 ? step / plot->last_step : 0);
}

static double y_of(const Plot *plot, double loss) {
    return TOP + (HEIGHT - TOP - BOTTOM) * (plot->high - loss) / (plot->high - plot->low);
}

static void widen(Plot *plot, const Curve *curve) {
    for (size_t i = 0; i < curve->count; i++) {
        plot->last_step = fmax(plot->last_step, curve->points[i].step);
        plot->low = fmin(plot->low, curve->points[i].loss), plot->high = fmax(plot->high, curve->points[i].loss);
    }
}

// Long curves are drawn as means of neighbouring points.
static void draw_curve(Buffer *out, const Plot *plot, const Curve *curve, const char *class, bool dots) {
    size_t group = (curve->count + POINTS_MAX - 1) / POINTS_MAX;
    if (!curve->count) return;
    buffer_print(out, "<polyline class=\"%s\" points=\"", class);
    for (size_t i = 0; i < curve->count; i += group) {
        size_t n = curve->count - i < group ? curve->count - i : group;
        double step = 0, loss = 0;
        for (size_t k = 0; k < n; k++) step += curve->points[i + k].step, loss += curve->points[i + k].loss;
        buffer_print(out, "%.1f,%.1f ", x_of(plot, step / (double)n), y_of(plot, loss / (double)n));
    }
    buffer_print(out, "\"/>\n");
    for (size_t i = 0; dots && i < curve->count; i++)
        buffer_print(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", class,
                     x_of(plot, curve->points[i].step), y_of(plot, curve->points[i].loss));
}

static void draw_axes(Buffer *out, const Plot *plot) {
    enum { TICKS = 5 };
    for (int i = 0; i <= TICKS; i++) {
        double loss = plot->low + (plot->high - plot->low) * i / TICKS, step = plot->last_step * i / TICKS;
        buffer_print(out,
                     "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" "
                     "text-anchor=\"end\">%.2f</text>\n",
                     LEFT, WIDTH - RIGHT, y_of(plot, loss), y_of(plot, loss), LEFT - 8, y_of(plot, loss) + 4, loss);
        buffer_print(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n", x_of(plot, step),
                     HEIGHT - 12, step);
    }
}

static void print_picture(Buffer *out, const Curves *curves) {
    Plot plot = {0, INFINITY, -INFINITY};
    widen(&plot, &curves->step), widen(&plot, &curves->val), widen(&plot, &curves->train);
    if (!(plot.high >= plot.low)) return;
    if (plot.high - plot.low < 0.1) plot.high = plot.low + 0.1;
    buffer_print(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"loss by step\">\n", WIDTH, HEIGHT);
    draw_axes(out, &plot);
    draw_curve(out, &plot, &curves->step, "step", false);
    draw_curve(out, &plot, &curves->train, "train", true);
    draw_curve(out, &plot, &curves->val, "val", true);
    buffer_print(out,
                 "</svg>\n<p><b class=\"step\">&#9632;</b> each step &nbsp; <b class=\"train\">&#9632;</b> evaluation, "
                 "training data &nbsp; <b class=\"val\">&#9632;</b> evaluation, validation data</p>\n");
}

// ---- text

static void print_escaped(Buffer *out, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        switch (text[i]) {
        case '<':
            buffer_print(out, "&lt;");
            break;
        case '>':
            buffer_print(out, "&gt;");
            break;
        case '&':
            buffer_print(out, "&amp;");
            break;
        case '"':
            buffer_print(out, "&quot;");
            break;
        default:
            buffer_add(out, text + i, 1);
        }
    }
}

// Bits per byte of the last evaluation, and the losses of the sources of a mixture.
static void print_evaluation(Buffer *out, json_t *evaluation) {
    static const char bpb[] = "<tr><th>bits per byte now</th><td>%.4f, training data %.4f</td></tr>\n";
    const json_t *val = json_object_get(evaluation, "val_bpb"), *train = json_object_get(evaluation, "train_bpb");
    const char *key;
    json_t *value;
    if (json_is_number(val)) buffer_print(out, bpb, json_number_value(val), json_number_value(train));
    json_object_foreach(evaluation, key, value) if (strchr(key, '/') && json_is_number(value)) {
        buffer_print(out, "<tr><th>");
        print_escaped(out, key, strlen(key));
        buffer_print(out, "</th><td>%.4f</td></tr>\n", json_number_value(value));
    }
}

static void print_summary(Buffer *out, const Report *report, const Curves *curves) {
    const RunState *state = report->state;
    char count[16];
    buffer_print(out, "<table>\n<tr><th>steps</th><td>%llu of %lld", (unsigned long long)state->step,
                 (long long)report->config->max_iters);
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
    print_evaluation(out, curves->evaluation);
    if (curves->seconds > 0)
        buffer_print(out, "<tr><th>speed</th><td>%.0f tokens/s in steps, mean of the run</td></tr>\n",
                     curves->tokens / curves->seconds);
    buffer_print(out, "<tr><th>backend</th><td>");
    print_escaped(out, report->backend_text, strlen(report->backend_text));
    buffer_print(out, "</td></tr>\n</table>\n");
}

static void print_data(Buffer *out, const RunState *state) {
    char hex[65];
    buffer_print(out, "<h2>Data</h2>\n<table><tr><th>dataset</th><th>fingerprint</th><th>samples used</th></tr>\n");
    for (int i = 0; i < state->dataset_count; i++) {
        const DatasetUse *use = &state->datasets[i];
        hex_encode(hex, use->fingerprint, 32);
        buffer_print(out, "<tr><td>");
        print_escaped(out, use->name, strlen(use->name));
        buffer_print(out, "</td><td><code>%s</code></td><td>%llu</td></tr>\n", hex, (unsigned long long)use->consumed);
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

static void print_settings(Buffer *out, const Report *report) {
    Buffer plan = {0};
    memory_plan_print(report->plan, report->config, report->model, report->backend, &plan);
    buffer_print(out, "<h2>Memory plan</h2>\n<pre>");
    print_escaped(out, (const char *)plan.data, plan.size);
    buffer_print(out, "</pre>\n<h2>Configuration</h2>\n<pre>");
    buffer_close(&plan);
    for (int key = 0; key < KEY_COUNT; key++) {
        char value[256];
        config_value(report->config, key, value, sizeof value);
        buffer_print(out, "%-28s = ", config_key(key));
        print_escaped(out, value, strlen(value));
        buffer_print(out, "\n");
    }
    buffer_print(out, "</pre>\n");
}

static const char head[] =
    "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>training run</title>\n<style>\n"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}\n"
    "svg{width:100%;background:#fafafa}svg line{stroke:#ddd}svg text{font-size:12px;fill:#666}\n"
    "polyline{fill:none;stroke-width:1.5}polyline.step{stroke:#bbb}polyline.train{stroke:#3a7}polyline.val{stroke:#c42}"
    "\n"
    "circle.train{fill:#3a7}circle.val{fill:#c42}b.step{color:#bbb}b.train{color:#3a7}b.val{color:#c42}\n"
    "table{border-collapse:collapse}th,td{text-align:left;padding:.15rem 1rem .15rem 0;vertical-align:top}\n"
    "pre{background:#f4f4f4;padding:1rem;overflow:auto;white-space:pre-wrap}code{font-size:.8rem;overflow-wrap:"
    "anywhere}\n"
    "</style>\n<h1>Training run</h1>\n";

static void print_page(Buffer *out, const Report *report, const Curves *curves) {
    buffer_print(out, "%s", head);
    print_summary(out, report, curves);
    buffer_print(out, "<h2>Loss</h2>\n");
    print_picture(out, curves);
    if (report->sample.size) {
        buffer_print(out, "<h2>Sample</h2>\n<pre>");
        print_escaped(out, (const char *)report->sample.data, report->sample.size);
        buffer_print(out, "</pre>\n");
    }
    print_data(out, report->state);
    print_settings(out, report);
    buffer_print(out, "</html>\n");
}

int report_write(const Report *report) {
    Curves curves = {0};
    Buffer page = {0};
    NewFile file;
    char path[PATH_MAX_BYTES];
    snprintf(path, sizeof path, "%.*s/report.html", PATH_MAX_BYTES - 32, report->config->out_dir);
    if (read_curves(report->metrics_path, &curves) < 0) return -1;
    print_page(&page, report, &curves);
    int result = newfile_open(&file, path);
    if (result == 0) result = newfile_write(&file, page.data, page.size);
    if (result == 0)
        result = newfile_commit(&file);
    else
        newfile_abandon(&file);
    free(curves.step.points), free(curves.val.points), free(curves.train.points);
    json_decref(curves.evaluation);
    buffer_close(&page);
    return result;
}
