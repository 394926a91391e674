// Shell completion from the option tables: commands, options, keys, and the words that are their values. Files are left
// to the shell.
#include "common/bytes.h"
#include "common/cli/cli_help.h"
#include "common/err.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

// The values of an option as "one two"; "" if they are not words. In newest|best|STEP, STEP is not a word.
static void add_values(Buffer *out, const Option *option, bool is_key) {
    const char *words = option->argument && strchr(option->argument, '|') ? option->argument : "";
    if (option->type == OPT_FLAG && is_key) words = "True|False";
    if (option->type == OPT_AUTO) words = "auto";
    out->size = 0;
    for (size_t length; *words; words += length + (words[length] == '|')) {
        length = strcspn(words, "|");
        if (is_key || !isupper((unsigned char)*words))
            buffer_print(out, "%s%.*s", out->size ? " " : "", (int)length, words);
    }
    buffer_add(out, "", 1);
}

typedef void (*OptionPrinter)(const Program *program, const char *commands, const Option *option, const char *values);

static void visit_options(const Program *program, const char *commands, const Option *options, bool are_keys,
                          OptionPrinter print) {
    Buffer values = {0};
    for (const Option *o = options; o && o->type != OPT_END; o++) {
        if (!*o->help) continue;
        add_values(&values, o, are_keys);
        print(program, commands, o, (const char *)values.data);
    }
    buffer_close(&values);
}

static bool takes_value(const Option *option, const char *values) { return option->type != OPT_FLAG || *values; }

// The name of a shell function: "_millrace_trainer". The scripts of `millrace` call it.
static void function_name(const Program *program, char out[64]) {
    snprintf(out, 64, "_%s", program->installed);
    for (char *c = out; *c; c++)
        if (*c == '-') *c = '_';
}

// ---- bash

static void print_bash_names(const Option *options) {
    for (const Option *o = options; o && o->type != OPT_END; o++)
        if (*o->help) printf(" --%s", option_long_name(o));
}

static void print_bash_values(const Program *program, const char *command, const Option *option, const char *values) {
    (void)program;
    if (*values) printf("    %s,--%s) words='%s' ;;\n", command, option_long_name(option), values);
}

// bash makes three words of --dtype=float32, which are --dtype, = and float32.
static void print_bash(const Program *program) {
    const MoreOptions *keys = NULL;
    char function[64];
    function_name(program, function);
    printf("%s() {\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=\n"
           "    [ \"$word\" != = ] || word=\n"
           "    [ \"$before\" != = ] || before=${COMP_WORDS[COMP_CWORD-2]}\n"
           "    case ${COMP_WORDS[1]},$before in\n",
           function);
    for (const Command *const *c = program->commands; *c; c++) {
        visit_options(program, (*c)->name, (*c)->options, false, print_bash_values);
        if ((*c)->more) keys = (*c)->more;
    }
    if (keys) visit_options(program, "*", keys->rows, true, print_bash_values);
    printf("    esac\n    [ -n \"$words\" ] || case $COMP_CWORD,$word,${COMP_WORDS[1]} in\n    1,*) words='");
    for (const Command *const *c = program->commands; *c; c++) printf("%s ", (*c)->name);
    printf("' ;;\n");
    for (const Command *const *c = program->commands; *c; c++) {
        printf("    *,-*,%s) words='", (*c)->name);
        print_bash_names(common_options);
        print_bash_names((*c)->options);
        if ((*c)->more) print_bash_names((*c)->more->rows);
        printf("' ;;\n");
    }
    printf("    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}\ncomplete -o default -F %s %s\n",
           function, program->name);
}

// ---- zsh

// Text within '...[text]'.
static void print_zsh_text(const char *text) {
    for (; *text; text++) {
        if (*text == '\'')
            printf("'\\''");
        else if (strchr("[]:\\", *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void print_zsh_option(const Program *program, const char *commands, const Option *option, const char *values) {
    const char *name = option_long_name(option);
    (void)program, (void)commands;
    printf(" \\\n            '--%s%s[", name, takes_value(option, values) ? "=" : "");
    print_zsh_text(option->help);
    printf("]");
    if (*values)
        printf(":value:(%s)", values);
    else if (option_takes_path(option))
        printf(":file:_files");
    else if (takes_value(option, values))
        printf(":value: ");
    printf("'");
}

static void print_zsh(const Program *program) {
    char function[64];
    function_name(program, function);
    printf("#compdef %s\n%s() {\n    local -a commands=(", program->name, function);
    for (const Command *const *c = program->commands; *c; c++) {
        printf("\n        '%s:", (*c)->name);
        print_zsh_text((*c)->summary);
        printf("'");
    }
    printf(")\n    if ((CURRENT == 2)); then\n        _describe command commands\n        return\n    fi\n"
           "    case $words[2] in\n");
    for (const Command *const *c = program->commands; *c; c++) {
        printf("    %s)\n        _arguments", (*c)->name);
        visit_options(program, (*c)->name, common_options, false, print_zsh_option);
        visit_options(program, (*c)->name, (*c)->options, false, print_zsh_option);
        if ((*c)->more) visit_options(program, (*c)->name, (*c)->more->rows, true, print_zsh_option);
        printf(" \\\n            '*:file:_files' ;;\n");
    }
    printf("    esac\n}\n");
    if (!cli_is_part(program)) printf("%s \"$@\"\n", function);
}

// ---- fish

static void print_fish_text(const char *text) {
    putchar('\'');
    for (; *text; text++) printf(strchr("'\\", *text) ? "\\%c" : "%c", *text);
    putchar('\'');
}

static void print_fish_option(const Program *program, const char *commands, const Option *option, const char *values) {
    const char *name = option_long_name(option);
    printf("complete -c %s -n '__fish_seen_subcommand_from %s' -l %s", program->name, commands, name);
    if (*values)
        printf(" -x -a '%s'", values);
    else if (takes_value(option, values))
        printf(option_takes_path(option) ? " -r" : " -x");
    printf(" -d ");
    print_fish_text(option->help);
    printf("\n");
}

static void print_fish(const Program *program) {
    const MoreOptions *keys = NULL;
    Buffer with_keys = {0}; // the commands that have them
    for (const Command *const *c = program->commands; *c; c++) {
        printf("complete -c %s -f -n __fish_use_subcommand -a %s -d ", program->name, (*c)->name);
        print_fish_text((*c)->summary);
        printf("\n");
        visit_options(program, (*c)->name, common_options, false, print_fish_option);
        visit_options(program, (*c)->name, (*c)->options, false, print_fish_option);
        if ((*c)->more) keys = (*c)->more, buffer_print(&with_keys, "%s%s", with_keys.size ? " " : "", (*c)->name);
    }
    if (keys) visit_options(program, (const char *)with_keys.data, keys->rows, true, print_fish_option);
    buffer_close(&with_keys);
}

bool cli_print_completion(const Program *program, const char *shell) {
    if (!shell || !strcmp(shell, "bash"))
        print_bash(program);
    else if (!strcmp(shell, "zsh"))
        print_zsh(program);
    else if (!strcmp(shell, "fish"))
        print_fish(program);
    else
        return fail(EX_USAGE, "no completion for the shell '%s': bash, zsh or fish", shell), false;
    return true;
}
