// Parses argv into a command's variables and runs the command.
#include "common/cli/cli.h"
#include "common/cli/cli_help.h"
#include "common/cli/nearest.h"
#include "common/cli/successors.h"
#include "common/cli/version.h"
#include "common/err.h"
#include "common/json_read.h"
#include "common/log.h"
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static bool same_name(const char *name, const char *given, size_t length) {
    if (name[0] && name[1] == ',') { // "o,output"
        if (length == 1) return name[0] == given[0];
        name += 2;
    }
    if (strlen(name) != length) return false;
    for (size_t i = 0; i < length; i++)
        if (!nearest_same(name[i], given[i])) return false;
    return true;
}

const Option *option_find(const Option *options, const char *name, size_t length) {
    for (const Option *o = options; o && o->type != OPT_END; o++)
        if (same_name(o->name, name, length)) return o;
    return NULL;
}

static void add_names(Nearest *nearest, const Option *options) {
    for (const Option *o = options; o && o->type != OPT_END; o++)
        nearest_add(nearest, option_long_name(o), strlen(option_long_name(o)));
}

const char *option_nearest(const Option *options, const char *name) {
    Nearest nearest = nearest_begin(name);
    add_names(&nearest, options);
    return nearest.name;
}

// The power that a unit stands for, or 0: k, K, KiB and Ki are 1024, KB is 1000, and so on to T. Of a number of things,
// which are no bytes, all are binary.
static double unit_scale(const char *unit, bool of_things) {
    static const char letters[] = "kmgt";
    if (!*unit) return 1;
    const char *letter = strchr(letters, tolower((unsigned char)*unit)), *rest = unit + (letter != NULL);
    const bool in_bytes = !strcasecmp(rest, "B"), decimal = in_bytes && !of_things;
    if (*rest && !in_bytes && strcasecmp(rest, "iB") && (!letter || strcasecmp(rest, "i"))) return 0;
    return letter ? pow(decimal ? 1000 : 1024, (double)(letter - letters + 1)) : 1;
}

// Manifests hold seeds as signed integers of JSON.
static int set_seed(const Option *option, const char *value) {
    char *end;
    const uint64_t number = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end || errno || number > INT64_MAX)
        return fail(EX_USAGE, "'%s' is not a whole number from 0 to %lld", value, (long long)INT64_MAX);
    *(uint64_t *)option->value = number;
    return 0;
}

static int set_size(const Option *option, const char *value) {
    char *end;
    double number = strtod(value, &end);
    const bool is_number = option->argument && !strcmp(option->argument, "N"); // a configuration key has no argument
    const double scale = unit_scale(end, is_number);
    const bool decimal = strspn(value, "0123456789.eE+-") >= (size_t)(end - value); // strtod reads 0x10 too
    number *= scale;
    if (end == value || !decimal || scale == 0 || !isdigit((unsigned char)*value) ||
        !(number >= 0 && number < 0x1p63) || (is_number && number != (double)(uint64_t)number))
        return fail(EX_USAGE, "'%s' is not a %s", value,
                    is_number ? "number such as 4 or 64k" : "size such as 4096, 64k, 1.5GiB or 12GB");
    if ((number > 0 && number < 1) || (scale == 1 && number != floor(number)))
        return fail(EX_USAGE, "'%s' is not a whole number of bytes: the unit is missing, as in %gGiB", value, number);
    *(uint64_t *)option->value = (uint64_t)number;
    if (scale == 1 && !strpbrk(value, ".eE"))
        *(uint64_t *)option->value = strtoull(value, NULL, 10); // exact beyond 2^53
    return 0;
}

static const char *word_start(const char *words, unsigned number) {
    while (number-- && *words) {
        words += strcspn(words, "|");
        words += *words == '|';
    }
    return words; // "" past the last
}

void word_print(const char *words, unsigned number, char *out, size_t size) {
    const char *word = word_start(words, number);
    snprintf(out, size, "%.*s", (int)strcspn(word, "|"), word);
}

