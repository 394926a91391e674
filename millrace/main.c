// millrace: `millrace COMMAND` starts the program beside it that has this command, as git does. What concerns all
// programs (help, manual page, completion) each of them prints for itself, in turn.
#include "common/cli/commands.h"
#include "common/cli/nearest.h"
#include "common/cli/successors.h"
#include "common/cli/version.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include <errno.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { // a second command of one name does not compile
#define ONCE(name) COMMAND_##name,
    SHARDTOOL_COMMANDS(ONCE) LOADER_COMMANDS(ONCE) TRAINER_COMMANDS(ONCE)
};

#define NAME(name) #name,
static const struct {
    const char *name, *completion; // of its functions for shells
    const char *page;              // a manual page beside those of its commands, or NULL
    const char *const *commands;   // NULL-terminated, with "_" where a command line has "-"
} programs[] = {
    {"shardtool", "_shardtool", NULL, (const char *const[]){SHARDTOOL_COMMANDS(NAME) NULL}},
    {"loader", "_millrace_loader", NULL, (const char *const[]){LOADER_COMMANDS(NAME) NULL}},
    {"trainer", "_millrace_trainer", "config", (const char *const[]){TRAINER_COMMANDS(NAME) NULL}},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static const char *dashed(const char *name) {
    static char out[32];
    size_t i = 0;
    for (; name[i] && i < sizeof out - 1; i++) out[i] = name[i] == '_' ? '-' : name[i];
    out[i] = '\0';
    return out;
}

// The name of the program that has a command or a manual page, or NULL after fail().
static const char *program_of(const char *word, bool page) {
    Nearest nearest = nearest_begin(word);
    for (size_t i = 0; i < PROGRAMS; i++) {
        if (page && programs[i].page && !strcmp(word, programs[i].page)) return programs[i].name;
        for (const char *const *name = programs[i].commands; *name; name++) {
            if (!strcmp(word, dashed(*name))) return programs[i].name;
            nearest_add(&nearest, *name, strlen(*name));
        }
    }
    for (size_t i = 0; i < PROGRAMS; i++)
        if (successor_check(SUCCESSOR_COMMAND, programs[i].name, "", word) < 0) return NULL;
    if (*word == '-')
        fail(EX_USAGE, "missing command before '%s' (see millrace --help)", word);
    else if (nearest.name)
        fail(EX_USAGE, "unknown command '%s': did you mean %s?", word, dashed(nearest.name));
    else
        fail(EX_USAGE, "unknown command '%s' (see millrace --help)", word);
    return NULL;
}

// Returns only after fail().
static int become(const char *program, char **argv) {
    char path[PATH_MAX_BYTES];
    if (!program || program_find(path, program) < 0) return -1;
    execv(path, argv);
    return fail_errno("cannot run '%s'", path);
}

// Runs each program with these two arguments. Returns 0, the exit code of one that failed, or -1.
static int print_parts(const char *first, const char *second) {
    for (size_t i = 0; i < PROGRAMS; i++) {
        const char *const argv[] = {"millrace", first, second, NULL};
        char path[PATH_MAX_BYTES];
        int status;
        pid_t pid;
        if (program_find(path, programs[i].name) < 0) return -1;
        if (fflush(stdout)) break;
        errno = posix_spawn(&pid, path, NULL, NULL, (char *const *)argv, environ);
        if (errno || TEMP_FAILURE_RETRY(waitpid(pid, &status, 0)) < 0) return fail_errno("cannot run '%s'", path);
        if (status) return WIFEXITED(status) ? WEXITSTATUS(status) : EX_BUG;
    }
    return 0;
}

static int print_help(void) {
    printf("usage: millrace COMMAND [OPTIONS] [ARGUMENTS]\n\n");
    const int status = print_parts("--help", NULL);
    if (status) return status;
    printf("millrace COMMAND --help explains a command; --version, --man [COMMAND] and\n"
           "--completion [bash|zsh|fish] print the version, a manual page and a completion script.\n");
    return 0;
}

static int print_man(void) {
    printf(".TH millrace 1 \"%s\" \"millrace %s\"\n.nh\n.ad l\n.SH NAME\n"
           "millrace \\- trains GPTs of GPT\\-2\\(aqs size, from raw text to a model that transformers loads\n"
           ".SH SYNOPSIS\n.B millrace\nCOMMAND [OPTIONS] [ARGUMENTS]\n.SH DESCRIPTION\n"
           "Starts the program beside it that has the command, and becomes this program. Signals and exit codes are "
           "those of that program.\n.SH COMMANDS\n",
           version_date, version);
    const int status = print_parts("--man", NULL);
    if (status) return status;
    printf(
        ".SH EXIT STATUS\nThat of the command; 66 if its program is not beside\n.BR millrace .\n"
        ".SH SEE ALSO\nshardtool(1), millrace\\-loader(1), millrace\\-trainer(1), millrace\\-config(5), millrace\\-shard(5)\n");
    return 0;
}

static void print_commands(size_t program, const char *between) {
    const char *const *first = programs[program].commands;
    for (const char *const *name = first; *name; name++) printf("%s%s", name == first ? "" : between, dashed(*name));
}

// The parts are the functions that complete the arguments of one program's commands. fish needs no more.
static int print_completion(const char *shell) {
    const int status = print_parts("--completion", shell);
    const bool zsh = shell && !strcmp(shell, "zsh");
    if (status || (shell && !strcmp(shell, "fish"))) return status;
    printf("_millrace() {\n");
    if (zsh) {
        printf("    if ((CURRENT == 2)); then\n        local none=1\n");
        for (size_t i = 0; i < PROGRAMS; i++) printf("        %s && none=0\n", programs[i].completion);
        printf("        return none\n    fi\n");
    }
    printf("    case %s in\n", zsh ? "$words[2]" : "${COMP_WORDS[1]}");
    for (size_t i = 0; i < PROGRAMS; i++) {
        printf("    ");
        print_commands(i, "|");
        printf(") %s ;;\n", programs[i].completion);
    }
    printf("    esac\n");
    if (zsh) return printf("}\n_millrace \"$@\"\n"), 0;
    printf("    [ \"$COMP_CWORD\" != 1 ] || COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < PROGRAMS; i++) printf(" "), print_commands(i, " ");
    printf("' -- \"${COMP_WORDS[1]}\"))\n}\ncomplete -o default -F _millrace millrace\n");
    return 0;
}

// Returns the exit code, or -1 after fail().
static int run(const char *first, const char *second, char **argv) {
    const bool help = !strcmp(first, "--help") || !strcmp(first, "-h") || !strcmp(first, "help");
    const bool man = !strcmp(first, "--man");
    if ((help || man) && second) return become(program_of(second, man), argv);
    if (help || !*first) {
        const int status = print_help();
        return status || help ? status : EX_USAGE;
    }
    if (man) return print_man();
    if (!strcmp(first, "--completion")) return print_completion(second);
    if (strcmp(first, "--version") && strcmp(first, "-V")) return become(program_of(first, false), argv);
    version_print("millrace");
    return EX_DONE;
}

int main(int argc, char **argv) {
    int status = run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : NULL, argv);
    if (status >= 0 && (fflush(stdout) || ferror(stdout))) status = fail_errno("cannot write to stdout");
    if (status >= 0) return status;
    log_error("", err_text());
    return err_code();
}
