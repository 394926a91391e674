// Checkpoints of a run: saving, and going back to the last one.
#pragma once

#include "trainer/run/run.h"

// Writes a checkpoint. A failure is a warning, unless the save is the `last` one, which waits a minute for space. Other
// saves are written beside training, and none between steps that are not finite, into which a roll-back would return;
// run_check_save records their end.
int run_save(Run *run, bool last);
void run_check_save(Run *run);

// Seconds between two saves by which the least time is lost to saves and kills: sqrt(2 S M), when a save takes S
// seconds of training and the process is killed every M seconds (J. W. Young, "A first order approximation to the
// optimum checkpoint interval", 1974). M is the run's so far, and one kill in an hour before it. A save beside
// training takes the wait for its copy, and the processor time of the thread that writes it.
double save_interval_s(double save_s, double run_s, unsigned kills);

// Seconds of a save for which training waits, with a busy process beside it, from those of a thread that wrote one
// beside training. That thread gets a tenth of a processor where training uses all; its waits for one are left out, and
// so is the copy that it wrote.
double save_last_s(double beside_s, ProcessorTime thread);

// Whether checkpoint_interval has a checkpoint at this step; the same in all processes. -1 after fail().
int run_save_due(Run *run);

// Goes back to the last checkpoint, after three steps in a row that were not finite. -1 (81) the second time.
int run_roll_back(Run *run);
