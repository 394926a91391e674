// Loans of processors: what the system says of the processors that a thread may use, after each step of a loan.
#include "kernels/cpu/places.h"
#include "tests/test.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOKS = 100000, SETTLED = 2000000000 };

static sem_t go, reached;

// Looks until another thread has this one's processor.
static bool lend(int thread, int looks) {
    PlacesSeen seen = PLACES_UNSEEN;
    for (int look = 0; look < looks; look++) {
        if (places_lend(thread, &seen, 1)) return true;
        usleep(100);
    }
    return false;
}

static void *work(void *unused) {
    places_enter(1);
    places_work(1, true);
    sem_post(&reached), sem_wait(&go); // has work and does not run
    places_work(1, false);
    places_return(1);
    sem_post(&reached), sem_wait(&go);
    lend(1, LOOKS); // to the caller, who does not run
    places_work(1, true);
    sem_post(&reached), sem_wait(&go);
    return unused;
}

static cpu_set_t processors(pthread_t thread) {
    cpu_set_t set;
    CPU_ZERO(&set);
    pthread_getaffinity_np(thread, sizeof set, &set);
    return set;
}

// The number of the first step that is wrong, or 0.
static int run_loans(const cpu_set_t *all) {
    pthread_t worker;
    sem_init(&go, 0, 0), sem_init(&reached, 0, 0);
    places_set_threads(CPU_COUNT(all));
    places_begin(UINT64_MAX); // ends what threads of other tests did
    if (pthread_create(&worker, NULL, work, NULL)) return 1;
    sem_wait(&reached);
    places_begin(1);
    if (!lend(0, LOOKS)) return 2;
    const cpu_set_t lent = processors(worker);
    if (CPU_COUNT(&lent) != 1) return 3;
    sem_post(&go), sem_wait(&reached); // it has come back
    const cpu_set_t own = processors(worker);
    if (CPU_COUNT(&own) != 1 || CPU_EQUAL(&own, &lent)) return 4;
    sem_post(&go), sem_wait(&reached); // it has exchanged places with the caller
    const cpu_set_t exchanged = processors(worker), callers = processors(pthread_self());
    if (!CPU_EQUAL(&exchanged, &lent) || !CPU_EQUAL(&callers, all)) return 5;
    sched_setaffinity(0, sizeof own, &own); // as by taskset -p
    if (lend(0, 100)) return 6;
    sched_setaffinity(0, sizeof *all, all);
    places_begin(SETTLED);
    const cpu_set_t after = processors(worker);
    return CPU_EQUAL(&after, all) ? 0 : 7;
}

// In a process of its own with two processors, because it has no threads of the team.
TEST(places_of_threads_that_wait_are_lent_to_one_that_does_not_run) {
    cpu_set_t two;
    sched_getaffinity(0, sizeof two, &two);
    if (CPU_COUNT(&two) < 2) SKIP("one processor");
    for (size_t processor = 0; CPU_COUNT(&two) > 2; processor++) CPU_CLR(processor, &two);
    const pid_t child = fork();
    if (child == 0) _exit(sched_setaffinity(0, sizeof two, &two) == 0 ? run_loans(&two) : 8);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
}
