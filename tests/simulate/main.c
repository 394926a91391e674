// simulate: histories of the loader's protocol from seeds, each in a process of its own.
//   simulate --seconds=S [--first=SEED]   as many as fit in the time, from SEED on
//   simulate --count=N [--first=SEED]     so many
//   simulate --seed=SEED [--verbose]      one, with each step of it
// Prints what happened in them; a history that fails, and the command that repeats it. Every hundredth is run twice and
// must be the same. Exits with 1 after a failure.
#include "common/log.h"
#include "dataset/dataset.h"
#include "tests/simulate/scenario.h"
#include "tests/unit/loader/fixture_loader.h"
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REPEAT_EVERY = 100, CPU_S = 60 };

// What the fixture's functions for other tests refer to.
const char *test_bin = "";
void test_failed(const char *what, const char *file, int line) { sim_fail("%s:%d: %s", file, line, what); }
void test_equal(long long got, long long want, const char *what, const char *file, int line) {
    if (got != want) test_failed(what, file, line);
}
void test_owns(int pid) { (void)pid; }
char *read_file(const char *path, size_t *size) { return (void)path, (void)size, NULL; }

static void make_datasets(void) {
    static const TestDataset made[BASES] = {
        {.salt = 1, .train_tokens = 100000, .val_tokens = 5000, .shard_tokens = 60000, .frame_tokens = 4096},
        {.salt = 2, .train_tokens = 30000, .val_tokens = 3000, .shard_tokens = 30000, .frame_tokens = 2048},
        {.salt = 3, .train_tokens = 600, .val_tokens = 300, .shard_tokens = 600, .frame_tokens = 256},
        {.salt = 4,
         .train_tokens = 9000,
         .val_tokens = 300,
         .shard_tokens = 9000,
         .frame_tokens = 1024,
         .other_vocabulary = true}};
    static const char *const names[BASES] = {"a", "b", "c", "v"};
    for (int i = 0; i < BASES; i++) {
        Dataset dataset;
        make_test_dataset(names[i], &made[i]);
        if (dataset_open(&dataset, names[i]) < 0) sim_fail("%s", err_text());
        sim_world.bases[i] = (LawSource){names[i], made[i].salt, {made[i].train_tokens, made[i].val_tokens}, {0}};
        memcpy(sim_world.bases[i].fingerprint, dataset.fingerprint, 32);
        dataset_close(&dataset);
    }
}

// Whether the history of the seed holds.
static bool run_history(uint64_t seed) {
    memset(sim_summary, 0, sizeof *sim_summary);
    dir_remove("history");
    if (dir_make("history") < 0) sim_fail("%s", err_text());
    const pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CPU, &(struct rlimit){CPU_S, CPU_S});
        if (chdir("history") < 0) _exit(2);
        sim_seed(seed);
        history_run();
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) < 0) sim_fail("cannot start a process");
    if (WIFSIGNALED(status))
        fprintf(stderr, "ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    return status == 0;
}

static bool check_history(uint64_t seed, bool twice) {
    bool holds = run_history(seed);
    const Summary first = *sim_summary;
    if (holds && twice) {
        holds = run_history(seed) && !memcmp(&first, sim_summary, sizeof first);
        if (!holds) fprintf(stderr, "the history is another one the second time\n");
    }
    if (!holds)
        fprintf(stderr, "seed %llu fails; to repeat it: make simulate SEED=%llu\n", (unsigned long long)seed,
                (unsigned long long)seed);
    return holds;
}

// Of this process and of those that have ended.
static double cpu_seconds(void) {
    struct rusage own, ended;
    getrusage(RUSAGE_SELF, &own), getrusage(RUSAGE_CHILDREN, &ended);
    const struct timeval parts[] = {own.ru_utime, own.ru_stime, ended.ru_utime, ended.ru_stime};
    double seconds = 0;
    for (int i = 0; i < 4; i++) seconds += (double)parts[i].tv_sec + (double)parts[i].tv_usec / 1e6;
    return seconds;
}

static uint64_t wall_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * S + (uint64_t)time.tv_nsec;
}

static bool run_histories(uint64_t first, uint64_t count, uint64_t seconds) {
    Summary sum = {0};
    const uint64_t began = wall_ns();
    uint64_t done = 0;
    bool holds = true;
    while (holds && done < count && wall_ns() - began < seconds * S) {
        holds = check_history(first + done, (first + done) % REPEAT_EVERY == 0);
        const uint64_t *from = &sim_summary->hash;
        for (size_t i = 0; i < sizeof sum / sizeof *from; i++) (&sum.hash)[i] += from[i];
        done++;
    }
    const double s = (double)(wall_ns() - began) / 1e9;
    printf("%llu histories from seed %llu in %.1f s (%.0f an hour of a core), %.0f s of virtual time, hash %016llx: "
           "%llu batches, %llu faults, %llu kills, %llu requests of the operator, %llu changes seen, %llu resends, "
           "%llu reconnects\n",
           (unsigned long long)done, (unsigned long long)first, s, (double)done / cpu_seconds() * 3600,
           (double)sum.now / 1e9, (unsigned long long)sum.hash, (unsigned long long)sum.batches,
           (unsigned long long)sum.faults, (unsigned long long)sum.kills, (unsigned long long)sum.controls,
           (unsigned long long)sum.changes, (unsigned long long)sum.resends, (unsigned long long)sum.reconnects);
    return holds;
}

int main(int argc, char **argv) {
    unsigned long long first = 1, count = UINT64_MAX, seconds = UINT64_MAX, seed = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--verbose"))
            sim_verbose = true;
        else if (sscanf(argv[i], "--first=%llu", &first) + sscanf(argv[i], "--count=%llu", &count) +
                     sscanf(argv[i], "--seconds=%llu", &seconds) + sscanf(argv[i], "--seed=%llu", &seed) <
                 1) {
            fprintf(stderr, "simulate: not an argument: '%s'\n", argv[i]);
            return 2;
        }
    }
    char folder[] = "/dev/shm/simulate-XXXXXX", fallback[] = "/tmp/simulate-XXXXXX", *made = mkdtemp(folder);
    if (!made) made = mkdtemp(fallback);
    sim_summary = mmap(NULL, sizeof *sim_summary, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!made || chdir(made) < 0 || sim_summary == MAP_FAILED) return 71;
    log_silent = !sim_verbose;
    mallopt(M_MMAP_THRESHOLD, 32 << 20), mallopt(M_TRIM_THRESHOLD, 64 << 20); // fewer pages are touched
    make_datasets();
    if (seed) first = seed, count = 1;
    const bool holds = run_histories(first, count, seconds);
    dir_remove(made);
    return !holds;
}
