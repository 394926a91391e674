// Human-readable lines and progress, on stderr. Programs write their data to stdout or to files only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

uint64_t clock_ns(void); // CLOCK_MONOTONIC

// Before each line: the program that prints it. Before the error that ends it: the name that the user typed. cli_main
// sets both.
extern const char *log_program, *log_called;
extern bool log_quiet;  // --quiet: no log_line, no progress
extern bool log_silent; // nothing at all: another process prints the same

// Replaces control characters by '?': a name from a file system must neither begin a line nor reach the terminal. All
// lines and errors are passed through it. The parts of URLs that can hold secrets are removed: queries and a user's
// name and password.
void text_printable(char *text);

// From here on, lines and errors begin with the time (UTC), for programs that run for long. Not if stderr is the
// journal of systemd, which has the time of each line.
void log_add_times(void);

// Prints "program: sentence". A progress line on the terminal is erased first; the next update draws it again below.
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Same, but also under --quiet, for messages that must not be missed.
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Prints "called command: text", also under --quiet; `command` may be "". For cli_main and die, which print the error
// that ends the program; everything else calls fail().
void log_error(const char *command, const char *text);

// One line with rate and remaining time. On a terminal it is redrawn in place every 0.2 s, else a plain line is printed
// every 10 s. Used by one thread.
typedef struct {
    const char *verb; // "tokenizing"
    const char *unit; // "B", "tok"
    uint64_t total;   // in units; 0 = unknown
    uint64_t done, started_ns, drawn_ns;
    struct {
        const char *name; // "documents"; NULL = none
        uint64_t count;
    } counts[2]; // printed after the rate; the caller sets them
} Progress;
void progress_start(Progress *progress, const char *verb, const char *unit, uint64_t total);
void progress_update(Progress *progress, uint64_t done);
// Call it once, also after an error: redraws a line that is on the terminal with the average rate and ends it.
void progress_finish(Progress *progress);

// "document%s": the ending of a noun after a count.
#define PLURAL(count) ((count) == 1 ? "" : "s")

const char *human_time(char out[16], double seconds); // 45 s, 12.5 min, 3.2 h, 60 days, 4.5 years
const char *human_count(char out[16], double value);  // 1234567 -> "1.23 M"
const char *human_bytes(char out[16], double value);  // 12133282611 -> "11.3 GiB"
