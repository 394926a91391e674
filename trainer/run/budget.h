// The shape for a time: of plan with `until` and a dataset.
#pragma once

#include "trainer/config/config.h"
#include "trainer/plan/gpu_card.h"

// Sets n_layer, n_head and n_embd, unless one of them is set, so that the run that ends at `until` has the least loss
// by the scaling law; and learning_rate, min_lr, beta2, warmup_iters, block_size, eval_tokens and the size of a step,
// if they are not set, as the grid of the law had them. `card`: its speed counts instead of this machine's, which takes
// some seconds to measure; NULL without one. -1 after fail(): 2 when the time is too short, or the law has no figures
// for it. If the shape is set, then no loss is predicted instead, and budget_print() adds a line with the reason.
int budget_choose(ConfigReader *reader, const Backend *backend, const GpuCard *card, bool here,
                  const FeedDataset *dataset);

// Of the run that was chosen, by the rate; 0 without one.
uint64_t budget_steps(void);

double budget_seconds(const char *until); // to this time; 0 for one that has passed, `now`, and a text that is none

// Makes the short run, and adds the candidates to `out` and the keys that were chosen, as a configuration file, to
// `keys`; or both as members of a JSON object that has begun to `out`. No backend may be open.
int budget_print(ConfigReader *reader, const GpuCard *card, bool json, Buffer *out, Buffer *keys);
