// What a program says about itself, made from its tables: help, manual page, shell completion. All go to stdout.
#pragma once

#include "common/cli.h"

void cli_print_program(const Program *program);
void cli_print_help(const Program *program, const Command *command);
void cli_print_man(const Program *program);        // roff, section 1
void cli_print_completion(const Program *program); // bash
