// Grades of a run by items (key items), every items_interval steps and after the last, each behind its checkpoint.
#pragma once

#include "trainer/run/run.h"

// Opens and checks the file of items, and finds the grade that the record ends with. All processes call it. -1 after
// fail(): 2 when they have different files, 65, 66.
int run_items_open(Run *run);

// Finds the grades of the record again, after lines were cut from it. All processes call it.
int run_items_find(Run *run);

// Whether the model is to be graded at this step; the same in all processes.
bool run_items_due(const Run *run);

// Grades the model: writes items-STEP.jsonl, whole or not at all, and a line of the record, and sets the step of the
// highest grade. Changes nothing else of the run. That the file cannot be written is a warning. -1 after fail(): 75,
// 81.
int run_items_grade(Run *run);
