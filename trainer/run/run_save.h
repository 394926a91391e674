// Checkpoints of a run: saving, and going back to the last one.
#pragma once

#include "trainer/run/run.h"

// Writes a checkpoint. A failure is a warning, unless the save is the `last` one, which waits a minute for space. Other saves are written beside
// training; run_check_save records their end.
int run_save(Run *run, bool last);
void run_check_save(Run *run);

// Goes back to the last checkpoint, after three steps in a row that were not finite. -1 (81) the second time.
int run_roll_back(Run *run);
