// The candidates for a time: what budget.c has chosen from and budget_print.c prints.
#pragma once

#include "common/bytes.h"
#include "common/err.h"
#include "trainer/plan/scaling_law.h"
#include "trainer/run/short_run.h"

enum { BUDGET_DEPTHS = 16 };

// A depth with the optimizer that has less loss there.
typedef struct {
    Config config;
    const ScalingLaw *law;
    double parameters;
    double step_flops;   // of a step, in its forward and backward passes
    double again_flops;  // of the activations that the backward pass computes again
    double update_flops; // of the optimizer's matrix products
    double step_s, steps, tokens, epochs;
    double loss, new_loss; // by the short run's; new_loss: if no token were repeated
    uint64_t bytes;
    bool fits, reached;
} BudgetShape;

typedef struct {
    BudgetShape all[BUDGET_DEPTHS];
    int count;
    const BudgetShape *best;
    double seconds, unique;      // unique: tokens of the training split
    int unlike[8], unlike_count; // keys that are set to another value than the grid of the best's law had
    bool shape_is_set, timed;
    Error unpredicted; // the shape is set, and its loss is not predicted
    Config given;
} Budget;

double budget_step_tokens(const Config *config);
// NULL: it fits, has steps enough, and the law reaches it. Otherwise the reason.
const char *budget_not_predicted(const BudgetShape *candidate);
bool budget_costs_repetition(const BudgetShape *candidate);
void budget_print_text(const Budget *budget, const ShortRun *run, const char *source, Buffer *out);
void budget_print_json(const Budget *budget, const ShortRun *run, Buffer *out);
// The configuration of the best candidate, with the other keys that were given. Nothing without a candidate.
void budget_print_keys(const Budget *budget, const ConfigReader *reader, Buffer *out);
void budget_print_json_keys(const Budget *budget, const ConfigReader *reader, Buffer *out);
