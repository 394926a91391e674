// Help, manual pages and shell completion of a program, made from its tables and printed to stdout.
#pragma once

#include "common/cli/cli.h"

#define SIZE_HELP                                                                                                      \
    "Bytes, as 4096, 64k, 1.5GiB or 12GB: KB, MB, GB and TB are powers of 1000; k, M, G, T and KiB to TiB of 1024"

extern const Option common_options[]; // those that every command has; cli.c parses them

// Whether `millrace` has started the program: without a command it prints its part of what concerns all programs.
bool cli_is_part(const Program *program);
void cli_print_program(const Program *program);
void cli_print_help(const Program *program, const Command *command);
// For the shell "bash" (or NULL), "zsh" or "fish". False after fail() for another.
bool cli_print_completion(const Program *program, const char *shell);

// Manual pages, as roff: of the program, of a command, and of the keys that commands parse themselves.
void cli_print_man(const Program *program);
void cli_print_man_command(const Program *program, const Command *command);
void cli_print_man_keys(const Program *program, const MoreOptions *keys);

// "-o, --output DIR", and " [default]" or "" if the option is off or has no default.
void option_flag(const Option *option, char *out, size_t size);
void option_default(const Option *option, char *out, size_t size);
const char *option_long_name(const Option *option); // "output"
// What a SIZE is, if an option or key of the command takes one, else NULL.
const char *command_size_help(const Command *command);
// The name of a key's value, as INTEGER or DIR; its help with the range or the words of its values; and the title of
// the group that it begins, or NULL.
const char *key_value_name(const Option *key);
void key_help(const Option *key, char *out, size_t size);
const char *key_title(const MoreOptions *keys, const Option *key);
