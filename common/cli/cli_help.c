// Help and completion from the option tables.
#include "common/cli/cli_help.h"
#include <stdio.h>
#include <string.h>

void option_flag(const Option *option, char *out, size_t size) {
    const char *name = option->name;
    char letter[8] = "";
    if (name[0] && name[1] == ',') {
        snprintf(letter, sizeof letter, "-%c, ", name[0]);
        name += 2;
    }
    const char *argument = option->argument ? option->argument : "";
    if (name[1])
        snprintf(out, size, "%s--%s%s%s", letter, name, *argument ? " " : "", argument);
    else
        snprintf(out, size, "-%s%s%s", name, *argument ? " " : "", argument);
}

void option_default(const Option *option, char *out, size_t size) {
    char value[220]; // room for escapes
    option_print(option, value, 200);
    for (char *newline; (newline = strchr(value, '\n'));) { // the default prompt of samples
        memmove(newline + 2, newline + 1, strlen(newline));
        memcpy(newline, "\\n", 2);
    }
    bool plain = option->type == OPT_FLAG ? *(bool *)option->value == false : value[0] == '\0';
    if (plain)
        *out = '\0';
    else
        snprintf(out, size, " [%s]", value);
}

const Option common_options[] = {
    {OPT_FLAG, "q,quiet", &(bool){false}, NULL, "print warnings and errors only"},
    {OPT_FLAG, "h,help", &(bool){false}, NULL, "print this help"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

void cli_print_program(const Program *program) {
    printf("%s: %s\n\nusage: %s COMMAND [OPTIONS] [ARGUMENTS]\n\n", program->name, program->summary, program->name);
    for (const Command *const *c = program->commands; *c; c++) printf("  %-10s %s\n", (*c)->name, (*c)->summary);
    printf("\n%s COMMAND --help explains a command; --version, --man [COMMAND] and --completion print the version, a "
           "manual page and a bash completion.\n",
           program->name);
}

static void print_rows(const Option *options) {
    for (const Option *o = options; o && o->type != OPT_END; o++) {
        char flag[160], value[240];
        option_flag(o, flag, sizeof flag);
        option_default(o, value, sizeof value);
        printf("  %-26s%s%s%s\n", flag, strlen(flag) > 26 ? "\n                             " : " ", o->help, value);
    }
}

void cli_print_help(const Program *program, const Command *command) {
    printf("usage: %s %s [OPTIONS]%s%s\n%s\n\n", program->name, command->name, *command->arguments ? " " : "",
           command->arguments, command->summary);
    print_rows(command->options);
    print_rows(common_options);
    if (!command->more) return;
    printf("\nkeys, in config files (key = value) and as flags (--key=value):\n");
    print_rows(command->more->rows);
}

static void print_flags(const Option *options) {
    for (const Option *o = options; o && o->type != OPT_END; o++) {
        const char *name = o->name[0] && o->name[1] == ',' ? o->name + 2 : o->name;
        if (name[1]) printf(" --%s", name);
    }
}

void cli_print_completion(const Program *program) {
    printf("_%s() {\n    local word=${COMP_WORDS[COMP_CWORD]} words\n    case ${COMP_WORDS[1]} in\n", program->name);
    for (const Command *const *c = program->commands; *c; c++) {
        printf("    %s) words='", (*c)->name);
        print_flags(common_options);
        print_flags((*c)->options);
        if ((*c)->more) print_flags((*c)->more->rows);
        printf("' ;;\n");
    }
    printf("    esac\n    if [ \"$COMP_CWORD\" = 1 ]; then words='");
    for (const Command *const *c = program->commands; *c; c++) printf("%s ", (*c)->name);
    printf("'; fi\n    case $word in -*|\"\") COMPREPLY=($(compgen -W \"$words\" -- \"$word\")) ;;\n"
           "    *) [ \"$COMP_CWORD\" = 1 ] && COMPREPLY=($(compgen -W \"$words\" -- \"$word\")) ;; esac\n}\n"
           "complete -o default -F _%s %s\n",
           program->name, program->name);
}
