// trainer: trains a GPT.
#include "common/cli/cli.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include "common/machine/launch.h"
#include "trainer/run/torchrun.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMANDS(X) X(train) X(plan) X(eval) X(sample) X(export) X(import) X(status) X(doctor)

#define DECLARE(name) extern const Command trainer_##name;
COMMANDS(DECLARE)

// Makes waiting OpenMP threads spin for about 50 us and then sleep. They spin for milliseconds by default, and a step
// then takes two to three times as long beside another busy process. libgomp reads the environment when it is loaded,
// so the program executes itself again.
static void bound_spinning(char **argv) {
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    setenv("GOMP_SPINCOUNT", "10000", 1);
    char self[PATH_MAX_BYTES]; // its path, so that ps shows the name and not "exe"
    if (program_path(self, NULL) == 0) execv(self, argv);
    err_clear(); // without it waiting is merely slower
}

// Opens /dev/null for each standard file that is closed, so that no other file gets its number and its output.
static void keep_standard_files(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
}

// Under mpirun or srun the first process does what is for one process, and the others have nothing to do.
static bool has_nothing_to_do(int argc, char **argv) {
    Launch launch;
    if (argc < 2 || !strcmp(argv[1], "train")) return false;
    if (launch_find(&launch) < 0) err_clear();
    return launch.rank > 0;
}

int main(int argc, char **argv) {
    keep_standard_files();
    signal(SIGXFSZ, SIG_IGN); // a write beyond `ulimit -f` is an error with a message
    bound_spinning(argv);
    if (has_nothing_to_do(argc, argv)) return 0;
    int status;
    if (argc > 1 && !strcmp(argv[1], "train") && torchrun_hand_over(argv, &status)) {
        log_program = "trainer";
        if (status < 0) log_error("train", err_text());
        return status < 0 ? err_code() : status;
    }
#define ROW(name) &trainer_##name,
    static const Command *const commands[] = {COMMANDS(ROW) NULL};
    static const Program program = {"trainer", "trains a GPT within a memory plan that is made before it starts",
                                    commands};
    return cli_main(&program, argc, argv);
}
