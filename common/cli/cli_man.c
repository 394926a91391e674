// Manual pages from the option tables: one for a program, one for each command, one for each list of keys.
#include "common/cli/cli_help.h"
#include "common/cli/version.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

// roff replaces some characters by others, and a leading "." or "'" begins a request.
static void print_roff(const char *text) {
    static const char *const escapes[128] = {['-'] = "\\-",   ['\\'] = "\\e",  ['"'] = "\\(dq", ['\''] = "\\(aq",
                                             ['`'] = "\\(ga", ['^'] = "\\(ha", ['~'] = "\\(ti"};
    if (*text == '.') fputs("\\&", stdout);
    for (; *text; text++) {
        const char *escape = *text > 0 ? escapes[(unsigned char)*text] : NULL;
        escape ? fputs(escape, stdout) : putchar(*text);
    }
}

// A paragraph with a label in bold.
static void print_row(const char *label, const char *text, const char *more) {
    printf(".TP\n.B ");
    print_roff(label);
    putchar('\n');
    print_roff(text);
    print_roff(more);
    putchar('\n');
}

static void print_own_page(const Program *program) {
    printf(".BR ");
    print_roff(program->installed);
    printf(" (1)");
}

// A paragraph that names the page of a command or of keys.
static void print_page_row(const char *name, int section, const char *text) {
    printf(".TP\n.BR millrace\\-%s (%d)\n", name, section);
    print_roff(text);
    putchar('\n');
}

static void print_options(const Option *options) {
    for (const Option *o = options; o && o->type != OPT_END; o++) {
        char flag[160], value[240];
        option_flag(o, flag, sizeof flag);
        option_default(o, value, sizeof value);
        print_row(flag, o->help, value);
    }
}

static bool holds_word(const char *words, const char *word) {
    const size_t length = strlen(word);
    for (; *words; words += strcspn(words, " "), words += *words == ' ')
        if (strcspn(words, " ") == length && !memcmp(words, word, length)) return true;
    return false;
}

// The rows that concern a command, or all without one.
static void print_section(const char *title, const ManualRow *rows, const Command *command) {
    bool empty = true;
    for (; rows && rows->name; rows++) {
        if (command && rows->commands && !holds_word(rows->commands, command->name)) continue;
        if (empty) printf(".SH %s\n", title);
        print_row(rows->name, rows->text, "");
        empty = false;
    }
}

// The summary of a command, and its row of descriptions if there is one.
static void print_description(const Program *program, const Command *command) {
    const ManualRow *row = program->descriptions;
    while (row && row->name && strcmp(row->name, command->name)) row++;
    printf(".SH DESCRIPTION\n");
    putchar(toupper((unsigned char)command->summary[0]));
    print_roff(command->summary + 1);
    printf(".\n");
    if (!row || !row->name) return;
    print_roff(row->text);
    putchar('\n');
}

// The command lines that begin with the command, or all without one.
static void print_examples(const Program *program, const Command *command) {
    printf(".SH EXAMPLES\n");
    for (const ManualRow *row = program->examples; row && row->name; row++) {
        char line[400], name[32];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(row->name, " "), row->name);
        if (command && strcmp(command->name, name)) continue;
        snprintf(line, sizeof line, "millrace %s", row->name);
        print_row(line, row->text, "");
    }
}

// Words are not hyphenated: a name that is broken cannot be searched or copied.
static void print_title(const char *name, int section, const char *summary) {
    printf(".TH %s %d \"%s\" \"millrace %s\"\n.nh\n.ad l\n.SH NAME\n", name, section, version_date, version);
    print_roff(name);
    printf(" \\- ");
    print_roff(summary);
    putchar('\n');
}

static void print_end(const Program *program, const Command *command) {
    if (command) print_section("OUTPUT", program->output, command);
    print_section("ENVIRONMENT", program->environment, command);
    print_section("SIGNALS", program->signals, command);
    print_section("FILES", program->files, command);
    print_examples(program, command);
    printf(".SH EXIT STATUS\n");
#define EXIT_CODE(name, code, meaning) printf(".TP\n.B %d\n%s\n", code, meaning);
#include "common/exit_codes.def"
#undef EXIT_CODE
    printf(".SH SEE ALSO\n.BR millrace (1),\n");
    if (command) print_own_page(program), printf(",\n");
    if (command && command->more) printf(".BR millrace\\-%s (5),\n", command->more->name);
    print_roff(program->see_also);
    putchar('\n');
}

void cli_print_man(const Program *program) {
    const MoreOptions *keys = NULL;
    if (cli_is_part(program)) {
        printf(".SS ");
        print_roff(program->installed);
        printf(" (1): ");
        print_roff(program->summary);
        printf("\n");
    } else {
        print_title(program->installed, 1, program->summary);
        printf(".SH SYNOPSIS\n.B ");
        print_roff(program->installed);
        printf("\nCOMMAND [OPTIONS] [ARGUMENTS]\n.SH COMMANDS\n");
    }
    for (const Command *const *c = program->commands; *c; c++) {
        print_page_row((*c)->name, 1, (*c)->summary);
        if ((*c)->more) keys = (*c)->more;
    }
    if (keys) print_page_row(keys->name, 5, keys->summary);
    if (!cli_is_part(program)) print_end(program, NULL);
}

void cli_print_man_command(const Program *program, const Command *command) {
    char name[64];
    snprintf(name, sizeof name, "millrace-%s", command->name);
    print_title(name, 1, command->summary);
    printf(".SH SYNOPSIS\n.B millrace %s\n[OPTIONS] ", command->name);
    print_roff(command->arguments);
    printf("\n");
    print_description(program, command);
    printf(".SH OPTIONS\n");
    print_options(command->options);
    print_options(common_options);
    if (command_size_help(command)) print_row("SIZE", command_size_help(command), "");
    if (command->more) {
        char text[128];
        snprintf(text, sizeof text, "a key of millrace-%s(5)", command->more->name);
        print_row("--KEY=VALUE", text, "");
    }
    print_end(program, command);
}

void cli_print_man_keys(const Program *program, const MoreOptions *keys) {
    char text[1200];
    snprintf(text, sizeof text, "millrace-%s", keys->name);
    print_title(text, 5, keys->summary);
    printf(".SH SYNOPSIS\n.B KEY = VALUE\n.SH DESCRIPTION\n");
    print_roff(keys->description);
    printf("\n.SH KEYS\n");
    for (const Option *key = keys->rows; key->type != OPT_END; key++) {
        char label[160], value[240];
        const char *title = key_title(keys, key);
        if (!*key->help) continue;
        if (title) printf(".SS %s\n", title);
        snprintf(label, sizeof label, "%s = %s", key->name, key_value_name(key));
        key_help(key, text, sizeof text);
        option_default(key, value, sizeof value);
        print_row(label, text, value);
    }
    print_section("EXAMPLES", keys->examples, NULL);
    printf(".SH SEE ALSO\n");
    print_own_page(program);
    putchar('\n');
}
