// Loans of processors: whether a thread runs is read from its clock of processor time, and its affinity moves it.
#include "kernels/cpu/places.h"
#include "kernels/cpu/team.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { SETTLED_NS = 1000000000 }; // that threads keep to their places after a loan

typedef struct {
    _Alignas(128) _Atomic pthread_t thread;
    atomic_int processor; // its place
    atomic_bool entered, works, away;
} ThreadPlace;

static struct {
    ThreadPlace of[TEAM_MAX];
    cpu_set_t allowed;
    atomic_int threads;     // 0: there is not one for each processor
    _Atomic uint64_t until; // when threads keep to their places, in ns; 0: they are free
    atomic_flag looked;     // at by a thread
} places = {.looked = ATOMIC_FLAG_INIT};

static uint64_t ran_ns(int thread) {
    clockid_t clock;
    struct timespec t = {0};
    if (!pthread_getcpuclockid(places.of[thread].thread, &clock)) clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void bind(int thread, const cpu_set_t *processors) {
    if (places.of[thread].entered &&
        pthread_setaffinity_np(places.of[thread].thread, sizeof *processors, processors) != 0)
        places.threads = 0; // it is not permitted
}

// False where somebody has given the run other processors since (taskset -p, a control group). It is read from the
// caller, which is never bound for long.
static bool as_allowed(void) {
    cpu_set_t now;
    return pthread_getaffinity_np(places.of[0].thread, sizeof now, &now) == 0 && CPU_EQUAL(&now, &places.allowed);
}

// Moves a thread to a processor. The caller may be moved on from there, because threads that it starts have its bounds.
static void put(int thread, int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)processor, &one);
    bind(thread, &one);
    if (thread == 0 || !places.until) bind(thread, &places.allowed); // the caller has perhaps just set all free
}

void places_set_threads(int threads) {
    sched_getaffinity(0, sizeof places.allowed, &places.allowed);
    places.threads = threads > 1 && threads == CPU_COUNT(&places.allowed) ? threads : 0;
}

void places_enter(int thread) {
    places.of[thread].thread = pthread_self();
    places.of[thread].entered = true;
}

void places_begin(uint64_t now_ns) {
    if (!places.threads) return;
    places_enter(0);
    if (!places.until) {
        places.of[0].processor = sched_getcpu();
    } else if (now_ns > places.until && !atomic_flag_test_and_set(&places.looked)) {
        cpu_set_t now;
        places.until = 0;
        if (sched_getaffinity(0, sizeof now, &now) == 0)
            for (int t = 1; t < places.threads; t++) bind(t, &now);
        atomic_flag_clear(&places.looked);
    } else if (sched_getcpu() != places.of[0].processor && as_allowed()) {
        put(0, places.of[0].processor);
    }
    places_work(0, true); // at last: until then nobody lends, and the places are the caller's alone
}

void places_work(int thread, bool has) { places.of[thread].works = has; }

// Whether the thread that was seen has work and has not run since. If not, sees the next one that has work.
static bool stands(int thread, PlacesSeen *seen) {
    const int last = seen->thread, threads = places.threads;
    if (last >= 0 && places.of[last].works && ran_ns(last) == seen->ran_ns) return true;
    for (int i = 1; i <= threads; i++) {
        const int t = (last + i) % threads;
        if (t == thread || !places.of[t].works) continue;
        *seen = (PlacesSeen){t, ran_ns(t)};
        break;
    }
    return false;
}

// The caller stays where it is, and each other thread has one of the other processors.
static void settle(void) {
    for (int t = 1, processor = 0; t < places.threads; processor++)
        if (CPU_ISSET((size_t)processor, &places.allowed) && processor != places.of[0].processor) {
            places.of[t].processor = processor;
            put(t++, processor);
        }
}

bool places_lend(int thread, PlacesSeen *seen, uint64_t now_ns) {
    if (!places.threads || atomic_flag_test_and_set(&places.looked)) return false;
    ThreadPlace *const mine = &places.of[thread];
    const bool lends = stands(thread, seen) && as_allowed();
    if (lends) {
        const bool settled = places.until;
        places.until = now_ns + SETTLED_NS;
        if (!settled) settle();
        ThreadPlace *const its = &places.of[seen->thread];
        const int lent = mine->processor;
        if (seen->thread == 0) mine->processor = atomic_exchange(&its->processor, lent);
        its->away = seen->thread != 0;
        put(seen->thread, lent);
    }
    atomic_flag_clear(&places.looked);
    if (lends && seen->thread == 0) put(thread, mine->processor); // at last: it waits there for the other program
    if (lends) *seen = PLACES_UNSEEN;
    return lends;
}

void places_return(int thread) {
    if (!places.of[thread].away) return;
    places.of[thread].away = false;
    if (places.until) put(thread, places.of[thread].processor);
}
