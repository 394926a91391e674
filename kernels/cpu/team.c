// The team: pieces of a loop in one word for each thread, which takes from its own and then from the others'.
//
// A step of a small model has hundreds of loops of 100 us. At the end of each, libgomp waits for all of its threads,
// those included that have no processor. Here a thread waits awake no longer than it has worked, for AWAKE_NS at most,
// or for WAKE_NS if other programs want its processor. Meanwhile it lends its processor to a thread that has work and
// does not run (places.h). Then it sleeps. The caller wakes sleeping threads when it has worked on a loop for WAKE_NS,
// unless that has lately gained nothing. So a small model runs on one thread. docs/measurements.md has the times of a
// step alone and beside busy processes, and what other values of these constants changed.
#include "kernels/cpu/team.h"
#include "common/err.h"
#include "common/sizes.h"
#include "kernels/cpu/places.h"
#include <assert.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    PIECES = 8,              // of a loop at most, for each thread: a preempted thread delays an eighth of its share
    WAKE_NS = 20000,         // within which a sleeping thread runs after it is woken: medians of 3, 6 and 25 us
    AWAKE_NS = 10 * WAKE_NS, // that a thread waits awake, or the caller asleep between looks: waking adds a tenth
    WINDOW_NS = 100000000,   // in which a busy program takes the processor 12 times or more, by slices of 4 ms
    SHARED_TIMES = 6,        // half of these
    NEEDLESS_TIMES = 32 // for loops that need no second thread, waking costs a 32nd of their time; see team.unwoken
};

#define SLEEPS 0x80000000u // the caller, on team.unfinished

// generation << 32 | first << 16 | end: pieces that are not taken. Its thread takes the first, another the last.
typedef struct {
    _Alignas(128) _Atomic uint64_t pieces;
} Share;

static struct {
    TeamWork *work;
    const void *data;
    size_t count, unit, units;
    uint32_t generation; // of loops
    atomic_int threads;
    int started;
    unsigned pieces;
    const char *no_loans;
    Share share[TEAM_MAX];
    _Alignas(128) atomic_bool busy;
    _Alignas(128) _Atomic uint32_t loops; // that threads have been told of; they sleep on it
    _Alignas(128) atomic_int sleeping;    // on loops
    // Time of loops, in ns, for which no thread is woken: NEEDLESS_TIMES what earlier waking has lost.
    _Atomic uint64_t unwoken;
    _Alignas(128) _Atomic uint32_t unfinished; // pieces, and SLEEPS
} team = {.threads = 1, .started = 1};

static _Thread_local struct {
    int thread;
    bool in_piece;   // or between pieces
    bool shares;     // its processor with others, see shares_processor()
    long taken;      // times that the system had taken it when the window began
    uint64_t window; // its begin, in ns
} me;

int team_threads(void) { return team.threads; }
int team_thread(void) { return me.thread; }
const char *team_no_loans(void) { return team.no_loans; }

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value, const struct timespec *longest) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, longest, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int threads) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

// Whether others want the processor of this thread: they took it SHARED_TIMES or more in the last WINDOW_NS. The
// system's own threads take it too, for microseconds.
static bool shares_processor(uint64_t now) {
    if (now - me.window < WINDOW_NS) return me.shares;
    struct rusage use;
    getrusage(RUSAGE_THREAD, &use);
    me.shares = use.ru_nivcsw - me.taken >= SHARED_TIMES, me.taken = use.ru_nivcsw, me.window = now;
    return me.shares;
}

