// What clang compiles `#pragma omp parallel for` to: a call of __kmpc_fork_call with the loop as a function of the
// variables that it shares, which asks for its iterations by __kmpc_for_static_init_*.
// https://openmp.llvm.org/design/Runtimes.html has these functions; here the "thread" of a call is a piece of the team.
#include "kernels/cpu/team.h"
#include <assert.h>
#include <stdarg.h>
#include <stddef.h>

enum {
    SHARED_MAX = 20,
    STATIC_CHUNKS = 33, // schedule(static, CHUNK): chunk, chunk + pieces, ...
    STATIC = 34         // schedule(static): a range for each piece
};

typedef void (*Loop)(int *thread, int *bound, ...);
typedef struct {
    Loop loop;
    void *shared[SHARED_MAX];
} Call;

// A function takes as many of the pointers as it has parameters, and leaves the others where its caller put them.
static void run_call(void *data) {
    const Call *call = data;
    void *const *a = call->shared;
    int thread = team_piece(), bound = 0;
    call->loop(&thread, &bound, a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13],
               a[14], a[15], a[16], a[17], a[18], a[19]);
}

void team_kmpc_fork_call(void *place, int count, void *loop, ...) {
    Call call = {.loop = (Loop)loop};
    va_list list;
    (void)place;
    assert(count <= SHARED_MAX);
    va_start(list, loop);
    for (int i = 0; i < count; i++) call.shared[i] = va_arg(list, void *);
    va_end(list);
    team_parallel(run_call, &call, 0, 0);
}

int team_kmpc_thread(void *place) { return (void)place, team_piece(); }

// A region whose `if` is false: the caller then calls the loop itself.
void team_kmpc_begin_alone(void *place, int thread) { (void)place, (void)thread, team_begin_alone(); }
void team_kmpc_end_alone(void *place, int thread) { (void)place, (void)thread, team_end_alone(); }

// The iterations of this piece, of *lower to *upper: loops begin at 0 and go up by 1.
#define STATIC_INIT(name, Int)                                                                                         \
    void name(void *place, int thread, int schedule, int *last, Int *lower, Int *upper, Int *stride, Int step,         \
              Int chunk) {                                                                                             \
        const Int pieces = (Int)team_pieces(), piece = (Int)team_piece(), count = *upper - *lower + 1;                 \
        (void)place, (void)thread;                                                                                     \
        assert(step == 1 && (schedule == STATIC || schedule == STATIC_CHUNKS));                                        \
        const Int each = schedule == STATIC ? count / pieces : chunk;                                                  \
        const Int more = schedule == STATIC ? count % pieces : 0;                                                      \
        *lower += piece * each + (piece < more ? piece : more);                                                        \
        *upper = *lower + each - 1 + (piece < more);                                                                   \
        *stride = schedule == STATIC ? count : each * pieces;                                                          \
        *last = piece == pieces - 1;                                                                                   \
    }
STATIC_INIT(team_kmpc_static_4, int)
STATIC_INIT(team_kmpc_static_4u, unsigned)
STATIC_INIT(team_kmpc_static_8, long)
STATIC_INIT(team_kmpc_static_8u, unsigned long)
void team_kmpc_static_end(void *place, int thread) { (void)place, (void)thread; }
