// Loans of processors: what the system says of the processors that a thread may use, after each step of a loan.
#include "common/machine/cgroup.h"
#include "kernels/cpu/places.h"
#include "tests/test.h"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOKS = 100000, UNBOUND_NS = 2000000000, NO_GROUP = 77 };

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

// A worker that has work and does not run, comes back from a loan, lends its place to the caller, and has work again.
static void *work(void *unused) {
    places_enter(1);
    places_work(1, true);
    sem_post(&reached), sem_wait(&go);
    places_work(1, false);
    places_return(1);
    sem_post(&reached), sem_wait(&go);
    lend(1, LOOKS);
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

static bool is_one(const cpu_set_t *set) { return CPU_COUNT(set) == 1; }

// Until the worker has exchanged places with the caller. Returns the number of the first step that is wrong, or 0.
static int run_loans(const cpu_set_t *all, pthread_t *worker) {
    sem_init(&go, 0, 0), sem_init(&reached, 0, 0);
    if (places_open(2) || !places_lent()) return 1;
    if (pthread_create(worker, NULL, work, NULL)) return 2;
    sem_wait(&reached);
    places_begin(1);
    if (!lend(0, LOOKS)) return 3;
    const cpu_set_t lent = processors(*worker);
    if (!is_one(&lent)) return 4;
    sem_post(&go), sem_wait(&reached); // it has come back
    const cpu_set_t own = processors(*worker);
    if (!is_one(&own) || CPU_EQUAL(&own, &lent)) return 5;
    sem_post(&go), sem_wait(&reached); // it has exchanged places with the caller
    const cpu_set_t exchanged = processors(*worker), callers = processors(pthread_self());
    return CPU_EQUAL(&exchanged, &lent) && CPU_EQUAL(&callers, all) ? 0 : 6;
}

static int free_after_the_last_loan(const cpu_set_t *all) {
    pthread_t worker;
    const int wrong = run_loans(all, &worker);
    if (wrong) return wrong;
    places_begin(UNBOUND_NS);
    const cpu_set_t after = processors(worker);
    return CPU_EQUAL(&after, all) && places_lent() ? 0 : 7;
}

// As by taskset -p of the process: its mask is kept, and the worker is free.
static int free_after_another_mask(const cpu_set_t *all) {
    pthread_t worker;
    const int wrong = run_loans(all, &worker);
    if (wrong) return wrong;
    const cpu_set_t pinned = processors(worker);
    sched_setaffinity(0, sizeof pinned, &pinned);
    if (lend(0, 100) || places_lent()) return 8;
    const cpu_set_t after = processors(worker), callers = processors(pthread_self());
    return CPU_EQUAL(&after, all) && CPU_EQUAL(&callers, &pinned) ? 0 : 9;
}

// As by taskset -p of the worker alone.
static int keep_the_pin_of_a_worker(const cpu_set_t *all) {
    pthread_t worker;
    const int wrong = run_loans(all, &worker);
    if (wrong) return wrong;
    cpu_set_t pinned = processors(worker);
    CPU_XOR(&pinned, &pinned, all); // the other processor
    pthread_setaffinity_np(worker, sizeof pinned, &pinned);
    if (lend(0, 100)) return 10;
    places_begin(UNBOUND_NS);
    const cpu_set_t after = processors(worker), callers = processors(pthread_self());
    return CPU_EQUAL(&after, &pinned) && CPU_EQUAL(&callers, all) && !places_lent() ? 0 : 11;
}

static char group[64]; // a control group, which is removed after the check

static bool group_put(const char *file, const char *text) {
    char path[96];
    snprintf(path, sizeof path, "%s/%s", group, file);
    FILE *out = fopen(path, "w");
    return out && (fputs(text, out) < 0) + fclose(out) == 0;
}

static bool group_allow(const cpu_set_t *set) {
    char list[32] = "";
    for (size_t processor = 0; processor < CPU_SETSIZE; processor++)
        if (CPU_ISSET(processor, set)) sprintf(list + strlen(list), "%zu,", processor);
    return group_put("cpuset.cpus", list);
}

// The run's cpuset loses the processor to which the worker is bound, and gets it back.
static int free_after_a_smaller_cpuset(const cpu_set_t *all) {
    pthread_t worker;
    if (mkdir(group, 0755) < 0 || !group_put("cpuset.mems", "0") || !group_allow(all)) return NO_GROUP;
    const int wrong = group_put("cgroup.procs", "0") ? run_loans(all, &worker) : 14;
    if (wrong) return wrong;
    cpu_set_t smaller = processors(worker);
    CPU_XOR(&smaller, &smaller, all);
    if (!group_allow(&smaller) || lend(0, 100) || places_lent()) return 15;
    const cpu_set_t moved = processors(worker);
    if (!CPU_EQUAL(&moved, &smaller) || !group_allow(all)) return 16;
    const cpu_set_t after = processors(worker), callers = processors(pthread_self());
    return CPU_EQUAL(&after, all) && CPU_EQUAL(&callers, all) ? 0 : 17;
}

static int refuse_where_binding_is_not_permitted(const cpu_set_t *all) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 0;
    const char *why = places_open(2);
    const cpu_set_t after = processors(pthread_self());
    return why && strstr(why, "may not bind") && !places_lent() && CPU_EQUAL(&after, all) ? 0 : 12;
}

static int refuse_by_the_variable(const cpu_set_t *all) {
    (void)all;
    setenv("MILLRACE_LOANS", "0", 1);
    const char *why = places_open(2);
    return why && strstr(why, "MILLRACE_LOANS") && !places_lent() ? 0 : 13;
}

// In a process of its own with two processors, because it has no threads of the team.
static void with_two_processors(int (*check)(const cpu_set_t *)) {
    cpu_set_t two;
    sched_getaffinity(0, sizeof two, &two);
    if (CPU_COUNT(&two) < 2) SKIP("one processor");
    if (cgroup_limits().cpus) SKIP("a control group limits the time of processors");
    for (size_t processor = 0; CPU_COUNT(&two) > 2; processor++) CPU_CLR(processor, &two);
    unsetenv("MILLRACE_LOANS");
    const pid_t child = fork();
    if (child == 0) _exit(sched_setaffinity(0, sizeof two, &two) == 0 ? check(&two) : 20);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    rmdir(group);
    if (WEXITSTATUS(status) == NO_GROUP) SKIP("no control group with a cpuset can be made");
    CHECK_EQUAL(WEXITSTATUS(status), 0);
    CHECK(WIFEXITED(status));
}

TEST(places_of_threads_that_wait_are_lent_to_one_that_does_not_run) { with_two_processors(free_after_the_last_loan); }
TEST(places_are_no_longer_lent_after_another_mask_of_the_run) { with_two_processors(free_after_another_mask); }
TEST(places_leave_a_worker_where_somebody_else_has_pinned_it) { with_two_processors(keep_the_pin_of_a_worker); }
TEST(places_leave_a_worker_free_after_a_cpuset_that_shrank_and_grew) {
    const char *parent = access("/sys/fs/cgroup/cpuset", F_OK) ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpuset";
    snprintf(group, sizeof group, "%s/millrace-%d", parent, (int)getpid());
    with_two_processors(free_after_a_smaller_cpuset);
}
TEST(places_are_not_lent_where_binding_is_not_permitted) { with_two_processors(refuse_where_binding_is_not_permitted); }
TEST(places_are_not_lent_if_the_variable_forbids_it) { with_two_processors(refuse_by_the_variable); }
