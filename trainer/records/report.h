// report.html: one self-contained page about a run.
#pragma once

#include "trainer/checkpoint/run_state.h"
#include "trainer/plan/memory_plan.h"

typedef struct {
    const Config *config;
    const RunState *state;
    const Backend *backend;
    const char *backend_text; // device, type and reason
    const Model *model;
    const MemoryPlan *plan;
} Report;

int report_write(const Report *report); // to out_dir; -1 after fail()
