// Chooses settings that fit: values for the keys that are auto, and suggestions when a plan does not fit.
#pragma once

#include "trainer/plan/memory_plan.h"

// Sets batch_size, recompute (a level, or a mix of two by layer), offload and loss_chunk_rows, where they are auto, to
// the fastest plan that fits, or to the smallest if none fits; the product of batch_size and
// gradient_accumulation_steps is kept. The batch size and the logits chunk change the rounding of results, so they
// depend on mem_limit only; recompute and offload change no bits and, if the arena is allocated on this machine
// (`here`), also depend on the free memory.
void plan_auto(Config *config, const Backend *backend, bool here);

// The level or levels of recompute, as "block" or "mlp in 5 layers, norm in 7".
void plan_recompute_text(const Config *config, char *text, size_t size);

// Returns -1 (82 on the CPU, 83 on a GPU) when the plan is larger than mem_limit; the error names the nearest settings
// that fit. With `here`, the free memory of this machine and its device is a limit too, and the error lists the
// processes that use the rest.
int memory_plan_check(const MemoryPlan *plan, const Config *config, const Backend *backend, bool here);

// Prints the size of the arena and the largest batch_size in mem_limit for each value of recompute and optimizer_state.
// loss_chunk_rows: as it was asked for, 0 = auto; another batch has another chunk than the plan of `config`.
void plan_print_choices(const Config *config, int64_t loss_chunk_rows, const Model *model, const Backend *backend,
                        Buffer *out);
