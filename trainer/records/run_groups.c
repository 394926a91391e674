// Two configurations, several runs of each: what differs by more than their seeds.
#include "common/err.h"
#include "trainer/records/bar_table.h"
#include "trainer/records/comparison_internal.h"
#include "trainer/records/grade_pair.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { AGAIN = 2 }; // in the place of a group

typedef struct {
    const ComparedRun *runs;
    int count;
    int *group;    // of each run: 0 A, 1 B, AGAIN: it is an earlier run, and does not count
    uint64_t step; // of the graded items
} Groups;

static bool same_value(const ComparedRun *a, const ComparedRun *b, int key) {
    char left[PATH_MAX_BYTES], right[PATH_MAX_BYTES];
    return !strcmp(compared_value(a, key, left), compared_value(b, key, right));
}

static bool same_configuration(const ComparedRun *a, const ComparedRun *b) {
    for (int key = 0; key < KEY_COUNT; key++)
        if (key != KEY_seed && !same_value(a, b, key)) return false;
    return true;
}

// Of two runs of one configuration. Seeds on which nothing depends leave the chains equal.
static bool same_run(const ComparedRun *a, const ComparedRun *b) {
    const RunState *left = &a->saved.state, *right = &b->saved.state;
    return same_value(a, b, KEY_seed) ||
           (left->step && left->step == right->step && !memcmp(left->chain, right->chain, sizeof left->chain));
}

// Group A has the configuration of the first run, but for the seed. Adds a sentence for each run that is an earlier
// one; and to `reason` why these are not two groups of several runs.
static void find_groups(Groups *groups, Buffer *again, Buffer *reason) {
    const ComparedRun *first = groups->runs, *other = NULL;
    int counts[2] = {0};
    for (int i = 0; i < groups->count && !reason->size; i++) {
        const ComparedRun *run = &groups->runs[i];
        const int group = groups->group[i] = run->saved.config && !same_configuration(first, run);
        if (!run->saved.config)
            buffer_print(reason, "'%s' has no checkpoint, which names its configuration", run->name);
        if (group && !other) other = run;
        if (group && !same_configuration(other, run))
            buffer_print(reason, "'%s', '%s' and '%s' have three configurations", first->name, other->name, run->name);
        for (int k = 0; k < i && groups->group[i] != AGAIN; k++) {
            if (groups->group[k] != group || !same_run(&groups->runs[k], run)) continue;
            buffer_print(again, "%s'%s' is '%s' once more, with the same seed or chain, and does not count.",
                         again->size ? " " : "", run->name, groups->runs[k].name);
            groups->group[i] = AGAIN;
        }
        counts[group] += groups->group[i] != AGAIN;
    }
    if (reason->size) return;
    if (!other)
        buffer_print(reason, "all runs have one configuration, but for the seed");
    else if (counts[0] < 2 || counts[1] < 2)
        buffer_print(reason, "two seeds of each configuration are the least, and that of '%s' has %d, that of '%s' %d",
                     first->name, counts[0], other->name, counts[1]);
}

// The mean over tasks of what is right above chance, of the items that all runs have graded at one step. NAN: none,
// with the reason. -1 after fail().
static int right_above_chance(Groups *groups, int run, double *found, Buffer *reason) {
    GradePair pair;
    const char *const names[2] = {groups->runs[0].name, groups->runs[run].name};
    const int result = grade_pair_read(&pair, names, reason);
    if (!run) groups->step = pair.steps[0];
    if (result > 0 && (pair.steps[0] != groups->step || pair.steps[1] != groups->step))
        buffer_print(reason, "'%s' has no graded items of step %" PRIu64 ", the last one of '%s'", names[1],
                     groups->step, names[0]);
    *found = reason->size ? NAN : 0;
    for (size_t i = 0; i < pair.count; i++) {
        const TaskPair *task = &pair.tasks[i];
        *found +=
            ((double)task->right[1] / (double)task->items - task->chance) / (1 - task->chance) / (double)pair.count;
    }
    grade_pair_close(&pair);
    return result < 0 ? -1 : 0;
}

// The last validation loss, of evaluations that compare and of one step.
static int last_loss(Groups *groups, int run, double *found, Buffer *reason) {
    const ComparedRun *first = groups->runs, *own = &groups->runs[run];
    *found = NAN;
    if (compared_evaluations_differ(first, own, reason)) return 0;
    const Curve *curves[2] = {curves_find(&first->curves, "val_loss"), curves_find(&own->curves, "val_loss")};
    const Point *from = &curves[0]->points[curves[0]->count - 1], *to = &curves[1]->points[curves[1]->count - 1];
    *found = to->value;
    if (from->step != to->step)
        buffer_print(reason, "the last evaluation of '%s' is of step %.0f, that of '%s' of step %.0f", first->name,
                     from->step, own->name, to->step);
    return 0;
}

