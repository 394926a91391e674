// Two runs, item by item and sample by sample.
#include "common/err.h"
#include "trainer/records/bar_table.h"
#include "trainer/records/comparison_internal.h"
#include "trainer/records/grade_pair.h"
#include "trainer/records/html.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// ---- items

enum {
    TASK,
    ITEMS,
    CHANCE,
    FROM,
    FROM_RANGE,
    TO,
    TO_RANGE,
    CHANGE,
    BAR,
    P_HOLM,
    BETTER,
    WORSE,
    LOSS,
    NEEDED,
    ITEM_CELLS
};

static const BarColumn item_columns[ITEM_CELLS] = {[TASK] = {"task", false},
                                                   [ITEMS] = {"items", false},
                                                   [CHANCE] = {"chance %", true},
                                                   [FROM] = {"A %", false},
                                                   [FROM_RANGE] = {"95 %", true},
                                                   [TO] = {"B %", false},
                                                   [TO_RANGE] = {"95 %", true},
                                                   [CHANGE] = {"points, 95 %", false},
                                                   [BAR] = {NULL, false},
                                                   [P_HOLM] = {"p (Holm)", false},
                                                   [BETTER] = {"right in B alone", true},
                                                   [WORSE] = {"right in A alone", true},
                                                   [LOSS] = {"loss of the right ending, nats/byte", true},
                                                   [NEEDED] = {"items for 1 point", true}};

static void print_share(char cell[BAR_CELL_BYTES], char range[BAR_CELL_BYTES], uint64_t right, uint64_t items) {
    double low, high;
    wilson_interval(right, items, &low, &high);
    snprintf(cell, BAR_CELL_BYTES, "%.2f", 100 * (double)right / (double)items);
    snprintf(range, BAR_CELL_BYTES, "%.2f to %.2f", 100 * low, 100 * high);
}

// Of right and wrong. If all items have changed alike, as where none has, the interval of Tango (Statistics in Medicine
// 17, 1998), which then is Wilson's: nothing found in a few items is no certain nothing.
static Estimate right_change(const TaskPair *task) {
    Estimate change = estimate_mean(&task->right_change);
    double low, width;
    if (!isnan(change.error)) return change;
    wilson_interval(0, task->items, &low, &width);
    change.low = fmax(change.value - width, -1), change.high = fmin(change.value + width, 1);
    return change;
}

static void fill_task(BarRow *row, const TaskPair *task, double p) {
    const Estimate loss = estimate_mean(&task->loss_change);
    const double needed = items_needed(series_variance(&task->right_change), 0.01);
    row->change = right_change(task);
    row->color = bar_color(&row->change, p, true);
    snprintf(row->cells[TASK], BAR_CELL_BYTES, "%s", task->name);
    snprintf(row->cells[ITEMS], BAR_CELL_BYTES, "%" PRIu64, task->items);
    snprintf(row->cells[CHANCE], BAR_CELL_BYTES, "%.1f", 100 * task->chance);
    print_share(row->cells[FROM], row->cells[FROM_RANGE], task->right[0], task->items);
    print_share(row->cells[TO], row->cells[TO_RANGE], task->right[1], task->items);
    bar_print_change(row->cells[CHANGE], &row->change, 100, 2);
    bar_print_p(row->cells[P_HOLM], p);
    snprintf(row->cells[BETTER], BAR_CELL_BYTES, "%" PRIu64, task->better);
    snprintf(row->cells[WORSE], BAR_CELL_BYTES, "%" PRIu64, task->worse);
    if (task->loss_change.count) bar_print_change(row->cells[LOSS], &loss, 1, 5);
    if (needed > 0) snprintf(row->cells[NEEDED], BAR_CELL_BYTES, "%.0f", needed);
}

static void print_verdict(const BarOutputs *out, const GradePair *pair, const BarRow *rows, size_t row_count) {
    Buffer line = {0};
    bar_table_verdict(&line, "items", rows, row_count);
    buffer_print(&line, " Beyond seeds: not known, one run each.");
    bar_table_paragraph(out, &line);
    if (pair->blocks[0] != pair->blocks[1]) {
        buffer_print(&line, "A reads %lld tokens of an item, B %lld.", pair->blocks[0], pair->blocks[1]);
        bar_table_paragraph(out, &line);
    }
    buffer_close(&line);
}

