// Whether a plan fits the memory.
#pragma once

#include "trainer/plan/memory_plan.h"

// Returns -1 (82 on the CPU, 83 on a GPU) when the plan is larger than mem_limit; the error names the nearest settings
// that fit, and the size that a start with them has: for training, `config` is the configuration before plan_auto. With
// `here`, the free memory of this machine and its device is a limit too, and the error lists the processes that use the
// rest.
int memory_plan_check(const MemoryPlan *plan, const Config *config, const Backend *backend, bool here);

// The model and the plan of a training run: plan_auto, then memory_plan_check, whose result it returns. The caller
// closes the model in any case.
int memory_plan_of_run(MemoryPlan *plan, Model *model, Config *config, const Backend *backend, bool here);
