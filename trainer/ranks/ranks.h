// The processes of one training run (kernels/collective.h). Rank 0 owns the directory of the run: it alone prints, and
// reads and writes checkpoints, metrics and the report. The others receive its state and weights.
#pragma once

#include "kernels/collective.h"
#include "trainer/model/network.h"
#include "trainer/setup/loader_process.h"

// Joins the processes of the launcher, whose waits watch `loader_process`. Ranks other than 0 print nothing from here
// on, unless `print`. -1 after fail() (2) when the programs have different versions.
int ranks_open(Collective *ranks, const Config *config, LoaderProcess *loader_process, bool print);

// Gives processes of a machine that may use the same processors, because their launcher did not bind them, equal parts
// of the threads. Changes nothing with `threads` or OMP_NUM_THREADS.
int ranks_share_processors(Collective *ranks, Config *config);

// Combines the statuses of all ranks: when one has failed, all return -1 with the error of the lowest such rank.
int ranks_agree(Collective *ranks, int status);

// Compares the configuration, and later the data, with rank 0's. -1 after fail() (2) on all when they differ. Another
// instruction set of a CPU is a warning.
int ranks_compare_config(Collective *ranks, const Config *config, const Backend *backend);
int ranks_compare_data(Collective *ranks, const FeedDataset *dataset);

// Copies to `loader_process` the endpoint of the loader that the first rank of this machine has started. -1 (2) when
// another rank of the machine has another data source.
int ranks_share_loader(Collective *ranks, const Config *config, LoaderProcess *loader_process);

// Parameters and optimizer state. `own` is the network of this process, `whole` the one of rank 0 that checkpoints are
// read into and written from: another network if the ranks divide the state, else the same.
int ranks_share_weights(Network *own, Network *whole); // from rank 0's `whole` to all
// Copies the parameters alone, from `whole` to `own` of this process.
void ranks_copy_parameters(Network *own, Network *whole);
// Copies the state that the ranks divide to rank 0's `whole`, when rank 0 finds it needed. All ranks call it.
int ranks_gather_state(Network *own, Network *whole, bool *needed);

// Prints the pending error in rank 0, then waits for all ranks: mpirun kills the others as soon as one has failed.
void ranks_close(Collective *ranks, bool by_signal);

static inline bool ranks_first(const Collective *ranks) { return ranks->rank == 0; }
