// A branch: a run that goes on from a checkpoint of another one.
#pragma once

#include "trainer/config/config.h"

// Copies a checkpoint of another run and its record up to that step into out_dir, unless out_dir has a checkpoint: the
// run is then resumed there, as any other. `from`: RUN for its newest whole checkpoint, or RUN/ckpt-STEP. Files are
// hard links where the file system has them; no checkpoint is ever written in place. Several processes may call it at
// once, also from several machines. -1 after fail(): 2 if out_dir has a run that is not this branch, 65, 66, 73, 74.
int branch_open(const Config *config, const char *from);

// After a failure of the command: removes what branch_open has copied, and out_dir if it made that, unless a process of
// the run has recorded its beginning or runs. The pending error stays.
void branch_withdraw(const Config *config);
