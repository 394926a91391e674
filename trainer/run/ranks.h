// The processes of one training run (kernels/collective.h). Rank 0 owns the directory of the run: it alone prints, and
// reads and writes checkpoints, metrics and the report. The others receive its state and weights.
#pragma once

#include "trainer/run/run.h"

// Joins the processes of the launcher. Ranks other than 0 print nothing from here on, unless `print`. -1 after fail()
// (2) when the programs have different versions.
int ranks_open(Run *run, const Config *config, bool print);

// With threads=0, and no OMP_NUM_THREADS: processes of a machine that may use the same processors, because their
// launcher did not bind them, get an equal part of the threads.
int ranks_share_processors(Run *run, Config *config);

// Every rank passes its status. -1 on all of them, with the error of the first that has one, when one has failed.
int ranks_agree(Run *run, int status);

// Compares the configuration, and later the data, with those of rank 0. -1 after fail() (2) on all when they differ.
int ranks_compare_config(Run *run);
int ranks_compare_data(Run *run);

int ranks_share_state(Run *run);   // rank 0's RunState
int ranks_share_weights(Run *run); // parameters and optimizer state from rank 0's ranks_whole
// The endpoint of the loader that the first rank of this machine has started. -1 (2) when another one has another data
// source.
int ranks_share_loader(Run *run);

// The network that checkpoints are read into and written from: of rank 0 where the ranks divide the state, and then it
// is the copy of the checkpoint writer, else this process's own.
Network *ranks_whole(Run *run);
int ranks_load_parameters(Run *run, const char *path); // of a checkpoint, into this process alone
// Where the ranks divide the state: copies it to rank 0's ranks_whole, when rank 0 finds it needed. All ranks call it.
int ranks_gather_state(Run *run, bool *needed);

// After a rank was lost: whether this process, which is not rank 0, now owns the directory, because rank 0 has ended.
bool ranks_take_over(Run *run);

// Waits for all ranks, after rank 0 has printed the pending error: mpirun kills what is left as soon as one has failed.
void ranks_close(Run *run);

void ranks_print_batch(void *run, const FeedBatch *batch); // for --print_ranks

static inline bool ranks_first(const Run *run) { return run->collective.rank == 0; }