static int set_word(const Option *option, const char *value) {
    size_t length = strlen(value);
    const char *word = option->argument;
    Nearest nearest = nearest_begin(value);
    for (unsigned number = 0;; number++) {
        size_t word_length = strcspn(word, "|");
        if (word_length == length && !memcmp(word, value, length)) return *(unsigned *)option->value = number, 0;
        nearest_add(&nearest, word, word_length);
        if (!word[word_length]) break;
        word += word_length + 1;
    }
    if (!nearest.name) return fail(EX_USAGE, "'%s' is not one of %s", value, option->argument);
    return fail(EX_USAGE, "'%s' is not one of %s: did you mean %.*s?", value, option->argument, (int)nearest.length,
                nearest.name);
}

int path_check(const char *path) {
    static const char scheme[] = "ipc://";
    if (!strncmp(path, scheme, sizeof scheme - 1)) path += sizeof scheme - 1;
    if (*path != '~' || (path[1] && path[1] != '/')) return 0;
    return fail(EX_USAGE, "'%s': '~' is not the home folder here: write the whole path (./%s is a folder of that name)",
                path, path);
}

bool option_takes_path(const Option *option) {
    static const char *const arguments[] = {"DIR", "FILE", "ENDPOINT"};
    for (size_t i = 0; option->argument && i < sizeof arguments / sizeof *arguments; i++)
        if (!strcmp(option->argument, arguments[i])) return true;
    return false;
}

int option_set(const Option *option, const char *value) {
    char *end;
    errno = 0;
    switch (option->type) {
    case OPT_FLAG:
        if (!strcasecmp(value, "true") || !strcmp(value, "1")) return *(bool *)option->value = true, 0;
        if (!strcasecmp(value, "false") || !strcmp(value, "0")) return *(bool *)option->value = false, 0;
        return fail(EX_USAGE, "'%s' is neither True nor False", value);
    case OPT_SIZE:
        return option->argument && !strcmp(option->argument, "SEED") ? set_seed(option, value)
                                                                     : set_size(option, value);
    case OPT_INT: {
        long long number = strtoll(value, &end, 10);
        if (end == value || *end || errno) return fail(EX_USAGE, "'%s' is not a whole number", value);
        *(int64_t *)option->value = number;
        return 0;
    }
    case OPT_WORD:
        return set_word(option, value);
    case OPT_AUTO: {
        AutoInt *number = option->value;
        if (!strcmp(value, "auto")) return number->is_auto = true, 0;
        long long given = strtoll(value, &end, 10);
        if (end == value || *end || errno || given < 0)
            return fail(EX_USAGE, "'%s' is neither a whole number nor auto", value);
        *number = (AutoInt){false, given};
        return 0;
    }
    case OPT_FLOAT: {
        double number = strtod(value, &end);
        if (end > value && !strcmp(end, "%"))
            return fail(EX_USAGE, "'%s' is a percentage: write %g", value, number / 100);
        if (end == value || *end || !isfinite(number)) return fail(EX_USAGE, "'%s' is not a finite number", value);
        *(double *)option->value = number;
        return 0;
    }
    case OPT_LIST: {
        StringList *list = option->value;
        if (list->count == STRING_LIST_MAX) return fail(EX_USAGE, "given more than %d times", STRING_LIST_MAX);
        list->items[list->count++] = value;
        return 0;
    }
    default:
        if (option_takes_path(option) && path_check(value) < 0) return -1;
        *(const char **)option->value = value;
        return 0;
    }
}

