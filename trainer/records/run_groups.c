// Two configurations, several runs of each: what differs by more than their seeds.
#include "common/err.h"
#include "trainer/records/bar_table.h"
#include "trainer/records/comparison_internal.h"
#include "trainer/records/grade_pair.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    const ComparedRun *runs;
    int count;
    bool *second; // of each run: whether it is of group B
} Groups;

static bool same_configuration(const ComparedRun *a, const ComparedRun *b) {
    char left[PATH_MAX_BYTES], right[PATH_MAX_BYTES];
    for (int key = 0; key < KEY_COUNT; key++)
        if (key != KEY_seed && strcmp(compared_value(a, key, left), compared_value(b, key, right))) return false;
    return true;
}

// Group A has the configuration of the first run, but for the seed. False: these are not two groups of several runs.
static bool find_groups(Groups *groups) {
    const ComparedRun *first = groups->runs, *other = NULL;
    int counts[2] = {0};
    for (int i = 0; i < groups->count; i++) {
        const ComparedRun *run = &groups->runs[i];
        if (!run->saved.config) return false;
        groups->second[i] = !same_configuration(first, run);
        if (groups->second[i] && !other) other = run;
        if (groups->second[i] && !same_configuration(other, run)) return false;
        counts[groups->second[i]]++;
    }
    return counts[0] > 1 && counts[1] > 1;
}

// The mean over tasks of what is right above chance, of the items that all runs have graded at one step. NAN: none.
static double right_above_chance(const Groups *groups, int run) {
    GradePair pair;
    Buffer reason = {0};
    double sum = NAN;
    const char *const names[2] = {groups->runs[0].name, groups->runs[run].name};
    if (grade_pair_read(&pair, names, &reason) > 0 && pair.steps[0] == pair.steps[1]) sum = 0;
    for (size_t i = 0; i < pair.count; i++) {
        const TaskPair *task = &pair.tasks[i];
        sum += ((double)task->right[1] / (double)task->items - task->chance) / (1 - task->chance) / (double)pair.count;
    }
    err_clear();
    grade_pair_close(&pair);
    buffer_close(&reason);
    return sum;
}

// The last validation loss, of evaluations that compare and of one step. NAN: none.
static double last_loss(const Groups *groups, int run) {
    const Curve *first = curves_find(&groups->runs[0].curves, "val_loss"),
                *own = curves_find(&groups->runs[run].curves, "val_loss");
    if (!first->count || !own->count || compared_evaluates_other(&groups->runs[run], groups->runs)) return NAN;
    const Point *point = &own->points[own->count - 1];
    return point->step == first->points[first->count - 1].step && groups->runs[run].history.rule_count < 2
               ? point->value
               : NAN;
}

enum { NAME, FROM, TO, CHANGE, BAR, P, CELLS };

static const BarColumn columns[CELLS] = {[NAME] = {"mean of runs", false},   [FROM] = {"A", false}, [TO] = {"B", false},
                                         [CHANGE] = {"change, 95 %", false}, [BAR] = {NULL, false}, [P] = {"p", false}};

// False: a run does not have the value.
static bool fill_row(BarRow *row, const Groups *groups, const char *name, double value(const Groups *, int),
                     bool more_is_better) {
    Series series[2] = {0};
    for (int i = 0; i < groups->count; i++) {
        const double found = value(groups, i);
        if (!isfinite(found)) return false;
        series_add(&series[groups->second[i]], found);
    }
    row->change = estimate_welch(&series[0], &series[1]);
    row->color = bar_color(&row->change, row->change.p, more_is_better);
    snprintf(row->cells[NAME], BAR_CELL_BYTES, "%s", name);
    snprintf(row->cells[FROM], BAR_CELL_BYTES, "%.4f", series[0].mean);
    snprintf(row->cells[TO], BAR_CELL_BYTES, "%.4f", series[1].mean);
    bar_print_change(row->cells[CHANGE], &row->change, 1, 4);
    bar_print_p(row->cells[P], row->change.p);
    return true;
}

static void name_runs(const BarOutputs *out, const Groups *groups) {
    Buffer line = {0};
    for (int group = 0; group < 2; group++) {
        const char *before = group ? "; B: " : "A: ";
        for (int i = 0; i < groups->count; i++)
            if (groups->second[i] == group) buffer_print(&line, "%s%s", before, groups->runs[i].name), before = ", ";
    }
    bar_table_paragraph(out, &line);
    buffer_close(&line);
}

void run_groups_print(const ComparedRun *runs, int count, Buffer *page, Buffer *text) {
    const BarOutputs out = {page, text};
    Groups groups = {runs, count, allocate_zeroed((size_t)count, sizeof(bool))};
    BarRow rows[2] = {0};
    Buffer line = {0};
    size_t row_count = 0;
    if (find_groups(&groups)) {
        row_count += fill_row(&rows[row_count], &groups, "last validation loss", last_loss, false);
        row_count += fill_row(&rows[row_count], &groups, "right above chance", right_above_chance, true);
    }
    if (row_count) {
        bar_table_heading(&out, "Two configurations, several runs of each");
        name_runs(&out, &groups);
        bar_table_print(&out, columns, CELLS, rows, row_count);
        bar_table_verdict(&line, "seeds", rows, row_count);
        bar_table_paragraph(&out, &line);
    }
    free(groups.second);
    buffer_close(&line);
}
