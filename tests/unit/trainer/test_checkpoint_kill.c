// Checkpoints under kill -9 at every system call: a child process saves, and its tracer kills it at the entry of its
// n-th call, for every n.
#include "common/file/file.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/checkpoint/checkpoint_writer.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OLDEST_STEP = 1, OLD_STEP = 2, NEW_STEP = 4 }; // the save removes the oldest

static Tiny tiny;

static RunState state_at(uint64_t step) {
    RunState state;
    run_state_init(&state);
    state.step = step, state.dataset_count = 1;
    snprintf(state.datasets[0].name, sizeof state.datasets[0].name, "data");
    return state;
}

// What a new process does with a run directory, and then the save of a step.
static int resume_and_save(void) {
    char path[PATH_MAX_BYTES];
    RunState found;
    dir_sweep("run", NULL);
    if (checkpoint_find("run", &tiny.config, path, &found) != 1) return -1;
    found.step = NEW_STEP;
    return checkpoint_save(&tiny.network, &found, &tiny.config, "run", NULL);
}

// The same through the thread that saves beside training.
static int save_beside(void) {
    static HostCopy copy;
    CheckpointWriter writer = {.copy = &copy, .config = &tiny.config};
    const int metrics = open("metrics.jsonl", O_WRONLY | O_CREAT, 0666);
    const RunState state = state_at(NEW_STEP);
    host_copy_open(&copy, &tiny.network, &tiny.config, UINT64_MAX);
    if (!checkpoint_writer_start(&writer, &tiny.network, &state, metrics)) return -1;
    return checkpoint_writer_result(&writer, true) == 1 ? 0 : -1;
}

// Runs `work` in a child and kills it at the entry of its n-th system call, counted over its threads. False: it had
// fewer, and ended well.
static bool kill_at(int n, int (*work)(void)) {
    const pid_t child = fork();
    if (child == 0) {
        int null =
            open("/dev/null", O_WRONLY); // the report about a checkpoint that is damaged would be an error of the test
        dup2(null, 2);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0) _exit(99);
        raise(SIGSTOP);
        _exit(work() == 0 ? 0 : 1);
    }
    int status = 0, calls = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFEXITED(status)) SKIP("this system does not allow ptrace");
    CHECK(ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL) == 0);
    CHECK(ptrace(PTRACE_SYSCALL, child, NULL, NULL) == 0);
    for (;;) {
        const pid_t thread = waitpid(-1, &status, __WALL);
        CHECK(thread > 0);
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (thread != child) continue;
            if (WIFEXITED(status)) CHECK_EQUAL(WEXITSTATUS(status), 0);
            return WIFSIGNALED(status);
        }
        const int signal = WSTOPSIG(status);
        const bool call = signal == (SIGTRAP | 0x80), ours = call || signal == SIGTRAP || signal == SIGSTOP;
        if (call && ++calls == 2 * n - 1) kill(child, SIGKILL); // each call stops at its entry and at its end
        ptrace(PTRACE_SYSCALL, thread, NULL, ours ? 0L : (long)signal);
    }
}

// The run directory holds a whole checkpoint of the old or the new step, and nothing that is read as one and is not.
static void check_run(void) {
    char path[PATH_MAX_BYTES];
    RunState found;
    CHECK(checkpoint_newest("run", NULL, path, &found) == 1);
    CHECK(found.step == OLD_STEP || found.step == NEW_STEP);
    CHECK(access("run/ckpt-00000002.damaged", F_OK) < 0 && access("run/ckpt-00000004.damaged", F_OK) < 0);
    uint64_t step;
    for (uint64_t most = NEW_STEP; checkpoint_up_to("run", most, &step); most = step - 1)
        CHECK(checkpoint_of_step("run", step, path, &found) == 1);
}

static void check_recovery(void) {
    CHECK(resume_and_save() == 0);
    CHECK_EQUAL(system("diff -r run/ckpt-00000004 whole/ckpt-00000004 && [ -z \"$(ls -A run | grep -v '^ckpt-')\" ]"),
                0);
}

static void start_over(void) { CHECK(system("rm -rf run && cp -r start run") == 0); }

static void open_runs(void) {
    tiny_open(&tiny, TINY_SHAPE(.threads = 1));
    RunState state = state_at(OLDEST_STEP);
    CHECK(dir_make("run") == 0 && checkpoint_save(&tiny.network, &state, &tiny.config, "run", NULL) == 0);
    state.step = OLD_STEP;
    CHECK(checkpoint_save(&tiny.network, &state, &tiny.config, "run", NULL) == 0);
    CHECK(system("cp -r run start && cp -r run whole") == 0);
    state.step = NEW_STEP;
    CHECK(checkpoint_save(&tiny.network, &state, &tiny.config, "whole", NULL) == 0);
    tiny.config.out_dir = "run";
}

// Every n-th call of a save, or all of them, and after each the recovery, killed once itself.
static void sweep(int (*save)(void), int stride) {
    open_runs();
    int calls = 1;
    for (; kill_at(calls, save); calls += stride) {
        check_run();
        kill_at(calls * 7 % 150 + 1, resume_and_save); // a second kill during the recovery
        check_run();
        check_recovery();
        start_over();
    }
    CHECK(calls > 60);
    check_recovery();
    tiny_close(&tiny);
}

// fault 72
TEST_CI(checkpoint_survives_a_kill_at_every_call_of_a_save) {
    sweep(resume_and_save, getenv("MILLRACE_SWEEP") ? 1 : 37);
}
// fault 72
TEST_CI(checkpoint_survives_a_kill_at_every_call_of_a_save_beside_training) {
    sweep(save_beside, getenv("MILLRACE_SWEEP") ? 1 : 61);
}
