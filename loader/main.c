// loader: owns the data, feeds trainers.
#include "loader/loader_commands.h"

static const Command *const commands[] = {&cmd_serve, &cmd_stats, &cmd_keygen, NULL};

int main(int argc, char **argv) {
    static const Program program = {"loader", "serves a tokenized dataset to trainers", commands};
    return cli_main(&program, argc, argv);
}
