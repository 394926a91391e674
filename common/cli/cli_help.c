// Help, manual page and completion from the option tables.
#include "common/cli/cli_help.h"
#include <stdio.h>
#include <string.h>

static void flag_text(const Option *option, char *out, size_t size) {
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

// " [default]", or nothing where the default is none or off
static void default_text(const Option *option, char *out, size_t size) {
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

// Of every command; cli.c reads them.
static const Option common_options[] = {
    {OPT_FLAG, "q,quiet", &(bool){false}, NULL, "print warnings and errors only"},
    {OPT_FLAG, "h,help", &(bool){false}, NULL, "print this help"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

void cli_print_program(const Program *program) {
    printf("%s: %s\n\nusage: %s COMMAND [OPTIONS] [ARGUMENTS]\n\n", program->name, program->summary, program->name);
    for (const Command *const *c = program->commands; *c; c++) printf("  %-10s %s\n", (*c)->name, (*c)->summary);
    printf("\n%s COMMAND --help explains a command; --version, --man and --completion print the version, the manual "
           "page and a bash completion.\n",
           program->name);
}

static void print_rows(const Option *options) {
    for (const Option *o = options; o && o->type != OPT_END; o++) {
        char flag[160], value[240];
        flag_text(o, flag, sizeof flag);
        default_text(o, value, sizeof value);
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

// roff takes "-" for a hyphen and a leading "." or "'" for a request.
static void print_roff(const char *text) {
    if (*text == '.' || *text == '\'') fputs("\\&", stdout);
    for (; *text; text++) {
        if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '\\')
            fputs("\\e", stdout);
        else
            putchar(*text);
    }
}

static void print_roff_rows(const Option *options) {
    for (const Option *o = options; o && o->type != OPT_END; o++) {
        char flag[160], value[240];
        flag_text(o, flag, sizeof flag);
        default_text(o, value, sizeof value);
        printf(".TP\n.B ");
        print_roff(flag);
        putchar('\n');
        print_roff(o->help);
        print_roff(value);
        putchar('\n');
    }
}

void cli_print_man(const Program *program) {
    printf(".TH %s 1 \"\" \"millrace %s\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.B %s\nCOMMAND [OPTIONS] [ARGUMENTS]\n"
           ".SH COMMANDS\n",
           program->name, VERSION, program->name, program->summary, program->name);
    for (const Command *const *c = program->commands; *c; c++) {
        printf(".SS %s ", (*c)->name);
        print_roff((*c)->arguments);
        putchar('\n');
        print_roff((*c)->summary);
        putchar('\n');
        print_roff_rows((*c)->options);
        print_roff_rows(common_options);
        if ((*c)->more) print_roff_rows((*c)->more->rows);
    }
    printf(
        ".SH ENVIRONMENT\n"
        ".TP\n.B MILLRACE_ISA\nportable, avx2 or avx512: use no instruction set beyond this one\n"
        ".TP\n.B OMP_NUM_THREADS\nthreads of a training step, where the key threads is 0\n"
        ".TP\n.B TMPDIR\nfolder for temporary files\n"
        ".TP\n.B XDG_CACHE_HOME\nfolder, in place of ~/.cache, for what the trainer measures on a GPU (millrace/)\n");
    printf(".SH EXIT STATUS\n");
#define EXIT_CODE(name, code, meaning) printf(".TP\n.B %d\n%s\n", code, meaning);
#include "common/exit_codes.def"
#undef EXIT_CODE
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
