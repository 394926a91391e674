// Bad lines, rows, members and files: skipped and listed while --max-bad allows it, else an error. A
// text that is null is not damage: it is always skipped and listed.
#pragma once

#include "common/file/file.h"

typedef struct {
    uint64_t max;       // number of skips allowed
    double max_share;   // of all documents and skips, 0 = `max` holds
    bool over;          // the limit was reached, which ends the run
    const char *path;   // the list is written here; NULL = nowhere
    const char *base;   // an earlier list, whose lines the new one keeps; NULL = none
    uint64_t documents; // read so far

    uint64_t count;  // skipped so far
    uint64_t nulls;  // of them, texts that are null
    char first[512]; // the error of the first
    NewFile file;    // open once something was skipped
} Skips;

int skips_parse_limit(Skips *skips, const char *text); // "N" or "P%"; 2 when it is neither

bool skips_any_allowed(const Skips *skips); // by the options

// Handles the pending error of something that could be skipped: `name`, and line or row `number` of it when `unit` is
// not NULL. Returns 0, with the error cleared and listed, when it is bad input within the limit, else -1.
int skips_add(Skips *skips, const char *name, const char *unit, uint64_t number);
// Skips and lists line or row `number` of `name`, whose text is null. -1 after fail().
int skips_add_null(Skips *skips, const char *name, const char *unit, uint64_t number);
void skips_print(const Skips *skips, Buffer *text); // appends "3 bad inputs and 1 null text, the first: ..." and a NUL
// Ends the list of a run without error: 65 when the share of skips is above the limit; commits the list.
int skips_finish(Skips *skips);
void skips_abandon(Skips *skips); // removes the list; accepts a finished or zeroed struct
