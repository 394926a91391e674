// The team: every iteration of a loop runs once, on a thread with a number of its own, with any number of threads.
#include "kernels/cpu/team.h"
#include "tests/test.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ITERATIONS = 5000, THREADS = 8 };

static int count[ITERATIONS];
static struct { _Alignas(64) int sum; } of_thread[THREADS]; // plain memory: two threads with the same number would race

// Adds 1 to the counts of the first n iterations.
TEAM_LOOP(add_counts, int, (int *, counts)) {
    for (int i = first; i < end; i++) counts[i]++, of_thread[team_thread()].sum++;
}
static void run_loop(int n) { add_counts(n, 1, count); }

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
        for (int loop = 0; loop < 50; loop++) run_loop(n);
        CHECK(all_were_run(n, 50));
        int sum = 0;
        for (int t = 0; t < threads; t++) sum += of_thread[t].sum;
        CHECK_EQUAL(sum, 50 * n);
    }
    team_set_threads(1);
}

// Each piece begins at a multiple of the unit and ends at one or at the count; threads have at most 8 pieces each.
TEAM_LOOP(record_pieces, size_t, (size_t, total), (size_t, unit), (_Atomic size_t *, covered), (atomic_int *, pieces)) {
    if (first % unit == 0 && (end % unit == 0 || end == total) && first < end) *covered += end - first;
    ++*pieces;
}

TEST(team_pieces_begin_at_multiples_of_their_unit) {
    team_set_threads(3);
    for (size_t total = 0; total < 300; total = total * 5 / 4 + 1)
        for (size_t unit = 1; unit < 400; unit *= 3) {
            _Atomic size_t covered = 0;
            atomic_int pieces = 0;
            record_pieces(total, unit, total, unit, &covered, &pieces);
            const int units = (int)((total + unit - 1) / unit);
            CHECK_EQUAL(covered, total);
            CHECK_EQUAL(pieces, units < 24 ? units : 24);
        }
    team_set_threads(1);
}

enum { OUTER = 40, INNER = 30 };
static int ran[OUTER][INNER], elsewhere[OUTER];

TEAM_LOOP(run_inner, int, (int, i), (int, thread)) {
    for (int j = first; j < end; j++) ran[i][j]++, elsewhere[i] += team_thread() != thread;
}
TEAM_LOOP(run_outer, int, (int, inner)) {
    for (int i = first; i < end; i++) run_inner(inner, 1, i, team_thread());
}

TEST(team_runs_loops_inside_a_loop_on_their_thread) {
    team_set_threads(4);
    run_outer(OUTER, 1, INNER);
    for (int i = 0; i < OUTER; i++) {
        CHECK(!elsewhere[i]);
        for (int j = 0; j < INNER; j++) CHECK_EQUAL(ran[i][j], 1);
    }
    team_set_threads(1);
}

TEAM_LOOP(add_to, int, (int *, counts)) {
    for (int i = first; i < end; i++) counts[i]++;
}
static void *run_loops(void *counts) {
    for (int loop = 0; loop < 200; loop++) add_to(100, 1, counts);
    return NULL;
}

TEST(team_is_used_by_one_thread_of_the_program_at_a_time) {
    static int counts[3][100];
    pthread_t thread[2];
    team_set_threads(3);
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&thread[i], NULL, run_loops, counts[i]) == 0);
    run_loops(counts[2]);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 300; i++) CHECK_EQUAL(counts[i / 100][i % 100], 200);
    team_set_threads(1);
}

// A process made by fork has the calling thread alone: as if the system ran no other.
TEST(team_waits_for_no_thread_that_has_taken_nothing) {
    team_set_threads(4);
    run_loop(ITERATIONS);
    memset(count, 0, sizeof count);
    const pid_t child = fork();
    if (child == 0) {
        for (int loop = 0; loop < 10; loop++) run_loop(ITERATIONS);
        _exit(all_were_run(ITERATIONS, 10) ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    team_set_threads(1);
}
