// Help, manual pages and shell completion of a program, made from its tables and printed to stdout.
#pragma once

#include "common/cli/cli.h"

extern const Option common_options[]; // those that every command has; cli.c parses them

void cli_print_program(const Program *program);
void cli_print_help(const Program *program, const Command *command);
void cli_print_completion(const Program *program); // bash

// Manual pages, as roff: of the program, of a command, and of the keys that commands parse themselves.
void cli_print_man(const Program *program);
void cli_print_man_command(const Program *program, const Command *command);
void cli_print_man_keys(const Program *program, const MoreOptions *keys);

// "-o, --output DIR", and " [default]" or, where the default is none or off, "".
void option_flag(const Option *option, char *out, size_t size);
void option_default(const Option *option, char *out, size_t size);
