// trainer: owns the model.
#include "common/cli.h"
#include "common/file.h"
#include <stdlib.h>
#include <unistd.h>

#define COMMANDS(X) X(train) X(plan) X(eval) X(sample) X(status)

#define DECLARE(name) extern const Command trainer_##name;
COMMANDS(DECLARE)

// Threads that wait spin for some 50 us and then sleep. OpenMP's own default spins for milliseconds: with a busy
// neighbour on the processor a step then takes two to three times as long. libgomp looks at the environment when it is
// loaded, so the program starts once more.
static void bound_spinning(char **argv) {
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY")) return;
    setenv("GOMP_SPINCOUNT", "10000", 1);
    char self[PATH_MAX_BYTES]; // by its own name: through /proc/self/exe it would show as "exe" in ps and to pkill
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) return;
    self[length] = '\0';
    execv(self, argv); // comes back only when it cannot; then waiting is only slower
}

int main(int argc, char **argv) {
    bound_spinning(argv);
#define ROW(name) &trainer_##name,
    static const Command *const commands[] = {COMMANDS(ROW) NULL};
    static const Program program = {"trainer", "train a GPT, within a memory plan made before it starts", commands};
    return cli_main(&program, argc, argv);
}
