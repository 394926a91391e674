// Reads the variables that launchers set for each process.
#include "common/machine/launch.h"
#include "common/err.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *rank, *world, *launcher;
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun"},
    {"PMI_RANK", "PMI_SIZE", "mpiexec"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"},
    {"RANK", "WORLD_SIZE", LAUNCH_TORCHRUN},
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
}

int launch_find(Launch *launch) {
    *launch = (Launch){.world = 1};
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        unsigned rank = 0, world = 0;
        int has_rank = launch_number(launchers[i].rank, &rank), has_world = launch_number(launchers[i].world, &world);
        if (has_rank < 0 || has_world < 0) return -1;
        if (!has_rank || !has_world) continue;
        if (!strcmp(launchers[i].launcher, LAUNCH_TORCHRUN) && !getenv("MASTER_ADDR"))
            continue; // names that others use, too
        if (rank >= world)
            return fail(EX_USAGE, "the environment has %s=%u and %s=%u", launchers[i].rank, rank, launchers[i].world,
                        world);
        *launch = (Launch){rank, world, launchers[i].launcher};
        return 0;
    }
    return 0;
}
