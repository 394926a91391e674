// Loans of processors: whether a thread runs is read from its clock of processor time, and its affinity moves it.
#include "kernels/cpu/places.h"
#include "common/machine/cgroup.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    THREADS_MAX = 2, // the machine with two processors is the largest on which loans were measured
    BOUND_NS =
        1000000000 // that threads keep to their places after a loan: a first loan costs a time slice, 0.4 % of it
};

typedef enum { PLACES_OFF, PLACES_FREE, PLACES_BOUND } PlacesState;

typedef struct {
    _Alignas(128) pthread_t id;
    int place;        // its processor while threads are bound
    int bound_to;     // this processor, or -1: it is free
    atomic_bool away; // bound to the caller's place, which was lent to it
    atomic_bool works;
} PlacedThread;

static struct {
    PlacedThread thread[THREADS_MAX];
    cpu_set_t given;      // the processors of every free thread
    cpu_set_t requested;  // what a thread that is freed requests
    uint64_t bound_until; // in ns
    atomic_flag held;     // by the thread that uses what is above
    atomic_int threads;
    _Atomic PlacesState state;
} places = {.held = ATOMIC_FLAG_INIT};

static cpu_set_t only(int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)processor, &set);
    return set;
}

static uint64_t nanoseconds(clockid_t clock) {
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t ran_ns(int thread) {
    clockid_t clock;
    return pthread_getcpuclockid(places.thread[thread].id, &clock) ? 0 : nanoseconds(clock);
}

// Tries in a thread of its own what loans need, and what a free thread may request. Returns why not, or NULL.
static void *try_binding(void *unused) {
    cpu_set_t all, now, one = only(sched_getcpu());
    memset(&all, 0xff, sizeof all);
    if (sched_setaffinity(0, sizeof one, &one) < 0 || sched_setaffinity(0, sizeof all, &all) < 0 ||
        sched_getaffinity(0, sizeof now, &now) < 0)
        return "this program may not bind threads";
    places.requested = CPU_EQUAL(&now, &places.given) ? all : places.given;
    const uint64_t begun = nanoseconds(CLOCK_MONOTONIC), ran = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    while (nanoseconds(CLOCK_MONOTONIC) - begun < PLACES_LOOK_NS) {
    }
    return nanoseconds(CLOCK_THREAD_CPUTIME_ID) == ran ? "the clocks of threads are too coarse" : unused;
}

static const char *why_not(int threads) {
    const char *variable = getenv("MILLRACE_LOANS");
    pthread_t thread;
    void *why = "no thread can be started";
    if (variable && !strcmp(variable, "0")) return "MILLRACE_LOANS is 0";
    if (threads > THREADS_MAX) return "they were measured with 2 threads, not with more";
    if (sched_getaffinity(0, sizeof places.given, &places.given) < 0 || CPU_COUNT(&places.given) != threads)
        return "there is not one thread for each processor";
    if (cgroup_limits().cpus) return "a control group limits the time of processors";
    if (pthread_create(&thread, NULL, try_binding, NULL) == 0) pthread_join(thread, &why);
    return why;
}

static bool is_as_left(const PlacedThread *t) {
    const cpu_set_t left = t->bound_to < 0 ? places.given : only(t->bound_to);
    cpu_set_t now;
    return pthread_getaffinity_np(t->id, sizeof now, &now) == 0 && CPU_EQUAL(&now, &left);
}

// Whether a cpuset, not somebody, has moved a bound thread: its processor cannot be requested. Linux would bind it
// again when the cpuset has the processor again.
static bool is_displaced(const PlacedThread *t) {
    const cpu_set_t one = only(t->bound_to);
    cpu_set_t now;
    if (pthread_getaffinity_np(t->id, sizeof now, &now) != 0) return false;
    if (pthread_setaffinity_np(t->id, sizeof one, &one) == EINVAL) return true;
    pthread_setaffinity_np(t->id, sizeof now, &now);
    return false;
}

static bool set_free(PlacedThread *t) {
    if (t->bound_to < 0) return true;
    if (!is_as_left(t) && !is_displaced(t)) return false;
    if (pthread_setaffinity_np(t->id, sizeof places.requested, &places.requested) != 0) return false;
    t->bound_to = -1;
    return true;
}

// Frees the threads whose masks nobody else has set.
static bool end(void) {
    places.state = PLACES_OFF;
    for (int t = 0; t < places.threads; t++) set_free(&places.thread[t]);
    return false;
}

// False: the loans have ended.
static bool bind(PlacedThread *t, int processor) {
    const cpu_set_t one = only(processor);
    if (!is_as_left(t) || pthread_setaffinity_np(t->id, sizeof one, &one) != 0) return end();
    t->bound_to = processor;
    return true;
}

static bool put_caller(void) {
    PlacedThread *caller = &places.thread[0];
    return bind(caller, caller->place) && (set_free(caller) || end());
}

static bool hold(void) { return !atomic_flag_test_and_set_explicit(&places.held, memory_order_acquire); }
static void let_go(void) { atomic_flag_clear_explicit(&places.held, memory_order_release); }

const char *places_open(int threads) {
    while (!hold()) sched_yield();
    end();
    const char *why = why_not(threads);
    if (!why) {
        places.threads = threads;
        for (int t = 0; t < threads; t++) places.thread[t].bound_to = -1;
        places.state = PLACES_FREE;
    }
    let_go();
    return why;
}

bool places_lent(void) { return places.state != PLACES_OFF; }

void places_enter(int thread) {
    if (thread >= THREADS_MAX) return;
    while (!hold()) sched_yield();
    places.thread[thread].id = pthread_self();
    let_go();
}

// The caller's place is where it runs, until threads are bound. They are free again some time after the last loan.
static void begin(uint64_t now_ns) {
    PlacedThread *caller = &places.thread[0];
    caller->id = pthread_self();
    if (places.state == PLACES_FREE) {
        caller->place = sched_getcpu();
    } else if (now_ns > places.bound_until) {
        places.state = PLACES_FREE;
        for (int t = 1; t < places.threads; t++)
            if (!set_free(&places.thread[t])) end();
    } else if (sched_getcpu() != caller->place) {
        put_caller();
    }
}

void places_begin(uint64_t now_ns) {
    if (places.state == PLACES_OFF) return;
    if (hold()) {
        begin(now_ns);
        let_go();
    }
    places_work(0, true);
}

void places_work(int thread, bool has) {
    if (thread < THREADS_MAX) places.thread[thread].works = has;
}

// Whether the thread that was seen has work and has not run since. If not, sees the next one that has work.
static bool has_stopped(int thread, PlacesSeen *seen) {
    const int last = seen->thread, threads = places.threads;
    if (last >= 0 && places.thread[last].works && ran_ns(last) == seen->ran_ns) return true;
    for (int i = 1; i <= threads; i++) {
        const int t = (last + i) % threads;
        if (t == thread || !places.thread[t].works) continue;
        *seen = (PlacesSeen){t, ran_ns(t)};
        break;
    }
    return false;
}

// The caller stays where it is, and each worker gets one of the other processors.
static bool bind_workers(void) {
    for (int t = 1, processor = 0; t < places.threads; processor++)
        if (CPU_ISSET((size_t)processor, &places.given) && processor != places.thread[0].place) {
            places.thread[t].place = processor;
            if (!bind(&places.thread[t++], processor)) return false;
        }
    places.state = PLACES_BOUND;
    return true;
}

static bool lend(PlacedThread *from, PlacedThread *to, uint64_t now_ns) {
    PlacedThread *caller = &places.thread[0];
    if (!is_as_left(caller)) return end();
    if (places.state == PLACES_FREE && !bind_workers()) return false;
    places.bound_until = now_ns + BOUND_NS;
    const int processor = from->place;
    if (to != caller) {
        to->away = true;
        return bind(to, processor);
    }
    from->place = caller->place, caller->place = processor;
    return put_caller() && bind(from, from->place); // at last: it waits there for the other program
}

bool places_lend(int thread, PlacesSeen *seen, uint64_t now_ns) {
    if (places.state == PLACES_OFF || thread >= places.threads || !hold()) return false;
    const bool lends = has_stopped(thread, seen) && lend(&places.thread[thread], &places.thread[seen->thread], now_ns);
    let_go();
    if (lends) *seen = PLACES_UNSEEN;
    return lends;
}

void places_return(int thread) {
    if (thread >= THREADS_MAX) return;
    PlacedThread *own = &places.thread[thread];
    if (!own->away || !hold()) return;
    own->away = false;
    if (places.state == PLACES_BOUND) bind(own, own->place);
    let_go();
}
