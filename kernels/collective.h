// The processes that train one model together (ranks), and their exchanges: sums and copies of buffers. A row
// implements them: `none` for one process, `mpi` for those that mpirun, mpiexec or srun started (the table in
// collective.c). `mpi` exchanges host memory; the row `nccl`, which the CUDA backend names, exchanges memory of GPUs.
//
// Every rank makes the same calls with the same sizes in the same order. A call returns -1 after fail() (75) when a
// rank has ended or does not answer for timeout_ms; then `lost` is set, and every later call fails at once. A
// reduction of memory of GPUs in float32 adds in an order of NCCL's own: it may differ between versions of NCCL and
// between machines. All other sums have a fixed order.
#pragma once

#include "kernels/backend.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t timeout_ms;
    int (*while_waiting)(void *self); // called about every 50 ms of a wait; -1 after fail() ends it; may be NULL
    void *self;
    atomic_int *stop; // counts requests to stop: one of any rank reaches every rank that waits, within about 50 ms
} CollectiveSettings;

typedef struct {
    unsigned rank, world;
    unsigned local_first; // the lowest rank on this machine
    unsigned local;       // the number of lower ranks on this machine
    unsigned local_world; // the number of ranks on this machine
} RankPlace;

// A sum in a fixed order: `before` (NULL: nothing), then the operands of ranks 0 to ranks - 1, one after another. The
// other ranks have no operand.
typedef struct {
    unsigned ranks;
    const float *before;
    float *after; // receives it; may be `before`, or the place of this rank's operand
    bool bf16;    // each operand is rounded to bf16, this rank's as well, and is sent so
} OrderedSum;

// A row. Its functions return -1 with a sentence in `why`, "" when while_waiting has failed.
enum { COLLECTIVE_WHY = 256, COLLECTIVE_RANKS = 1024, COLLECTIVE_DOUBLES = 8 };
typedef struct {
    const char *name;
    int (*open)(const CollectiveSettings *settings, RankPlace *place, char why[COLLECTIVE_WHY]);
    int (*ordered_sum)(float *values, size_t count, size_t share, const OrderedSum *sum, char why[COLLECTIVE_WHY]);
    int (*all_gather)(void *values, size_t bytes, size_t share, char why[COLLECTIVE_WHY]);
    int (*broadcast)(void *values, size_t bytes, char why[COLLECTIVE_WHY]);
    int (*barrier)(char why[COLLECTIVE_WHY]);
    int (*check)(uint64_t waited_ms, char why[COLLECTIVE_WHY]); // that no rank has ended, and the wait is not too long
    uint64_t (*sent)(void);                                     // bytes that this process has sent so far
    void (*close)(void);
} CollectiveRow;

// A row for memory of GPUs. Its functions return -1 after fail(), and so do open and wait when collective_check does.
// An exchange begins when the backend's operations so far are done. No call but open and wait waits for the device.
typedef struct Collective Collective;
enum { COLLECTIVE_CARD = 16, COLLECTIVE_ID = 128, COLLECTIVE_MARKS = LAYERS_MAX + 2 }; // marks: of buckets
typedef struct DeviceCollectiveRow {
    const char *name;
    int (*load)(uint8_t card[COLLECTIVE_CARD]); // finds the library, and names this process's GPU
    int (*make_id)(uint8_t id[COLLECTIVE_ID]);  // of rank 0, for the open of every rank
    int (*open)(const Collective *collective, const uint8_t id[COLLECTIVE_ID]);
    int (*reduce_scatter)(const Collective *collective, float *values, size_t count, size_t share);
    int (*ordered_sum)(const Collective *collective, float *values, size_t count, size_t share, const OrderedSum *sum);
    int (*all_gather)(const Collective *collective, void *values, size_t bytes, size_t share);
    void (*finish)(void);
    void (*mark)(int place);  // place < COLLECTIVE_MARKS
    void (*await)(int place); // -1: all that were deferred
    void (*defer)(void);
    int (*wait)(const Collective *collective);
    uint64_t (*sent)(void);
    void (*close)(void); // also ends the exchanges of a lost rank; after it, the operations after `finish` run
} DeviceCollectiveRow;