// Waits awake while the word has this value, for *ns at most, which it takes the time from. Returns whether it changed.
static bool wait_awake(_Atomic uint32_t *word, uint32_t value, uint64_t *ns) {
    const uint64_t begun = now_ns();
    uint64_t waited = 0, look = PLACES_LOOK_NS;
    PlacesSeen seen = PLACES_UNSEEN;
    while (waited < *ns && atomic_load_explicit(word, memory_order_relaxed) == value) {
        if (waited >= look) {
            if (places_lend(me.thread, &seen, begun + waited)) break;
            look = waited + PLACES_LOOK_NS;
        }
        if (waited >= WAKE_NS && shares_processor(begun + waited)) break;
#ifdef __x86_64__
        for (int i = 0; i < 16 && atomic_load_explicit(word, memory_order_relaxed) == value; i++)
            __builtin_ia32_pause();
#endif
        waited = now_ns() - begun;
    }
    *ns -= waited < *ns ? waited : *ns;
    return atomic_load(word) != value;
}

// Counts a waking as a loss if the thread, which goes to sleep, has worked for less time, in ns, than waking it took.
// Where other programs want its processor nothing counts: the thread may have started too late.
static void count_waking(uint64_t worked) {
    if (worked < WAKE_NS && !shares_processor(now_ns()))
        atomic_fetch_add(&team.unwoken, (WAKE_NS - worked) * NEEDLESS_TIMES / (uint64_t)team.threads);
}

