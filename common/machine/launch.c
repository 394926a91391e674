// Reads the variables that launchers set for each process.
#include "common/machine/launch.h"
#include "common/err.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *rank, *world, *local_world, *launcher;
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "mpiexec"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "", "srun"},
    {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", LAUNCH_TORCHRUN},
};

// Launchers of which this process can tell its rank, but not that MPI would know it, too: a rank here, no pair above.
static const struct {
    const char *rank, *advice;
} unknown[] = {
    {"PMIX_RANK", "'mpirun -n N ...' of Open MPI, which sets OMPI_COMM_WORLD_RANK, or 'srun --mpi=pmix'"},
    {"FLUX_TASK_RANK", "'mpirun -n N ...' in a 'flux alloc'"},
    {"PALS_RANKID", "'mpirun -n N ...' of Open MPI"},
    {"MV2_COMM_WORLD_RANK", "'mpiexec -n N ...' of MPICH, which sets PMI_RANK, or mpirun of Open MPI"},
};

int launch_number(const char *variable, unsigned *number) {
    const char *text = getenv(variable);
    char *end;
    if (!text) return 0;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value > UINT_MAX)
        return fail(EX_USAGE, "the environment has %s='%s', which is not a number", variable, text);
    *number = (unsigned)value;
    return 1;
}

void launch_forget(void) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        unsetenv(launchers[i].rank), unsetenv(launchers[i].world);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) unsetenv(unknown[i].rank);
}

int launch_find(Launch *launch) {
    *launch = (Launch){.world = 1};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        unsigned rank = 0, world = 0, local_world = 0;
        int has_rank = launch_number(launchers[i].rank, &rank), has_world = launch_number(launchers[i].world, &world);
        if (has_rank < 0 || has_world < 0) return -1;
        if (!has_rank || !has_world) continue;
        if (!strcmp(launchers[i].launcher, LAUNCH_TORCHRUN) && !getenv("MASTER_ADDR"))
            continue; // names that others use, too
        if (rank >= world)
            return fail(EX_USAGE, "the environment has %s=%u and %s=%u", launchers[i].rank, rank, launchers[i].world,
                        world);
        if (launch_number(launchers[i].local_world, &local_world) < 0) return -1;
        *launch = (Launch){rank, world, local_world, launchers[i].launcher};
        return 0;
    }
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (getenv(unknown[i].rank))
            return fail(EX_USAGE,
                        "%s is set, but not the number of processes: type %s (a process of its own: unset %s)",
                        unknown[i].rank, unknown[i].advice, unknown[i].rank);
    return 0;
}
