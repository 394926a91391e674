// Lines and progress on stderr.
#include "common/log.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TERMINAL_NS = 200000000, PLAIN_S = 10 };
const char *log_program = "millrace", *log_called = "millrace";
bool log_quiet, log_silent;
static bool with_times;
static bool line_stands; // the cursor is at the end of a progress line, which has no newline yet

uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// A URL in quotes may have quotes and blanks in it: a quote ends it if a sentence continues.
static size_t length_of_url(const char *at, bool quoted) {
    size_t length = strcspn(at, "' ");
    while (quoted && at[length] && !(at[length] == '\'' && strchr(" ,:;)'", at[length + 1])))
        length += 1 + strcspn(at + length + 1, "' ");
    return length;
}

static void cut(char *from, const char *to) { memmove(from, to, strlen(to) + 1); }

// `at` is after the "://" of a URL.
static void hide_secrets(const char *text, char *at) {
    for (size_t i = strcspn(at, "/?# "); i-- > 0;)
        if (at[i] == '@') {
            cut(at, at + i + 1);
            break;
        }
    const char *scheme = at - strlen("://");
    while (scheme > text && isalnum((unsigned char)scheme[-1])) scheme--;
    if (strncmp(scheme, "http", 4) != 0) return; // others have no query: it is a part of the name
    const size_t length = length_of_url(at, scheme > text && scheme[-1] == '\'');
    char *query = memchr(at, '?', length);
    if (query) cut(query, at + length);
}

void text_printable(char *text) {
    for (char *at = text; (at = strstr(at, "://"));) hide_secrets(text, at += strlen("://"));
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7F) *text = '?';
}

// systemd.exec(5): JOURNAL_STREAM is DEVICE:INODE of the journal.
static bool is_journal(int fd) {
    const char *journal = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;
    return journal && sscanf(journal, "%llu:%llu", &device, &inode) == 2 && fstat(fd, &st) == 0 &&
           st.st_dev == device && st.st_ino == inode;
}

void log_add_times(void) { with_times = !is_journal(STDERR_FILENO); }

// In the format of ISO 8601, with a space after it: 2026-11-23T18:07:05.123Z
static void print_time(char out[40]) {
    struct timespec now;
    struct tm utc;
    char seconds[24];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(out, 40, "%s.%03dZ ", seconds, (int)(now.tv_nsec / 1000000));
}

static void print(const char *name, const char *command, const char *text) {
    if (log_silent) return;
    char now[40] = "";
    if (with_times) print_time(now);
    fprintf(stderr, "%s%s%s%s%s: %s\n", line_stands ? "\r\033[K" : "", now, name, *command ? " " : "", command, text);
    line_stands = false;
}

void log_error(const char *command, const char *text) { print(log_called, command, text); }

static void print_line(const char *format, va_list arguments) {
    char text[2048];
    vsnprintf(text, sizeof text, format, arguments);
    text_printable(text);
    print(log_program, "", text);
}

void log_line(const char *format, ...) {
    if (log_quiet) return;
    va_list arguments;
    va_start(arguments, format);
    print_line(format, arguments);
    va_end(arguments);
}

void log_warn(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    print_line(format, arguments);
    va_end(arguments);
}

void progress_start(Progress *progress, const char *verb, const char *unit, uint64_t total) {
    *progress = (Progress){.verb = verb, .unit = unit, .total = total, .started_ns = clock_ns()};
    progress->drawn_ns = progress->started_ns;
}

static void draw(const Progress *progress, uint64_t now, bool last) {
    char amount[16], rate[16], left[40] = "", share[16] = "", counts[80] = "";
    double seconds = (double)(now - progress->started_ns) * 1e-9;
    double per_second = seconds > 0 ? (double)progress->done / seconds : 0;
    if (progress->total && progress->done <= progress->total && !last) { // pipes are not in the total
        double rest = per_second > 0 ? (double)(progress->total - progress->done) / per_second : 0;
        unsigned eta = (unsigned)(rest + 0.5);
        snprintf(share, sizeof share, " %3.0f %%", 100.0 * (double)progress->done / (double)progress->total);
        snprintf(left, sizeof left, ", %u:%02u:%02u left", eta / 3600, eta / 60 % 60, eta % 60);
    }
    for (size_t i = 0; i < sizeof progress->counts / sizeof *progress->counts; i++) {
        size_t used = strlen(counts);
        char count[16];
        if (progress->counts[i].name)
            snprintf(counts + used, sizeof counts - used, ", %s%s",
                     human_count(count, (double)progress->counts[i].count), progress->counts[i].name);
    }
    bool terminal = isatty(STDERR_FILENO);
    fprintf(stderr, "%s%s: %s%s %s%s, %s%s/s%s%s%s", terminal ? "\r\033[K" : "", log_program, progress->verb, share,
            human_count(amount, (double)progress->done), progress->unit, human_count(rate, per_second), progress->unit,
            counts, left, terminal && !last ? "" : "\n");
    fflush(stderr);
    line_stands = terminal && !last;
}

void progress_update(Progress *progress, uint64_t done) {
    progress->done = done;
    if (log_quiet) return;
    uint64_t now = clock_ns();
    uint64_t wait = isatty(STDERR_FILENO) ? TERMINAL_NS : PLAIN_S * 1000000000ull;
    if (now - progress->drawn_ns < wait) return;
    progress->drawn_ns = now;
    draw(progress, now, false);
}

void progress_finish(Progress *progress) {
    if (line_stands) draw(progress, clock_ns(), true);
}

const char *human_count(char out[16], double value) {
    const char *units[] = {"", "k", "M", "G", "T"};
    int unit = 0;
    while (value >= 1000 && unit < 4) value /= 1000, unit++;
    snprintf(out, 16, value < 10 && unit ? "%.2f %s" : value < 100 && unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return out;
}

const char *human_time(char out[16], double seconds) {
    static const struct {
        double most, unit; // of the times that have this unit, in seconds
        const char *form;
    } units[] = {{60, 1, "%.0f s"},
                 {3600, 60, "%.1f min"},
                 {3.6e6, 3600, "%.1f h"}, // thousand hours
                 {730 * 86400.0, 86400, "%.0f days"},
                 {1e300, 365.25 * 86400, "%.3g years"}};
    size_t i = 0;
    while (seconds >= units[i].most && i < sizeof units / sizeof *units - 1) i++;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(out, 16, units[i].form, seconds / units[i].unit);
#pragma GCC diagnostic pop
    return out;
}

const char *human_bytes(char out[16], double value) {
    const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (value >= 1024 && unit < 4) value /= 1024, unit++;
    snprintf(out, 16, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return out;
}
