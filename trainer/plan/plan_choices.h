// The table of recompute and optimizer_state that `trainer plan` prints.
#pragma once

#include "trainer/plan/memory_plan.h"

// Prints the size of the arena and the largest batch_size in mem_limit for each value of recompute and optimizer_state.
// loss_chunk_rows: as it was given, 0 = auto; another batch has another chunk than the plan of `config`.
void plan_print_choices(const Config *config, int64_t loss_chunk_rows, const Model *model, const Backend *backend,
                        Buffer *out);