void option_print(const Option *option, char *out, size_t size) {
    switch (option->type) {
    case OPT_FLAG:
        snprintf(out, size, "%s", *(bool *)option->value ? "True" : "False");
        break;
    case OPT_SIZE:
        snprintf(out, size, "%llu", (unsigned long long)*(uint64_t *)option->value);
        break;
    case OPT_INT:
        snprintf(out, size, "%lld", (long long)*(int64_t *)option->value);
        break;
    case OPT_WORD:
        word_print(option->argument, *(unsigned *)option->value, out, size);
        break;
    case OPT_AUTO:
        if (((AutoInt *)option->value)->is_auto)
            snprintf(out, size, "auto");
        else
            snprintf(out, size, "%lld", (long long)((AutoInt *)option->value)->value);
        break;
    case OPT_FLOAT:
        snprintf(out, size, "%g", *(double *)option->value);
        break;
    case OPT_LIST: {
        const StringList *list = option->value;
        *out = '\0';
        for (size_t i = 0; i < list->count; i++) {
            size_t used = strlen(out);
            snprintf(out + used, size - used, "%s%s", i ? ", " : "", list->items[i]);
        }
        break;
    }
    default:
        snprintf(out, size, "%s", *(const char **)option->value ? *(const char **)option->value : "");
    }
}

static const Option *given_options[64]; // each once
static size_t given_count;

static void note_given(const Option *option) {
    for (size_t i = 0; i < given_count; i++)
        if (given_options[i] == option) return;
    assert(given_count < sizeof given_options / sizeof *given_options);
    given_options[given_count++] = option;
}

// Whether `word` is one of `words`, which spaces separate.
static bool has_word(const char *words, const char *word) {
    for (size_t length; *words; words += length + (words[length] == ' '))
        if ((length = strcspn(words, " ")) == strlen(word) && !memcmp(words, word, length)) return true;
    return false;
}

int cli_check_mode(const OptionModes *rows, const char *const *names, unsigned mode) {
    for (size_t i = 0; i < given_count; i++)
        for (const OptionModes *row = rows; row->options; row++) {
            const char *name = option_long_name(given_options[i]);
            if (row->modes >> mode & 1 || !has_word(row->options, name)) continue;
            char others[200] = "";
            for (unsigned m = 0, used = 0; row->modes >> m; m++)
                if (row->modes >> m & 1)
                    used +=
                        (unsigned)snprintf(others + used, sizeof others - used, "%s%s", used ? " or " : "", names[m]);
            return fail(EX_USAGE, "--%s has no effect %s, only %s", name, names[mode], others);
        }
    return 0;
}

static const char *built_name; // of the program, also when it is installed under another one

// Fails for a name that is not an option of the command. Names of `more` options, and those that resemble one of them
// more than an option of the command, are left to it: returns 0.
static int fail_unknown(const Command *command, const char *given, size_t length) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)length, given);
    if (successor_check(SUCCESSOR_OPTION, built_name, command->name, name) < 0) return -1;
    Nearest nearest = nearest_begin(name);
    if (command->more) add_names(&nearest, command->more->rows);
    const char *more = nearest.name;
    add_names(&nearest, command->options), add_names(&nearest, common_options);
    if (command->more && nearest.name == more) return 0;
    return nearest.name ? fail(EX_USAGE, "unknown option '--%s': did you mean --%s?", name, nearest.name)
                        : fail(EX_USAGE, "unknown option '--%s' (see --help)", name);
}

// An empty name comes from a variable of a script that was not set.
static int set_given(const Option *option, const char *value) {
    const bool is_name =
        option->type == OPT_STRING && (!strcmp(option->argument, "DIR") || !strcmp(option->argument, "FILE"));
    return is_name && !*value ? fail(EX_USAGE, "its %s is empty", option->argument) : option_set(option, value);
}

