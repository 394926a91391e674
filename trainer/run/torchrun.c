// Starts mpirun in the first process of torchrun, and hands signals on to it.
#include "trainer/run/torchrun.h"
#include "common/bytes.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/machine/launch.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// What mpirun of Open MPI (4 and 5) refuses or limits by default, and torchrun does not. Variables that the user has
// set stay.
static void set_mpi_defaults(void) {
    static const char *const defaults[][2] = {
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"}, // more ranks than cores
        {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"}, // the ranks share the cores by themselves
        {"PRTE_MCA_hwloc_default_binding_policy", "none"},
    };
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) setenv(defaults[i][0], defaults[i][1], 0);
    if (geteuid()) return;
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0); // as torchrun does
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
}

static _Noreturn void become_mpirun(char **words, pid_t parent, const sigset_t *mask, int report) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(128 + SIGTERM);
    setpgid(0, 0); // Ctrl-C reaches only the first process, which hands it on
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(*words, words);
    const int error = errno;
    _exit(write(report, &error, sizeof error) < 0);
}

// "mpirun -n WORLD PROGRAM ARGUMENT..."; the list is freed, its words are not.
static char **command_of(char **argv, unsigned world) {
    static char mpirun[] = "mpirun", number[] = "-n", count[16], program[PATH_MAX_BYTES];
    size_t size = 0;
    while (argv[size]) size++;
    if (program_path(program, NULL) < 0) return NULL;
    snprintf(count, sizeof count, "%u", world);
    char **words = allocate_zeroed(size + 4, sizeof *words);
    memcpy(words, (char *[]){mpirun, number, count, program}, 4 * sizeof *words);
    memcpy(words + 4, argv + 1, (size - 1) * sizeof *words);
    return words;
}

// Waits for mpirun, to which the first signal goes as SIGUSR1 and a second one as it is.
static int supervise(pid_t mpirun, const sigset_t *signals) {
    for (int number, status, asked = 0;;) {
        if (sigwait(signals, &number)) continue;
        if (number != SIGCHLD) kill(mpirun, asked++ ? number : SIGUSR1);
        if (waitpid(mpirun, &status, WNOHANG) != mpirun) continue;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}

static int start(char **argv, unsigned world) {
    char **words = command_of(argv, world);
    if (!words) return -1;
    set_mpi_defaults();
    sigset_t signals, before;
    struct sigaction hangup;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT), sigaddset(&signals, SIGTERM), sigaddset(&signals, SIGCHLD);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&signals, SIGHUP);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &signals, &before);
    int report[2], error;
    if (pipe2(report, O_CLOEXEC) < 0) return free(words), fail_errno("cannot open a pipe");
    const pid_t self = getpid(), mpirun = fork();
    if (mpirun == 0) become_mpirun(words, self, &before, report[1]);
    free(words);
    if (mpirun < 0) return fail_errno("cannot start mpirun");
    close(report[1]);
    const bool started = read(report[0], &error, sizeof error) == 0; // the end of the file, closed by execvp
    close(report[0]);
    if (started) return supervise(mpirun, &signals);
    return fail(EX_USAGE,
                "torchrun started %u processes, and mpirun, which would train in them, does not start: %s "
                "(install Open MPI, or add its folder to PATH)",
                world, strerror(error));
}

bool torchrun_hand_over(char **argv, int *status) {
    Launch launch;
    *status = -1;
    if (launch_find(&launch) < 0) return true;
    if (launch.world == 1 || strcmp(launch.launcher, LAUNCH_TORCHRUN)) return false;
    unsigned local = 0, local_world = launch.world;
    if (launch_number("LOCAL_RANK", &local) < 0 || launch_number("LOCAL_WORLD_SIZE", &local_world) < 0) return true;
    if (local_world != launch.world) // every process fails, the first of each machine prints why
        *status = local ? EX_USAGE
                        : fail(EX_USAGE,
                               "torchrun started %u processes on several machines: start them by mpirun -H, or by "
                               "srun --mpi=pmix",
                               launch.world);
    else
        *status = launch.rank ? 0 : start(argv, launch.world);
    return true;
}
