// Chooses the row for the launcher that started this process. The MPI row is a shared object beside the programs, which
// is loaded only here: so the programs start where MPI is not installed.
#include "kernels/collective.h"
#include "common/err.h"
#include "common/file.h"
#include "common/launch.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const CollectiveRow none = {.name = "none"};
Collective collective_none = {.row = &none, .world = 1};

// "../lib/millrace/mpi.so" beside the folder of this program.
static const CollectiveRow *load_mpi(const Launch *launch) {
    char path[PATH_MAX_BYTES];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    if (length < 0) return fail_errno("cannot read /proc/self/exe"), NULL;
    path[length] = 0;
    snprintf(strrchr(path, '/'), 64, "/../lib/millrace/mpi.so");
    if (access(path, F_OK) < 0) {
        fail(EX_USAGE, "%s started %u processes, and '%s' is missing, which is built where libopenmpi-dev is installed",
             launch->launcher, launch->world, path);
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL); // global: Open MPI loads modules that need its symbols
    const CollectiveRow *row = library ? dlsym(library, "collective_mpi") : NULL;
    if (!row) fail(EX_USAGE, "cannot load MPI: %s", dlerror());
    return row;
}

int collective_open(Collective *collective, const CollectiveSettings *settings) {
    Launch launch;
    char why[COLLECTIVE_WHY] = "";
    *collective = collective_none;
    if (launch_find(&launch) < 0) return -1;
    if (launch.world == 1) return 0;
    if (!launch.has_mpi)
        return fail(EX_USAGE,
                    "%s started %u processes, which have no MPI to exchange gradients: start them by mpirun, "
                    "or by srun --mpi=pmix",
                    launch.launcher, launch.world);
    const CollectiveRow *row = load_mpi(&launch);
    if (!row) return -1;
    RankPlace place;
    if (row->open(settings, &place, why) < 0) return fail(EX_USAGE, "MPI: %s", why);
    if (place.world > COLLECTIVE_RANKS)
        return fail(EX_USAGE, "%u processes are more than %d", place.world, COLLECTIVE_RANKS);
    if (place.world != launch.world)
        return fail(
            EX_USAGE,
            "%s started %u processes, and MPI knows of %u: start them by the mpirun of the MPI that millrace was "
            "built with, or by srun --mpi=pmix",
            launch.launcher, launch.world, place.world);
    *collective = (Collective){row, place.rank, place.world, place.local_first, false};
    return 0;
}

void collective_close(Collective *collective, bool by_signal) {
    if (!collective->row || collective->world == 1) return;
    Error cause;
    err_take(&cause);
    if (collective_barrier(collective) == 0 && !by_signal) collective->row->close();
    err_clear();
    err_give(&cause);
    *collective = collective_none;
}

// Ends a call: the first failure makes the others fail at once.
static int finish(Collective *collective, int status, const char *why) {
    if (status == 0) return 0;
    collective->lost = true;
    return err_code() ? -1 : fail(EX_AGAIN, "stopped: %s", why);
}

#define CALL(function, ...)                                                                                            \
    char why[COLLECTIVE_WHY] = "";                                                                                     \
    if (collective->world == 1) return 0;                                                                              \
    if (collective->lost) return fail(EX_AGAIN, "stopped: a process of this run was lost");                            \
    return finish(collective, collective->row->function(__VA_ARGS__), why)

int collective_begin_reduce_scatter(Collective *collective, float *values, size_t count, size_t share) {
    CALL(reduce_scatter, values, count, share, why);
}

int collective_begin_all_gather(Collective *collective, void *values, size_t bytes, size_t share) {
    CALL(all_gather, values, bytes, share, why);
}

int collective_finish(Collective *collective) { return collective->lost ? -1 : 0; }

int collective_all_gather(Collective *collective, void *values, size_t bytes, size_t share) {
    CALL(all_gather, values, bytes, share, why);
}

int collective_all_reduce(Collective *collective, double *values, int count) {
    double all[COLLECTIVE_DOUBLES * COLLECTIVE_RANKS];
    const size_t share = (size_t)count * sizeof *values;
    if (collective->world == 1) return 0;
    double *mine = all + collective->rank * (size_t)count;
    memcpy(mine, values, share);
    if (collective_all_gather(collective, all, collective->world * share, share) < 0) return -1;
    for (int i = 0; i < count; i++) {
        values[i] = 0;
        for (unsigned rank = 0; rank < collective->world; rank++) values[i] += all[rank * (size_t)count + (size_t)i];
    }
    return 0;
}

int collective_broadcast(Collective *collective, void *values, size_t bytes) { CALL(broadcast, values, bytes, why); }
int collective_barrier(Collective *collective) { CALL(barrier, why); }

uint64_t collective_sent(const Collective *collective) { return collective->world == 1 ? 0 : collective->row->sent(); }