// One argument that starts with "--". Returns how many arguments it took, or -1.
static int parse_long(const Command *command, const char *given, const char *next) {
    const char *equals = strchr(given, '=');
    size_t length = equals ? (size_t)(equals - given) : strlen(given);
    const Option *option = option_find(command->options, given, length);
    bool negated = false;
    if (!option && !equals && !strncmp(given, "no-", 3)) {
        option = option_find(command->options, given + 3, length - 3);
        negated = option && option->type == OPT_FLAG;
        if (!negated) option = NULL;
    }
    if (!option) return fail_unknown(command, given, length) < 0 ? -1 : command->more->take(given, next);
    note_given(option);
    if (option->type == OPT_FLAG && !equals) return *(bool *)option->value = !negated, 1;
    const char *value = equals ? equals + 1 : next;
    if (!value) return fail(EX_USAGE, "option '--%s' needs a value: %s", option_long_name(option), option->argument);
    if (set_given(option, value) < 0) return fail_in("--%s", option_long_name(option));
    return equals ? 1 : 2;
}

// "-j4", "-j 4", "-q": returns how many arguments it took, or -1.
static int parse_short(const Command *command, const char *given, const char *next) {
    const Option *option = option_find(command->options, given, 1);
    if (!option && successor_check(SUCCESSOR_OPTION, built_name, command->name, (char[]){*given, 0}) < 0) return -1;
    if (!option) return fail(EX_USAGE, "unknown option '-%s' (see --help)", given);
    note_given(option);
    if (option->type == OPT_FLAG && !given[1]) return *(bool *)option->value = true, 1;
    if (given[1] == '=')
        return fail(EX_USAGE, "'-%s' has an = behind a short option: write -%c %s", given, *given,
                    given[2] ? given + 2 : option->argument);
    const char *value = given[1] ? given + 1 : next;
    if (!value) return fail(EX_USAGE, "option '-%c' needs a value: %s", *given, option->argument);
    if (set_given(option, value) < 0) return fail_in("-%c", *given);
    return given[1] ? 1 : 2;
}

// Leaves the positional arguments at argv[0..*count). Returns 0, -1, or 1 when help was printed.
static int parse(const Program *program, const Command *command, int *count, char **argv) {
    int kept = 0;
    bool arguments_only = false; // after "--"
    for (int i = 0; i < *count;) {
        char *given = argv[i];
        const char *next = i + 1 < *count ? argv[i + 1] : NULL;
        int taken = 1;
        if (arguments_only || given[0] != '-' || !given[1])
            argv[kept++] = given;
        else if (!strcmp(given, "--"))
            arguments_only = true;
        else if (!strcmp(given, "--help") || !strncmp(given, "--help=", 7) || !strcmp(given, "-h"))
            return cli_print_help(program, command), 1;
        else if (!strcmp(given, "--man"))
            return cli_print_man_command(program, command), 1;
        else if (!strcmp(given, "--quiet") || !strcmp(given, "-q"))
            log_quiet = true;
        else
            taken = given[1] == '-' ? parse_long(command, given + 2, next) : parse_short(command, given + 1, next);
        if (taken < 0) return -1;
        i += taken;
    }
    *count = kept;
    return 0;
}

static const Command *command_find(const Program *program, const char *name) {
    for (const Command *const *c = program->commands; *c; c++)
        if (!strcmp((*c)->name, name)) return *c;
    if (successor_check(SUCCESSOR_COMMAND, built_name, "", name) < 0) return NULL;
    Nearest nearest = nearest_begin(name);
    for (const Command *const *c = program->commands; *c; c++) nearest_add(&nearest, (*c)->name, strlen((*c)->name));
    if (*name == '-')
        fail(EX_USAGE, "missing command before '%s' (see %s --help)", name, program->name);
    else if (nearest.name)
        fail(EX_USAGE, "unknown command '%s': did you mean %s?", name, nearest.name);
    else
        fail(EX_USAGE, "unknown command '%s' (see %s --help)", name, program->name);
    return NULL;
}

// A write to stdout that failed, as on a full disk, must not end in exit code 0.
static int check_stdout(void) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return 0;
    return errno == EPIPE ? fail(EX_IO, "stdout was closed") : fail_errno("cannot write to stdout");
}