// A piece of the share of `owner` in a loop of this generation, or -1.
static int take_from(int owner, uint32_t generation) {
    uint64_t pieces = atomic_load_explicit(&team.share[owner].pieces, memory_order_relaxed);
    for (;;) {
        const unsigned first = pieces >> 16 & 0xffff, end = pieces & 0xffff;
        if (pieces >> 32 != generation || first == end) return -1;
        const bool mine = owner == me.thread;
        if (atomic_compare_exchange_weak_explicit(&team.share[owner].pieces, &pieces,
                                                  mine ? pieces + (1 << 16) : pieces - 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return (int)(mine ? first : end - 1);
    }
}

// A piece, or -1. Until the thread counts it as finished, the loop and what team.* says of it stay.
static int take(void) {
    const uint64_t mine = atomic_load_explicit(&team.share[me.thread].pieces, memory_order_acquire);
    const uint32_t generation = (uint32_t)(mine >> 32);
    int piece = take_from(me.thread, generation);
    for (int other = 0; piece < 0 && other < TEAM_MAX; other++) {
        const uint64_t its = atomic_load_explicit(&team.share[other].pieces, memory_order_relaxed);
        if (its >> 32 != generation) break; // the loop has no more threads, or is over
        if (other != me.thread) piece = take_from(other, generation);
    }
    return piece;
}

static void run(int piece) {
    const size_t first = (size_t)piece * team.units / team.pieces * team.unit;
    const size_t end = ((size_t)piece + 1) * team.units / team.pieces * team.unit;
    team.work(first, size_smaller(end, team.count), team.data);
}

// Counts the pieces that this thread has run, once a loop: the cores pass the word around.
static void finish(unsigned pieces) {
    if (atomic_fetch_sub_explicit(&team.unfinished, pieces, memory_order_acq_rel) == (SLEEPS | pieces))
        futex_wake(&team.unfinished, 1);
}

static void *serve(void *number) {
    me.thread = (int)(intptr_t)number, me.in_piece = true;
    places_enter(me.thread);
    uint64_t awake = 0, worked = 0; // that it may wait; since it was woken
    for (;;) {
        const uint32_t loops = atomic_load_explicit(&team.loops, memory_order_acquire);
        places_return(me.thread); // from a loan that came late
        int piece = take();
        if (piece >= 0) {
            const uint64_t begun = now_ns();
            unsigned done = 0;
            places_work(me.thread, true);
            for (; piece >= 0; piece = take(), done++) run(piece);
            places_work(me.thread, false);
            finish(done);
            const uint64_t work = now_ns() - begun;
            awake = size_smaller(awake + work, AWAKE_NS);
            worked += work;
        }
        places_return(me.thread);
        if (wait_awake(&team.loops, loops, &awake)) continue;
        count_waking(worked);
        worked = 0;
        atomic_fetch_add(&team.sleeping, 1);
        futex_wait(&team.loops, loops, NULL);
        atomic_fetch_sub(&team.sleeping, 1);
    }
    return NULL;
}

static int start(void) {
    sigset_t all, before;
    int error = 0;
    sigfillset(&all); // signals are for the threads that wait for them
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; team.started < team.threads && !error; team.started += !error) {
        pthread_t thread;
        error = pthread_create(&thread, NULL, serve, (void *)(intptr_t)team.started);
        if (!error) pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) return 0;
    return fail(EX_LIMIT, "cannot start thread %d of %d: %s (see ulimit -u)", team.started + 1, (int)team.threads,
                strerror(error));
}

static void wait_for_others(void) {
    PlacesSeen seen = PLACES_UNSEEN;
    for (uint32_t left; (left = atomic_load_explicit(&team.unfinished, memory_order_acquire)) & ~SLEEPS;) {
        uint64_t awake = AWAKE_NS;
        if (!(left & SLEEPS) && wait_awake(&team.unfinished, left, &awake)) continue;
        if (left & SLEEPS || atomic_compare_exchange_strong(&team.unfinished, &left, left | SLEEPS))
            futex_wait(&team.unfinished, left | SLEEPS, places_lent() ? &(struct timespec){.tv_nsec = AWAKE_NS} : NULL);
        places_lend(0, &seen, now_ns());
    }
}

// Tells the threads of a loop.
static void publish(size_t count, size_t unit, TeamWork *work, const void *data) {
    const size_t threads = (size_t)team.threads;
    team.work = work, team.data = data, team.count = count, team.unit = unit, team.units = (count - 1) / unit + 1;
    team.pieces = (unsigned)size_smaller(threads * PIECES, team.units), team.generation++;
    atomic_store_explicit(&team.unfinished, team.pieces, memory_order_relaxed);
    for (size_t t = 0; t < threads; t++)
        atomic_store_explicit(&team.share[t].pieces,
                              (uint64_t)team.generation << 32 | t * team.pieces / threads << 16 |
                                  (t + 1) * team.pieces / threads,
                              memory_order_release);
    atomic_fetch_add(&team.loops, 1);
}

void team_run(size_t count, size_t unit, TeamWork *work, const void *data) {
    if (!count) return;
    if (count <= unit || team.threads == 1 || me.in_piece || atomic_exchange(&team.busy, true)) {
        work(0, count, data);
        return;
    }
    me.in_piece = true;
    const uint64_t begun = now_ns(), unwoken = team.unwoken;
    places_begin(begun);
    publish(count, unit, work, data);
    uint64_t worked = 0;
    unsigned done = 0;
    for (int piece, woken = 0; (piece = take()) >= 0;) {
        run(piece);
        done++;
        if (woken || !atomic_load(&team.sleeping)) continue;
        worked = now_ns() - begun;
        woken = worked >= WAKE_NS + unwoken;
        if (woken) futex_wake(&team.loops, team.threads);
    }
    if (worked >= WAKE_NS) atomic_fetch_sub(&team.unwoken, size_smaller(worked, unwoken));
    places_work(0, false);
    finish(done);
    wait_for_others();
    me.in_piece = false;
    atomic_store_explicit(&team.busy, false, memory_order_release);
}

// Counts the pieces of a loop of two units.
static void count_piece(size_t first, size_t end, const void *pieces) {
    if (end == first + 1) atomic_fetch_add((atomic_int *)(uintptr_t)pieces, 1);
}

int team_set_threads(int threads) {
    assert(threads >= 1 && threads <= TEAM_MAX);
    team.threads = threads;
    team.no_loans = places_open(threads);
    if (start() < 0) return -1;
    atomic_int pieces = 0;
    team_run(2, 1, count_piece, &pieces);
    if (threads == 1 || pieces == 2) return 0;
    return fail(EX_BUG, "a loop for the %d threads did not run in pieces: this program is built wrongly", threads);
}
