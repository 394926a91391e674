// Chooses the fastest settings that fit, for the keys that are auto.
#pragma once

#include "trainer/plan/plan_fit.h"

// Sets zero_stage to 0 if several processes cannot divide the optimizer's state.
//
// Sets batch_size, recompute (a level, or a mix of two by layer), offload and loss_chunk_rows, if they are auto, to the
// fastest plan that fits, or to the smallest if none fits; the product of batch_size and gradient_accumulation_steps is
// kept. The batch size and the logits chunk change the rounding of results, so they depend on mem_limit only, as
// reduce_order does, which also changes it; recompute and offload change no bits and also depend on the limits.
void plan_auto(Config *config, const Backend *backend, const MemoryLimits *limits);

// The same, printing nothing. Returns the predicted time per token, INFINITY when nothing fits.
double plan_auto_within(Config *config, const Model *model, const Backend *backend, const MemoryLimits *limits);

// The level or levels of recompute, as "block" or "mlp in 5 layers, norm in 7".
void plan_recompute_text(const Config *config, char *text, size_t size);
