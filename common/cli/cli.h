// Command lines: parsing, help, defaults, manual page and shell completion follow from one table of options per
// command.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A whole number that the program may choose itself. "auto" sets is_auto and keeps the value, which the choice may use.
typedef struct {
    bool is_auto;
    int64_t value;
} AutoInt;

enum { STRING_LIST_MAX = 16 };
typedef struct {
    const char *items[STRING_LIST_MAX]; // borrowed, as typed
    size_t count;
} StringList;

typedef enum { OPT_END, OPT_FLAG, OPT_SIZE, OPT_INT, OPT_FLOAT, OPT_STRING, OPT_WORD, OPT_AUTO, OPT_LIST } OptionType;

// {OPT_SIZE, "shard-tokens", &shard_tokens, "N", "start a new shard after N tokens"}. The variable's initial value is
// the default. "o,output" gives -o and --output; "-" and "_" are equal in long names. If an option is given several
// times, the last one wins.
//   OPT_FLAG bool (--x, --no-x, --x=true), OPT_SIZE uint64_t (1000, 64k, 1.5GiB, 12GB: only KB to TB are decimal;
//   with the argument SEED digits alone),
//   OPT_INT int64_t, OPT_FLOAT double, OPT_STRING const char * (borrowed)
//   OPT_WORD an enum from 0: `argument` lists its words, "replace|fail|bytes"
//   OPT_AUTO AutoInt: a number from 0, or "auto"
//   OPT_LIST StringList: may be given several times, each adds a string
typedef struct {
    OptionType type;
    const char *name;
    void *value;
    const char *argument; // NULL for flags
    const char *help;
} Option;

// A row of the manual pages. A table of them ends with a row of NULL.
typedef struct {
    const char *name, *text;
    const char *commands; // those in whose pages it is, separated by spaces; NULL: all
} ManualRow;

// A title before the option `first` of a list and those that follow it. A table of them ends with a row of NULL.
typedef struct {
    const char *first, *title;
} OptionGroup;

// Options that a command parses itself, such as the keys of a configuration.
typedef struct {
    const char *name, *summary, *description; // of their manual page, PROGRAM-NAME(5)
    const ManualRow *examples;
    const Option *rows; // for help, manual page and completion, which leave out those without a help
    const OptionGroup *groups;
    // "key=value", or "key" before `next` (NULL at the end), which need not be a name of `rows`. Returns how many arguments
    // it took, or -1 after fail().
    int (*take)(const char *option, const char *next);
} MoreOptions;

typedef struct {
    const char *name, *arguments, *summary;
    const Option *options; // or NULL
    // Receives the arguments that are not options. Returns 0, an exit code, or -1 after fail().
    int (*run)(int count, char **arguments);
    const MoreOptions *more; // or NULL
} Command;

typedef struct {
    const char *name, *installed; // "trainer", "millrace-trainer"; cli_main makes `name` the one that it was called by
    const char *summary;
    const Command *const *commands; // NULL-terminated
    const ManualRow *environment;   // variables that the program reads; each table may be NULL
    const ManualRow *signals;       // that it handles
    const ManualRow *files;         // that it writes; DIR and such are arguments
    const ManualRow *descriptions;  // of commands, more than their summary
    const ManualRow *output;        // fields that commands print
    const ManualRow *examples;      // command lines, each after `millrace`; each is in its command's page
    const char *see_also;           // other pages
} Program;

// Sets the names in messages by argv[0]. cli_main calls it; a program that prints before that calls it first.
void cli_set_name(const Program *program, const char *path);

// All of main: finds the command, parses its options, runs it, checks that stdout was written, prints the error.
// Returns the exit code.
int cli_main(const Program *program, int argc, char **argv);

// Options whose values come from elsewhere, such as configuration files.
const Option *option_find(const Option *options, const char *name, size_t length); // NULL if not found
int option_set(const Option *option, const char *value); // -1 (2) when it does not parse; the caller checks ranges
// -1 (2) when a path, also of an ipc:// endpoint, begins with a "~" that the shell has left: it would be a folder.
int path_check(const char *path);
const char *option_nearest(const Option *options, const char *name); // NULL when no name is similar
void option_print(const Option *option, char *out, size_t size);     // the variable's present value
bool option_takes_path(const Option *option);                        // its argument is DIR, FILE or ENDPOINT

// The modes of a command in which options have an effect: a bit for each. A table of them ends with a row of NULL.
typedef struct {
    const char *options; // long names, separated by spaces
    unsigned modes;
} OptionModes;

// -1 (2) when an option was given that has no effect in `mode`. names: of the modes, by bit, as "on inputs".
int cli_check_mode(const OptionModes *rows, const char *const *names, unsigned mode);

// The word of an OPT_WORD list with this number.
void word_print(const char *words, unsigned number, char *out, size_t size);

int cli_refuse_terminal(void); // -1 (2) when stdout is a terminal; for commands that write binary data
