// Whether a plan fits the memory.
#pragma once

#include "trainer/plan/memory_plan.h"

// Returns -1 (82 on the CPU, 83 on a GPU) when the plan is larger than mem_limit; the error names the nearest settings
// that fit, and the size that a start with them has: for training, `config` is the configuration before plan_auto. With
// `here`, the free memory of this machine and its device is a limit too, and the error lists the processes that use the
// rest.
int memory_plan_check(const MemoryPlan *plan, const Config *config, const Backend *backend, bool here);
