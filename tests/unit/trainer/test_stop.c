// A signal in each phase of a run: stop_check, which every phase calls, is replaced by one that raises it there.
#include "common/cli/cli.h"
#include "common/machine/stop.h"
#include "tests/unit/loader/fixture_loader.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

extern const Command trainer_train;
int __real_stop_check(const char *phase);
int __wrap_stop_check(const char *phase);

enum { PHASES_MAX = 16, PHASE_BYTES = 64 };
static const char *stop_at; // NULL: nowhere
static int phases_fd = -1;  // of a run: a line for each call

int __wrap_stop_check(const char *phase) {
    static bool raised;
    if (phases_fd >= 0) dprintf(phases_fd, "%s%s\n", raised ? "then: " : "", phase);
    if (stop_at && !raised && !strcmp(phase, stop_at)) {
        raised = true;
        kill(getpid(), SIGTERM);
        while (!stop_requested) sched_yield();
    }
    return __real_stop_check(phase);
}

// Trains in a process of its own, and returns its exit code. Its words are in the file "words", its phases in "phases".
static int train(const char *out_dir, int max_iters, const char *signal_at) {
    char name[] = "trainer", command[] = "train", loader[] = "--loader=ipc://p", dir[64], iters[32];
    char *shape[] = {"--n_layer=5",     "--n_head=1",        "--n_embd=16",
                     "--block_size=16", "--batch_size=1",    "--gradient_accumulation_steps=1",
                     "--eval_iters=1",  "--eval_interval=2", "--sample_tokens=8",
                     "--threads=1",     "--device=cpu",      "--dtype=float32",
                     "--warmup_iters=1"};
    enum { SHAPE = sizeof shape / sizeof *shape, WORDS = 5 + SHAPE };
    char *words[WORDS + 1] = {name, command, loader, dir, iters};
    snprintf(dir, sizeof dir, "--out_dir=%s", out_dir);
    snprintf(iters, sizeof iters, "--max_iters=%d", max_iters);
    memcpy(words + 5, shape, sizeof shape);
    fflush(stdout);
    const pid_t child = fork();
    if (!child) {
        const Command *const commands[] = {&trainer_train, NULL};
        const Program program = {.name = "trainer", .installed = "millrace-trainer", .commands = commands};
        const int out = open("words", O_CREAT | O_TRUNC | O_WRONLY, 0644);
        dup2(out, STDOUT_FILENO), dup2(out, STDERR_FILENO);
        stop_at = signal_at;
        phases_fd = open("phases", O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0644);
        const int code = cli_main(&program, WORDS, words);
        fflush(stdout);
        _exit(code);
    }
    int status;
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

// The different lines of the file "phases".
static int read_phases(char phases[PHASES_MAX][PHASE_BYTES]) {
    char *text = read_file("phases", NULL);
    int count = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        int known = 0;
        while (known < count && strcmp(phases[known], line)) known++;
        if (known < count) continue;
        CHECK(count < PHASES_MAX);
        snprintf(phases[count++], PHASE_BYTES, "%s", line);
    }
    free(text);
    return count;
}

static void check_same_model(const char *run) {
    char path[64];
    size_t size, other_size;
    char *model = read_file("whole/ckpt-00000004/model.safetensors", &size);
    snprintf(path, sizeof path, "%s/ckpt-00000004/model.safetensors", run);
    char *other = read_file(path, &other_size);
    CHECK(model && other);
    CHECK_EQUAL(other_size, size);
    CHECK(!memcmp(model, other, size));
    free(model), free(other);
}

// A signal arrives in a phase: no other phase begins after it, and the same command completes the run.
static void check_phase(const char *run, bool resumes, const char *phase) {
    char phases[PHASES_MAX][PHASE_BYTES];
    if (resumes) CHECK_EQUAL(train(run, 2, NULL), 0);
    const int code = train(run, 4, phase);
    char *words = read_file("words", NULL);
    if (code && code != 75) print_error("%s: %d: %s\n", phase, code, words);
    CHECK_TEXT(words, code ? "stopped" : "the text was cut short");
    CHECK(code == 0 || code == 75);
    free(words);
    const int count = read_phases(phases);
    for (int i = 0; i < count; i++) CHECK(strncmp(phases[i], "then: ", 6) || !strcmp(phases[i] + 6, phase));
    CHECK_EQUAL(train(run, 4, NULL), 0);
    check_same_model(run);
}

// The phases are those that a run calls, so a new one is tested here as soon as it calls stop_check.
TEST_CI(train_stops_at_a_signal_in_each_phase_and_continues) {
    char phases[PHASES_MAX][PHASE_BYTES], run[32];
#ifdef __SANITIZE_ADDRESS__
    SKIP("a child maps memory where threads of other tests had their stacks, whose marks are left");
#endif
    make_test_dataset("set", &(TestDataset){1, 30000, 2000, 30000, 4096, false, false});
    const pid_t loader = start_loader("set", "p");
    for (int resumes = 0; resumes < 2; resumes++) {
        if (resumes) CHECK_EQUAL(train("resumed", 2, NULL), 0);
        CHECK_EQUAL(train(resumes ? "resumed" : "whole", 4, NULL), 0);
        const int count = read_phases(phases);
        CHECK(count >= 6);
        for (int i = 0; i < count; i++) {
            snprintf(run, sizeof run, "run-%d-%d", resumes, i);
            check_phase(run, resumes, phases[i]);
        }
    }
    CHECK_EQUAL(stop_loader(loader, SIGTERM), 0);
}
