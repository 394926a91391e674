// Help from the option tables, wrapped to the width of the terminal.
#include "common/cli/cli_help.h"
#include "common/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void option_flag(const Option *option, char *out, size_t size) {
    const char *name = option_long_name(option), *argument = option->argument ? option->argument : "";
    char letter[8] = "";
    if (name > option->name) snprintf(letter, sizeof letter, "-%c, ", *option->name);
    snprintf(out, size, "%s--%s%s%s", letter, name, *argument ? " " : "", argument);
}

// A size that is a whole number of a unit: 256MiB.
static bool print_size(const Option *option, char *out, size_t size) {
    if (option->type != OPT_SIZE || !option->argument || strcmp(option->argument, "SIZE")) return false;
    static const char *const units[] = {"GiB", "MiB", "KiB"};
    const uint64_t bytes = *(uint64_t *)option->value;
    for (unsigned i = 0; i < 3; i++) {
        const unsigned shift = 30 - 10 * i;
        if (bytes && bytes >> shift << shift == bytes)
            return snprintf(out, size, "%llu%s", (unsigned long long)(bytes >> shift), units[i]) > 0;
    }
    return false;
}

void option_default(const Option *option, char *out, size_t size) {
    char value[220]; // room for escapes
    if (!print_size(option, value, sizeof value)) option_print(option, value, 200);
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

const char *option_long_name(const Option *option) {
    return option->name[0] && option->name[1] == ',' ? option->name + 2 : option->name;
}

static bool has_size(const Option *options) {
    for (const Option *o = options; o && o->type != OPT_END; o++)
        if (o->type == OPT_SIZE && (!o->argument || !strcmp(o->argument, "SIZE"))) return true;
    return false;
}

const char *command_size_help(const Command *command) {
    return has_size(command->options) || (command->more && has_size(command->more->rows)) ? SIZE_HELP : NULL;
}

const char *key_value_name(const Option *key) {
    switch (key->type) {
    case OPT_FLAG:
        return "True|False";
    case OPT_INT:
        return "INTEGER";
    case OPT_AUTO:
        return "INTEGER|auto";
    case OPT_FLOAT:
        return "NUMBER";
    case OPT_SIZE:
        return "SIZE";
    default:
        return !key->argument ? "TEXT" : strchr(key->argument, '|') ? "WORD" : key->argument;
    }
}

void key_help(const Option *key, char *out, size_t size) {
    size_t used = (size_t)snprintf(out, size, "%s", key->help);
    if (!key->argument || (key->type == OPT_STRING && !strchr(key->argument, '|'))) return;
    used += (size_t)snprintf(out + used, size - used, " (");
    for (const char *at = key->argument; *at && used + 4 < size; at++)
        used += (size_t)(*at == '|' ? snprintf(out + used, size - used, " | ")
                                    : snprintf(out + used, size - used, "%c", *at));
    snprintf(out + used, size - used, ")");
}

const char *key_title(const MoreOptions *keys, const Option *key) {
    for (const OptionGroup *group = keys->groups; group && group->first; group++)
        if (!strcmp(group->first, key->name)) return group->title;
    return NULL;
}

// Columns of the terminal, of $COLUMNS if stdout is not a terminal, or 100.
static size_t line_width(void) {
    enum { LEAST = 40, MOST = 120, USUAL = 100 };
    struct winsize size = {0};
    const char *columns = getenv("COLUMNS");
    long width = columns ? strtol(columns, NULL, 10) : USUAL;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col) width = size.ws_col;
    return width < LEAST ? LEAST : width > MOST ? MOST : (size_t)width;
}

// Prints a text from column `at` on, with further lines from column `indent` on.
static void print_text(size_t at, size_t indent, const char *text) {
    const size_t width = line_width();
    printf("%*s", (int)(at < indent ? indent - at : 0), "");
    if (at < indent) at = indent;
    for (size_t length; *text; text += length) {
        length = strcspn(text + 1, " ") + 1; // a word with the space before it
        if (at + length > width && at > indent) printf("\n%*s", (int)indent, ""), at = indent;
        const size_t skipped = at == indent && *text == ' ';
        printf("%.*s", (int)(length - skipped), text + skipped);
        at += length - skipped;
    }
    printf("\n");
}

// A label at column 2 and a text at `indent`.
static void print_row(const char *label, size_t indent, const char *text) {
    const size_t at = 2 + strlen(label);
    printf("  %s%s", label, at < indent ? "" : "\n");
    print_text(at < indent ? at : 0, indent, text);
}

bool cli_is_part(const Program *program) { return !strcmp(program->name, "millrace"); }

void cli_print_program(const Program *program) {
    const bool part = cli_is_part(program);
    char text[400];
    snprintf(text, sizeof text, "%s: %s", log_program, program->summary);
    print_text(0, 0, text);
    if (!part) printf("\nusage: %s COMMAND [OPTIONS] [ARGUMENTS]\n\n", program->name);
    for (const Command *const *c = program->commands; *c; c++) print_row((*c)->name, 19, (*c)->summary);
    printf("\n");
    if (part) return;
    snprintf(
        text, sizeof text,
        "%s COMMAND --help explains a command; --version, --man [COMMAND] and --completion [bash|zsh|fish] print the "
        "version, a manual page and a completion script.",
        program->name);
    print_text(0, 0, text);
}

enum { OPTION_INDENT = 29 };

static void print_options(const Option *options) {
    for (const Option *o = options; o && o->type != OPT_END; o++) {
        char flag[160], value[240], text[1200];
        option_flag(o, flag, sizeof flag);
        option_default(o, value, sizeof value);
        snprintf(text, sizeof text, "%s%s", o->help, value);
        print_row(flag, OPTION_INDENT, text);
    }
}

static void print_keys(const MoreOptions *keys) {
    printf("\n");
    print_text(0, 0, "keys, in configuration files (n_layer = 12) and as flags (--n_layer=12 or --n_layer 12)");
    for (const Option *key = keys->rows; key->type != OPT_END; key++) {
        char label[160], value[240], text[1200];
        const char *title = key_title(keys, key);
        if (!*key->help) continue;
        if (title) printf("\n%s:\n", title);
        snprintf(label, sizeof label, "%s = %s", key->name, key_value_name(key));
        key_help(key, text, sizeof text);
        option_default(key, value, sizeof value);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s", value);
        print_row(label, OPTION_INDENT, text);
    }
}

static void print_examples(const Program *program, const Command *command) {
    const size_t length = strlen(command->name);
    bool any = false;
    for (const ManualRow *row = program->examples; row && row->name; row++) {
        char line[400];
        if (strncmp(row->name, command->name, length) || (row->name[length] && row->name[length] != ' ')) continue;
        printf("%s", any ? "" : "\nexamples:\n");
        snprintf(line, sizeof line, "%s %s", program->name, row->name);
        print_row(line, 6, row->text);
        any = true;
    }
}

void cli_print_help(const Program *program, const Command *command) {
    char usage[240];
    snprintf(usage, sizeof usage, "usage: %s %s [OPTIONS]%s%s", program->name, command->name,
             *command->arguments ? " " : "", command->arguments);
    print_text(0, 0, usage);
    print_text(0, 0, command->summary);
    printf("\n");
    print_options(command->options);
    print_options(common_options);
    if (command_size_help(command)) print_row("SIZE", OPTION_INDENT, command_size_help(command));
    if (command->more) print_keys(command->more);
    print_examples(program, command);
}
