// Which plan fits: what is auto in a configuration, and what to ask for instead of what does not fit.
#pragma once

#include "trainer/plan/memory_plan.h"

// Sets batch_size (with gradient_accumulation_steps: their product stays) and recompute where they are auto, to the
// fastest plan below the limit; where none is, to the smallest. Micro-batches are part of the numeric contract, so that
// batch_size follows mem_limit alone; recompute, which changes no bits, also what this machine or its device has left
// (`here`).
void plan_auto(Config *config, const Backend *backend, bool here);

// -1 (82 on the CPU, 83 elsewhere) when the plan is larger than mem_limit, with the nearest settings that fit. `here`
// also refuses what the free memory of this machine or its device cannot hold, and says who has the rest, for those
// that are about to allocate.
int memory_plan_check(const MemoryPlan *plan, const Config *config, const Backend *backend, bool here);

// What the levers of memory give: the arena, and the largest micro-batch below mem_limit.
void plan_print_levers(const Config *config, const Model *model, const Backend *backend, Buffer *out);
