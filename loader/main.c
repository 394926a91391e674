// loader: serves a tokenized dataset to trainers.
#include "common/cli/cli.h"
#include <stddef.h>

#define COMMANDS(X) X(serve) X(swap) X(reweight) X(status) X(keygen)

#define DECLARE(name) extern const Command loader_##name;
COMMANDS(DECLARE)

int main(int argc, char **argv) {
#define ROW(name) &loader_##name,
    static const Command *const commands[] = {COMMANDS(ROW) NULL};
    static const Program program = {"loader", "serves a tokenized dataset to trainers", commands};
    return cli_main(&program, argc, argv);
}
