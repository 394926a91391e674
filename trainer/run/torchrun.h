// Processes of PyTorch's torchrun. They have no MPI: on one machine the first of them starts mpirun, which starts as
// many ranks of the same command, and the others end at once, for which torchrun does not mind.
#pragma once

#include <stdbool.h>

// For a process that torchrun started together with others; else false, and nothing was done. After true: *status is
// the exit code, mpirun's own in the first process, or -1 after fail(): 2 when there are several machines, or no
// mpirun. A SIGINT, SIGTERM or SIGHUP of the first process reaches the ranks as SIGUSR1, so that they save and mpirun
// exits with 75.
bool torchrun_hand_over(char **argv, int *status);