enum { NAME, FROM, TO, CHANGE, BAR, P, CELLS };

static const BarColumn columns[CELLS] = {[NAME] = {"mean of runs", false},   [FROM] = {"A", false}, [TO] = {"B", false},
                                         [CHANGE] = {"change, 95 %", false}, [BAR] = {NULL, false}, [P] = {"p", false}};

// 1; 0 with a sentence in `left_out` if a run does not have the value; -1 after fail().
static int fill_row(BarRow *row, Groups *groups, const char *name, int value(Groups *, int, double *, Buffer *),
                    bool more_is_better, Buffer *left_out) {
    Series series[2] = {0};
    Buffer reason = {0};
    int result = 1;
    for (int i = 0; i < groups->count && result > 0; i++) {
        double found = NAN;
        if (groups->group[i] == AGAIN) continue;
        if (value(groups, i, &found, &reason) < 0) result = -1;
        if (result > 0 && !reason.size && !isfinite(found))
            buffer_print(&reason, "that of '%s' is not finite", groups->runs[i].name);
        if (result > 0 && reason.size) result = 0;
        series_add(&series[groups->group[i]], found);
    }
    if (!result)
        buffer_print(left_out, "%sNo row for %s: %.*s.", left_out->size ? " " : "", name, (int)reason.size,
                     (const char *)reason.data);
    buffer_close(&reason);
    if (result < 1) return result;
    row->change = estimate_welch(&series[0], &series[1]);
    row->color = bar_color(&row->change, row->change.p, more_is_better);
    snprintf(row->cells[NAME], BAR_CELL_BYTES, "%s", name);
    snprintf(row->cells[FROM], BAR_CELL_BYTES, "%.4f", series[0].mean);
    snprintf(row->cells[TO], BAR_CELL_BYTES, "%.4f", series[1].mean);
    bar_print_change(row->cells[CHANGE], &row->change, 1, 4);
    bar_print_p(row->cells[P], row->change.p);
    return 1;
}

static void name_runs(const BarOutputs *out, const Groups *groups) {
    Buffer line = {0};
    for (int group = 0; group < 2; group++) {
        const char *before = group ? "; B: " : "A: ";
        for (int i = 0; i < groups->count; i++)
            if (groups->group[i] == group) buffer_print(&line, "%s%s", before, groups->runs[i].name), before = ", ";
    }
    bar_table_paragraph(out, &line);
    buffer_close(&line);
}

static void print_rows(const BarOutputs *out, const Groups *groups, const BarRow *rows, size_t count) {
    Buffer line = {0};
    bool known = false;
    for (size_t i = 0; i < count; i++) known |= !isnan(rows[i].change.p);
    bar_table_heading(out, "Two configurations, several runs of each");
    name_runs(out, groups);
    bar_table_print(out, columns, CELLS, rows, count);
    if (known)
        bar_table_verdict(&line, "seeds", rows, count);
    else
        buffer_print(&line, "Beyond seeds: not known, the runs of each configuration have equal values.");
    bar_table_paragraph(out, &line);
    buffer_close(&line);
}

int run_groups_print(const ComparedRun *runs, int count, Buffer *page, Buffer *text) {
    static const struct {
        const char *name;
        int (*value)(Groups *, int, double *, Buffer *);
        bool more_is_better;
    } values[] = {{"last validation loss", last_loss, false}, {"right above chance", right_above_chance, true}};
    const BarOutputs out = {page, text};
    Groups groups = {.runs = runs, .count = count, .group = allocate_zeroed((size_t)count, sizeof(int))};
    BarRow rows[2] = {0};
    Buffer line = {0}, reason = {0};
    size_t row_count = 0;
    int found = 0;
    find_groups(&groups, &line, &reason);
    if (line.size) bar_table_paragraph(&out, &line);
    if (reason.size) buffer_print(&line, "Beyond seeds: not known, %.*s.", (int)reason.size, (const char *)reason.data);
    for (size_t i = 0; i < 2 && found >= 0 && !reason.size; i++) {
        found = fill_row(&rows[row_count], &groups, values[i].name, values[i].value, values[i].more_is_better, &line);
        row_count += found > 0;
    }
    if (row_count) print_rows(&out, &groups, rows, row_count);
    if (line.size) bar_table_paragraph(&out, &line);
    free(groups.group);
    buffer_close(&line);
    buffer_close(&reason);
    return found < 0 ? -1 : 0;
}
