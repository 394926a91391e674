// The team: every iteration of a region runs once, on a thread with a number of its own, with any number of threads.
#include "kernels/cpu/team.h"
#include "tests/test.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ITERATIONS = 5000, THREADS = 8 };

static int count[ITERATIONS];
static struct { _Alignas(64) int sum; } of_thread[THREADS]; // plain memory: two threads with the same number would race

// Adds 1 to the counts of the first n iterations.
static void run_region(int n) {
#pragma omp parallel for schedule(static)
    for (int i = 0; i < n; i++) count[i]++, of_thread[team_thread()].sum++;
}

static bool all_were_run(int n, int times) {
    for (int i = 0; i < n; i++)
        if (count[i] != times) return false;
    return true;
}

TEST(team_runs_every_iteration_once_with_any_number_of_threads) {
    for (int run = 0; run < 60; run++) {
        const int threads = 1 + run * 5 % THREADS, n = run % 3 ? ITERATIONS : run;
        memset(count, 0, sizeof count), memset(of_thread, 0, sizeof of_thread);
        team_set_threads(threads);
        CHECK_EQUAL(team_threads(), threads);
        for (int region = 0; region < 50; region++) run_region(n);
        CHECK(all_were_run(n, 50));
        int sum = 0;
        for (int t = 0; t < threads; t++) sum += of_thread[t].sum;
        CHECK_EQUAL(sum, 50 * n);
    }
    team_set_threads(1);
}

TEST(team_runs_regions_inside_a_region_on_their_thread) {
    enum { OUTER = 40, INNER = 30 };
    static int ran[OUTER][INNER], elsewhere[OUTER];
    team_set_threads(4);
#pragma omp parallel for schedule(static)
    for (int i = 0; i < OUTER; i++) {
        const int thread = team_thread();
#pragma omp parallel for schedule(static)
        for (int j = 0; j < INNER; j++) ran[i][j]++, elsewhere[i] += team_thread() != thread;
    }
    for (int i = 0; i < OUTER; i++) {
        CHECK(!elsewhere[i]);
        for (int j = 0; j < INNER; j++) CHECK_EQUAL(ran[i][j], 1);
    }
    team_set_threads(1);
}

static void *run_regions(void *counts) {
    for (int region = 0; region < 200; region++) {
#pragma omp parallel for schedule(static)
        for (int i = 0; i < 100; i++) ((int *)counts)[i]++;
    }
    return NULL;
}

TEST(team_is_used_by_one_thread_of_the_program_at_a_time) {
    static int counts[3][100];
    pthread_t thread[2];
    team_set_threads(3);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&thread[i], NULL, run_regions, counts[i]) == 0);
    run_regions(counts[2]);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 300; i++) CHECK_EQUAL(counts[i / 100][i % 100], 200);
    team_set_threads(1);
}

// A process made by fork has the calling thread alone: as if the system ran no other.
TEST(team_waits_for_no_thread_that_has_taken_nothing) {
    team_set_threads(4);
    run_region(ITERATIONS);
    memset(count, 0, sizeof count);
    const pid_t child = fork();
    if (child == 0) {
        for (int region = 0; region < 10; region++) run_region(ITERATIONS);
        _exit(all_were_run(ITERATIONS, 10) ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    team_set_threads(1);
}