// The tasks whose few items make most of the error of the mean.
static void print_weights(const BarOutputs *out, const GradePair *pair, const double *shares) {
    Buffer line = {0};
    buffer_print(&line, "Of the variance of the mean: ");
    const size_t start = line.size;
    for (size_t i = 0; i < pair->count; i++)
        if (shares[i] * (double)pair->count > 2) // twice its part
            buffer_print(&line, "%s%s %.0f %% (%" PRIu64 " items)", line.size > start ? ", " : "", pair->tasks[i].name,
                         100 * shares[i], pair->tasks[i].items);
    if (line.size > start) buffer_print(&line, "."), bar_table_paragraph(out, &line);
    buffer_close(&line);
}

static void print_tasks(const BarOutputs *out, const GradePair *pair) {
    double *p = allocate_zeroed(pair->count, sizeof *p), *shares = allocate_zeroed(pair->count, sizeof *shares);
    BarRow *rows = allocate_zeroed(pair->count + 1, sizeof *rows), *mean = &rows[pair->count];
    for (size_t i = 0; i < pair->count; i++) p[i] = mcnemar_p(pair->tasks[i].better, pair->tasks[i].worse);
    holm_correct(p, pair->count);
    for (size_t i = 0; i < pair->count; i++) fill_task(&rows[i], &pair->tasks[i], p[i]);
    mean->change = grade_pair_mean(pair, shares);
    mean->color = bar_color(&mean->change, mean->change.p, true);
    strcpy(mean->cells[TASK], "mean above chance");
    bar_print_change(mean->cells[CHANGE], &mean->change, 100, 2);
    bar_print_p(mean->cells[P_HOLM], mean->change.p);
    const size_t row_count = pair->count + (pair->count > 1);
    bar_table_print(out, item_columns, ITEM_CELLS, rows, row_count);
    print_verdict(out, pair, rows, row_count);
    if (pair->count > 1) print_weights(out, pair, shares);
    free(rows);
    free(p);
    free(shares);
}

static int print_items(const BarOutputs *out, const char *const names[2]) {
    GradePair pair;
    Buffer line = {0};
    const int result = grade_pair_read(&pair, names, &line);
    if (result >= 0) bar_table_heading(out, "The same items");
    if (result == 0) buffer_print(&line, "."), bar_table_paragraph(out, &line);
    if (result > 0) {
        for (int i = 0; i < 2; i++)
            buffer_print(&line, "%s%c: %s, step %" PRIu64, i ? "; " : "", "AB"[i], names[i], pair.steps[i]);
        bar_table_paragraph(out, &line);
        print_tasks(out, &pair);
    }
    grade_pair_close(&pair);
    buffer_close(&line);
    return result < 0 ? -1 : 0;
}

// ---- losses

enum { WHAT, LOSS_FROM, LOSS_TO, LOSS_CHANGE, LOSS_BAR, LOSS_P, ALONE, PAIRED, LOSS_CELLS };

static const BarColumn loss_columns[LOSS_CELLS] = {[WHAT] = {"loss", false},
                                                   [LOSS_FROM] = {"A", false},
                                                   [LOSS_TO] = {"B", false},
                                                   [LOSS_CHANGE] = {"change, 95 %", false},
                                                   [LOSS_BAR] = {NULL, false},
                                                   [LOSS_P] = {"p", false},
                                                   [ALONE] = {"noise of a step, unpaired", true},
                                                   [PAIRED] = {"paired", true}};

// The losses of the steps in which both runs have read the same samples.
typedef struct {
    double *losses[2], *changes;
    double first, last; // steps
    double shared;      // the last step of those before, in which the losses are equal; 0: none
    size_t count;
} LossPair;

static bool same_data(const RunState *a, const RunState *b) {
    bool same = a->change_count == b->change_count && a->dataset_count && b->dataset_count &&
                !memcmp(a->datasets[a->dataset].fingerprint, b->datasets[b->dataset].fingerprint, 32);
    for (int i = 0; same && i < a->change_count; i++)
        same = a->changes[i].step == b->changes[i].step && !memcmp(a->changes[i].old, b->changes[i].old, 32) &&
               !memcmp(a->changes[i].new, b->changes[i].new, 32);
    return same;
}