struct Collective {
    const CollectiveRow *row;
    const DeviceCollectiveRow *device;                     // NULL: memory of the backend is host memory
    unsigned rank, world, local_first, local, local_world; // RankPlace
    bool lost;
    bool deferred; // exchanges were, and not all operations from here on run after them
};

extern Collective collective_none; // rank 0 of 1: every call does nothing and returns 0

// The launcher's processes, or collective_none. -1 after fail(): 2 when the launcher and the MPI library do not fit.
int collective_open(Collective *collective, const CollectiveSettings *settings);
// For people: the version of the library that joins processes, and where it is, or which package is missing.
void collective_library(char *text, size_t size);
// Waits for all ranks, unless one was lost. `by_signal`: leaves MPI without its farewell, to which an mpirun that has
// received the signal itself no longer answers. Accepts a zeroed struct.
void collective_close(Collective *collective, bool by_signal);

// Both require an open backend. collective_load loads the library that exchanges its memory; each process calls it by
// itself. collective_open_device joins the GPUs of all ranks, all of which have loaded. -1 after fail(): 2 when ranks
// have different kinds of devices or one GPU, 80 when NCCL is missing, too old or does not work.
int collective_load(Collective *collective, const DeviceCollectiveRow *row); // Backend.collective
int collective_open_device(Collective *collective);

// Exchanges of memory of the backend, in shares: rank r has elements [r * share, (r + 1) * share), cut at the end.
// These begin when the operations so far are done, and the operations after collective_finish run when they are done;
// nothing may touch the buffers in between. Host memory is exchanged at once. Before the host waits for operations
// after collective_finish, it calls collective_wait, which notices a lost rank; else the wait would not end.
// Each rank gets the sum of its own share; the other elements are undefined unless they are
// zero on all ranks. Operands are added in the order of the ranks; operands in memory of GPUs in an order of NCCL's,
// unless they are sent in bf16 (OrderedSum).
int collective_begin_reduce_scatter(Collective *collective, float *values, size_t count, size_t share, bool bf16);
// Each rank gets sum->after of its own share, added in the order that `sum` describes; the other elements stay as they
// are.
int collective_begin_ordered_sum(Collective *collective, float *values, size_t count, size_t share,
                                 const OrderedSum *sum);
// Each rank gets every share; sizes in bytes.
int collective_begin_all_gather(Collective *collective, void *values, size_t bytes, size_t share);
int collective_finish(Collective *collective);
int collective_wait(Collective *collective);

// In place of collective_finish: exchanges that only some operations need. Those after collective_await of a place run
// when the exchanges before collective_mark of that place are done, and the others at once; collective_wait waits for
// the operations before deferred exchanges alone. After collective_await_all they are finished, and collective_settle
// also waits. These do nothing if no exchange is deferred.
void collective_mark(Collective *collective, int place); // place < COLLECTIVE_MARKS
void collective_defer(Collective *collective);
void collective_await(Collective *collective, int place);
void collective_await_all(Collective *collective);
int collective_settle(Collective *collective);

// Exchanges of host memory. These wait until they are done.
int collective_all_gather(Collective *collective, void *values, size_t bytes, size_t share);
int collective_all_reduce(Collective *collective, double *values, int count); // sums; count <= COLLECTIVE_DOUBLES
int collective_broadcast(Collective *collective, void *values, size_t bytes); // of rank 0
int collective_barrier(Collective *collective);

// For a rank that waits for something else than an exchange: -1 after fail() (75) when a rank of this machine has
// ended.
int collective_check_ended(Collective *collective);

uint64_t collective_sent(const Collective *collective); // bytes so far; one process sends none

// For a row during a wait, about every 50 ms: -1 after fail() when it is to end.
int collective_check(const Collective *collective, uint64_t waited_ms);
