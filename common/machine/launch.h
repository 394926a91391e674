// The place of this process among the processes that a launcher (mpirun, srun) started together, from its environment.
#pragma once

typedef struct {
    unsigned rank, world; // rank < world
    unsigned local_world; // processes on this machine; 0: the launcher does not pass it
    const char *launcher; // for messages; NULL when no launcher started this process: then it is rank 0 of 1
} Launch;

#define LAUNCH_TORCHRUN "torchrun" // the launcher without MPI

// Open MPI's mpirun, MPICH's mpiexec (also srun with its plug-in), srun, and PyTorch's torchrun. A batch script of
// Slurm was not started by srun, though sbatch sets the number of tasks there too. -1 after fail() (2) when the
// variables contradict each other.
int launch_find(Launch *launch);

// Takes the variables of launchers out of the environment: this process then is rank 0 of 1. Not thread-safe.
void launch_forget(void);

// The number in an environment variable: 1 when it is there, 0 when it is not, -1 after fail() (2) when it is no
// number.
int launch_number(const char *variable, unsigned *number);