// Why no step of the two runs compares; nothing is added if that depends on the samples of their steps.
static void find_reason(const ComparedRun *const runs[2], Buffer *reason) {
    static const int keys[] = {KEY_seed,          KEY_sampling, KEY_block_size, KEY_loss_tokens,
                               KEY_document_mask, KEY_z_loss,   KEY_dropout};
    char a[PATH_MAX_BYTES], b[PATH_MAX_BYTES];
    for (int i = 0; i < 2; i++)
        if (!runs[i]->saved.config && !reason->size)
            buffer_print(reason, "'%s' has no checkpoint, which names its data", runs[i]->name);
    if (reason->size) return;
    if (!same_data(&runs[0]->saved.state, &runs[1]->saved.state)) {
        buffer_print(reason, "the training losses are of different data");
        return;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !reason->size; i++)
        if (strcmp(compared_value(runs[0], keys[i], a), compared_value(runs[1], keys[i], b)))
            buffer_print(reason, "the training losses do not compare step by step: %s is %s in A, %s in B",
                         config_key(keys[i]), a, b);
}

// The value at a step, at or after *at. NAN: none.
static double value_at(const Curve *curve, size_t *at, double step) {
    while (*at < curve->count && curve->points[*at].step < step) ++*at;
    return *at < curve->count && curve->points[*at].step == step ? curve->points[*at].value : NAN;
}

// Steps before the first one whose losses differ are those of one run: a branch has the past of the other run.
static void add_step(LossPair *pair, double step, const double losses[2]) {
    if (!pair->count && losses[0] == losses[1]) pair->shared = step;
    if (!isfinite(losses[0] + losses[1]) || pair->shared == step) return;
    for (int run = 0; run < 2; run++) {
        pair->losses[run] = array_grow(pair->losses[run], pair->count, sizeof(double));
        pair->losses[run][pair->count] = losses[run];
    }
    pair->changes = array_grow(pair->changes, pair->count, sizeof(double));
    pair->changes[pair->count++] = losses[1] - losses[0];
    if (pair->count == 1) pair->first = step;
    pair->last = step;
}

static bool same_size(const ComparedRun *const runs[2]) {
    char a[PATH_MAX_BYTES], b[PATH_MAX_BYTES];
    return !strcmp(compared_value(runs[0], KEY_batch_size, a), compared_value(runs[1], KEY_batch_size, b)) &&
           !strcmp(compared_value(runs[0], KEY_gradient_accumulation_steps, a),
                   compared_value(runs[1], KEY_gradient_accumulation_steps, b));
}

// The samples of a step end where those of the next one begin; after the last one of a run they are known by the size
// of a step.
static void pair_losses(LossPair *pair, const ComparedRun *const runs[2]) {
    const Curve *samples[2], *losses[2];
    size_t at[2] = {0}, sample_at = 0;
    double before[2] = {NAN, NAN}, before_step = NAN, other = NAN;
    for (int i = 0; i < 2; i++)
        samples[i] = curves_find(&runs[i]->curves, "first_sample"), losses[i] = curves_find(&runs[i]->curves, "loss");
    for (size_t i = 0; i < samples[0]->count; i++, other = NAN) {
        const double step = samples[0]->points[i].step;
        other = value_at(samples[1], &sample_at, step);
        if (other != samples[0]->points[i].value) break;
        add_step(pair, before_step, before);
        before_step = step;
        for (int run = 0; run < 2; run++) before[run] = value_at(losses[run], &at[run], step);
    }
    if (isnan(other) && same_size(runs)) add_step(pair, before_step, before); // one has ended
}

static double mean_of(const double *values, size_t count) {
    Series series = {0};
    for (size_t i = 0; i < count; i++) series_add(&series, values[i]);
    return series.mean;
}

// The variance of a step about a level that moves slowly, from the differences of neighbours (von Neumann, Annals of
// Mathematical Statistics 12, 1941).
static double noise_of(const double *values, size_t count) {
    double squares = 0;
    for (size_t i = 1; i < count; i++) squares += (values[i] - values[i - 1]) * (values[i] - values[i - 1]);
    return squares / (2 * ((double)count - 1));
}

