// The processes that train one model together (ranks), and what they exchange: sums and copies of buffers. A row
// implements it: `none` for one process, `mpi` for those that mpirun, mpiexec or srun started.
//
// Every rank makes the same calls with the same sizes in the same order. A call returns -1 after fail() (75) when a
// rank has ended or does not answer for timeout_ms; then `lost` is set, and every later call fails at once. Sums are
// added in the order of the ranks, so their bits depend on the number of ranks alone.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t timeout_ms;
    int (*while_waiting)(void *self); // called about every 50 ms of a wait; -1 after fail() ends it; may be NULL
    void *self;
} CollectiveSettings;

typedef struct {
    unsigned rank, world;
    unsigned local_first; // the lowest rank on this machine
} RankPlace;

// A row. Its functions return -1 with a sentence in `why`, "" when while_waiting has failed.
enum { COLLECTIVE_WHY = 256, COLLECTIVE_RANKS = 1024, COLLECTIVE_DOUBLES = 8 };
typedef struct {
    const char *name;
    int (*open)(const CollectiveSettings *settings, RankPlace *place, char why[COLLECTIVE_WHY]);
    int (*reduce_scatter)(float *values, size_t count, size_t share, char why[COLLECTIVE_WHY]);
    int (*all_gather)(void *values, size_t bytes, size_t share, char why[COLLECTIVE_WHY]);
    int (*broadcast)(void *values, size_t bytes, char why[COLLECTIVE_WHY]);
    int (*barrier)(char why[COLLECTIVE_WHY]);
    uint64_t (*sent)(void); // bytes that this process has sent so far
    void (*close)(void);
} CollectiveRow;

typedef struct {
    const CollectiveRow *row;
    unsigned rank, world, local_first; // RankPlace
    bool lost;
} Collective;

extern Collective collective_none; // rank 0 of 1: every call does nothing and returns 0

// The launcher's processes, or collective_none. -1 after fail(): 2 when the launcher and the MPI library do not fit.
int collective_open(Collective *collective, const CollectiveSettings *settings);
// Waits for all ranks, unless one was lost. `by_signal`: leaves MPI without its farewell, to which an mpirun that has
// received the signal itself no longer answers. Accepts a zeroed struct.
void collective_close(Collective *collective, bool by_signal);

// Of memory of the backend, in shares: rank r has elements [r * share, (r + 1) * share), cut at the end. These begin
// when the operations so far are done, and the operations after collective_finish run when they are done; nothing may
// touch the buffers in between. Host memory is exchanged at once.
// Each rank gets the sum of its own share; the other elements are undefined.
int collective_begin_reduce_scatter(Collective *collective, float *values, size_t count, size_t share);
// Each rank gets every share; sizes in bytes.
int collective_begin_all_gather(Collective *collective, void *values, size_t bytes, size_t share);
int collective_finish(Collective *collective);

// Of host memory. These wait until they are done.
int collective_all_gather(Collective *collective, void *values, size_t bytes, size_t share);
int collective_all_reduce(Collective *collective, double *values, int count); // sums; count <= COLLECTIVE_DOUBLES
int collective_broadcast(Collective *collective, void *values, size_t bytes); // of rank 0
int collective_barrier(Collective *collective);

uint64_t collective_sent(const Collective *collective); // bytes so far; one process sends none
