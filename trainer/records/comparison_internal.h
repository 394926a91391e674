// What the parts of the page about several runs share.
#pragma once

#include "common/file/file.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/records/curves.h"
#include "trainer/records/history.h"

typedef struct {
    const char *name;
    Curves curves;
    History history;
    SavedState saved; // of the newest checkpoint; zeroed without one
} ComparedRun;

// All values that a key had, as text in `text`. A checkpoint may leave out a key that has its default. A run without a
// checkpoint does not say.
const char *compared_value(const ComparedRun *run, int key, char text[static PATH_MAX_BYTES]);
// Whether the evaluations of two runs differ in dataset, mixture, order or size. A run without a rule does not say.
bool compared_evaluates_other(const ComparedRun *run, const ComparedRun *first);
// Whether the validation losses of two runs do not compare; then `reason` receives why.
bool compared_evaluations_differ(const ComparedRun *from, const ComparedRun *to, Buffer *reason);

// Adds the tables of two runs: changes of the items that both have graded, and of the losses of the same samples; or
// a line that says why there is none. -1 after fail() for damaged items.
int run_pair_print(const ComparedRun *from, const ComparedRun *to, Buffer *page, Buffer *text);

// Of two configurations that differ in more than the seed, with two runs or more of each: adds a table of their means,
// by the test of Welch. Of other runs a line that says why there is none. -1 after fail() for damaged items.
int run_groups_print(const ComparedRun *runs, int count, Buffer *page, Buffer *text);