// The second half of the common steps, which the beginning of training does not reach.
static void fill_training(BarRow *row, const LossPair *pair) {
    const size_t second = pair->count - pair->count / 2;
    const size_t count = second < SERIES_LEAST ? second : second / 16 * 16, start = pair->count - count; // whole blocks
    const double *from = pair->losses[0] + start, *to = pair->losses[1] + start, *changes = pair->changes + start;
    row->change = estimate_correlated(changes, count);
    if (isnan(row->change.value)) row->change.value = mean_of(changes, count);
    row->color = bar_color(&row->change, row->change.p, false);
    snprintf(row->cells[WHAT], BAR_CELL_BYTES, "training, last %zu of steps %.0f to %.0f", count, pair->first,
             pair->last);
    snprintf(row->cells[LOSS_FROM], BAR_CELL_BYTES, "%.4f", mean_of(from, count));
    snprintf(row->cells[LOSS_TO], BAR_CELL_BYTES, "%.4f", mean_of(to, count));
    bar_print_change(row->cells[LOSS_CHANGE], &row->change, 1, 5);
    bar_print_p(row->cells[LOSS_P], row->change.p);
    if (count < 2) return;
    snprintf(row->cells[ALONE], BAR_CELL_BYTES, "%.5f", sqrt(noise_of(from, count) + noise_of(to, count)));
    snprintf(row->cells[PAIRED], BAR_CELL_BYTES, "%.5f", sqrt(noise_of(changes, count)));
}

// The last evaluation that both have made of the same tokens. False, with the reason: none.
static bool fill_validation(BarRow *row, const ComparedRun *const runs[2], Buffer *reason) {
    const Curve *from = curves_find(&runs[0]->curves, "val_loss"), *to = curves_find(&runs[1]->curves, "val_loss");
    row->change = (Estimate){NAN, NAN, NAN, NAN, NAN};
    if (compared_evaluations_differ(runs[0], runs[1], reason)) return false;
    for (size_t i = from->count; i > 0; i--) {
        size_t at = 0;
        const Point *point = &from->points[i - 1];
        const double other = value_at(to, &at, point->step);
        if (isnan(other)) continue;
        row->change.value = other - point->value;
        snprintf(row->cells[WHAT], BAR_CELL_BYTES, "validation, step %.0f", point->step);
        snprintf(row->cells[LOSS_FROM], BAR_CELL_BYTES, "%.4f", point->value);
        snprintf(row->cells[LOSS_TO], BAR_CELL_BYTES, "%.4f", other);
        bar_print_change(row->cells[LOSS_CHANGE], &row->change, 1, 5);
        return true;
    }
    buffer_print(reason, "they have no evaluation of one step");
    return false;
}

static void print_losses(const BarOutputs *out, const ComparedRun *const runs[2]) {
    BarRow rows[2] = {0};
    LossPair pair = {0};
    Buffer line = {0}, reason = {0};
    size_t count = 0;
    find_reason(runs, &line);
    if (!line.size) pair_losses(&pair, runs);
    if (pair.count) fill_training(&rows[count++], &pair);
    count += fill_validation(&rows[count], runs, &reason);
    bar_table_heading(out, "The same samples");
    if (count) bar_table_print(out, loss_columns, LOSS_CELLS, rows, count);
    if (pair.shared > 0) {
        buffer_print(&line, "Up to step %.0f the losses are equal, as those of one run, and are left out.",
                     pair.shared);
        bar_table_paragraph(out, &line);
    }
    if (line.size)
        buffer_print(&line, ".");
    else if (!pair.count)
        buffer_print(&line, "The runs have no %sstep with the same samples.", pair.shared > 0 ? "later " : "");
    else if (isnan(rows[0].change.p))
        buffer_print(&line, "Beyond samples: not known, %d common steps are the least for an interval.",
                     2 * SERIES_LEAST);
    else
        buffer_print(&line, "Beyond samples: %s. Beyond seeds: not known, one run each.",
                     rows[0].color == 1   ? "yes, B is lower"
                     : rows[0].color == 2 ? "yes, B is higher"
                                          : "no");
    bar_table_paragraph(out, &line);
    if (reason.size) {
        buffer_print(&line, "The validation losses are left out: %.*s.", (int)reason.size, (const char *)reason.data);
        bar_table_paragraph(out, &line);
    }
    for (int i = 0; i < 2; i++) free(pair.losses[i]);
    free(pair.changes);
    buffer_close(&reason);
    buffer_close(&line);
}

int run_pair_print(const ComparedRun *from, const ComparedRun *to, Buffer *page, Buffer *text) {
    const BarOutputs out = {page, text};
    if (print_items(&out, (const char *[]){from->name, to->name}) < 0) return -1;
    print_losses(&out, (const ComparedRun *[]){from, to});
    return 0;
}