static const MoreOptions *more_find(const Program *program, const char *name) {
    for (const Command *const *c = program->commands; *c; c++)
        if ((*c)->more && !strcmp((*c)->more->name, name)) return (*c)->more;
    return NULL;
}

// The manual page of the program, or of one of its commands or lists of keys. Returns false after fail().
static bool print_man(const Program *program, const char *name) {
    const MoreOptions *keys = name ? more_find(program, name) : NULL;
    const Command *command = name && !keys ? command_find(program, name) : NULL;
    if (name && !keys && !command) return false;
    if (command)
        cli_print_man_command(program, command);
    else
        keys ? cli_print_man_keys(program, keys) : cli_print_man(program);
    return true;
}

// Prints help, of the program or of the command `second`, version, manual page or completion if `first` requests one.
// Returns whether it did; with a `second` that is not a command, after fail().
static bool print_about(const Program *program, const char *first, const char *second) {
    if (!strcmp(first, "--help") || !strcmp(first, "-h") || !strcmp(first, "help")) {
        const Command *command = second ? command_find(program, second) : NULL;
        if (second && !command) return false;
        command ? cli_print_help(program, command) : cli_print_program(program);
    } else if (!strcmp(first, "--version") || !strcmp(first, "-V"))
        version_print(program->name);
    else if (!strcmp(first, "--man"))
        return print_man(program, second);
    else if (!strcmp(first, "--completion"))
        return cli_print_completion(program, second);
    else
        return false;
    return true;
}

// A file that is opened must not get the number of a closed standard descriptor: progress lines would be written into
// it. Reading or writing an O_PATH descriptor fails as if it were closed.
static void reserve_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_PATH) < 0) return;
}

// Help, usage and errors have the name by which the user calls the program: as it is built, as it is installed, or
// `millrace`.
void cli_set_name(const Program *program, const char *path) {
    const char *slash = path ? strrchr(path, '/') : NULL, *last = slash ? slash + 1 : path;
    const bool called = last && (!strcmp(last, program->installed) || !strcmp(last, "millrace"));
    log_called = called ? last : program->name;
    log_program = called && strcmp(last, "millrace") != 0 ? last : program->name;
}

// The programs end with a segmentation fault on a smaller stack. Threads have the same limit.
static int check_stack(void) {
    enum { STACK_BYTES_MIN = 512 << 10 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) || limit.rlim_cur >= STACK_BYTES_MIN) return 0;
    return fail(EX_LIMIT, "the stack is limited to %llu KiB: raise the limit by `ulimit -s` to %d or more",
                (unsigned long long)limit.rlim_cur >> 10, STACK_BYTES_MIN >> 10);
}

int cli_main(const Program *built, int argc, char **argv) {
    reserve_descriptors();
    json_end_without_memory();
    Program called = *built;
    built_name = built->name;
    const Program *program = &called;
    cli_set_name(built, argc > 0 ? argv[0] : NULL);
    called.name = log_called;
    const char *first = argc > 1 ? argv[1] : "";
    int status = -1;
    const Command *command = NULL;
    if (print_about(program, first, argc > 2 ? argv[2] : NULL))
        status = EX_DONE;
    else if (!*first)
        fail(EX_USAGE, "missing command (see %s --help)", program->name);
    else if (!err_code()) // of help
        command = command_find(program, first);
    if (command && check_stack() == 0) {
        int count = argc - 2;
        status = parse(program, command, &count, argv + 2);
        if (status == 0)
            status = command->run(count, argv + 2);
        else if (status == 1)
            status = EX_DONE;
    }
    if (status >= 0 && check_stdout() < 0) status = -1;
    if (status >= 0) return status;
    log_error(command ? command->name : "", err_text());
    return err_code() ? err_code() : EX_BUG;
}

int cli_refuse_terminal(void) {
    if (!isatty(STDOUT_FILENO)) return 0;
    return fail(EX_USAGE, "the output is binary: redirect it to a file or a pipe");
}
