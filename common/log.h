// Words for people: lines and progress on stderr. Data never comes here.
#pragma once

#include <stdbool.h>
#include <stdint.h>

uint64_t clock_ns(void); // CLOCK_MONOTONIC

// "program: sentence" on stderr, unless --quiet. A progress line that stands is kept below it.
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
// The same, also under --quiet, for what must not be missed.
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

// One line that shows rate and time left: redrawn on a terminal, else a plain line every 10 s. Zeroed by
// progress_start.
typedef struct {
    const char *verb; // "tokenizing"
    const char *unit; // "B", "tok"
    uint64_t total;   // 0 = unknown
    uint64_t done, started_ns, drawn_ns;
} Progress;
void progress_start(Progress *progress, const char *verb, const char *unit, uint64_t total);
void progress_update(Progress *progress, uint64_t done);
void progress_finish(Progress *progress); // leaves the last line with the whole rate

// 1234567 -> "1.23 M"; for words only.
const char *human_count(char out[16], double value);
const char *human_bytes(char out[16], double value); // "11.3 GiB"
