// Help, manual page and shell completion of a program, made from its tables and printed to stdout.
#pragma once

#include "common/cli/cli.h"

void cli_print_program(const Program *program);
void cli_print_help(const Program *program, const Command *command);
void cli_print_man(const Program *program);        // roff, section 1
void cli_print_completion(const Program *program); // bash
