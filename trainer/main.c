// trainer: owns the model.
#include "trainer/commands.h"

static const Command *const commands[] = {&cmd_train, &cmd_plan, &cmd_eval, &cmd_sample, &cmd_status, NULL};

int main(int argc, char **argv) {
    const Program program = {"trainer", "train a GPT, within a memory plan made before it starts", commands};
    return cli_main(&program, argc, argv);
}
