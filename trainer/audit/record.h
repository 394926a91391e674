// The record of a run: the lines of its metrics.jsonl, read without trust.
#pragma once

#include "common/file/file.h"

// The kind of a line, by its first member after the step.
typedef enum {
    LINE_STEP,       // a result of the run, as those up to LINE_PASSED: a replay gives the same text
    LINE_EVALUATION, //
    LINE_SPIKE,      //
    LINE_DATASET,    //
    LINE_PASSED,     //
    LINE_PROCESS,    // a process begins or resumes the run, with this configuration
    LINE_ROLLED_BACK,
    LINE_COOLDOWN,
    LINE_NOTE, // about the time and the disk: a replay gives other numbers
} LineKind;

typedef struct {
    LineKind kind;
    uint64_t step;
    Bytes text, members; // members: all but the step, as `, "KEY": VALUE, "KEY": VALUE}`
} RecordLine;

typedef struct {
    char path[PATH_MAX_BYTES];
    Bytes text;
    uint64_t last_step; // of the last step line; 0: no step line
} Record;

int record_open(Record *record, const char *run); // 66 without a metrics.jsonl, 65 when its end is damaged
void record_close(Record *record);                // accepts a zeroed struct

// Removes the first line from `rest`. 1, 0 at the end, -1 (65) for a line that no run writes.
int record_next(const Record *record, Bytes *rest, RecordLine *line);

// The text of a member, a string without its quotes. False: the line has no such member.
bool record_member(const RecordLine *line, const char *key, Bytes *value);
bool record_text(const RecordLine *line, const char *key, char *out, size_t size); // of a string, without its escapes
bool record_number(const RecordLine *line, const char *key, uint64_t *value);      // false also if it is not a number

// Compares a line with a replay's: all members but the times. False: `key`, `recorded` and `given` name the first
// that differs; an empty text is a member that is not there.
typedef struct {
    Bytes key, recorded, given;
} LineDifference;
bool record_same(const RecordLine *recorded, const RecordLine *given, LineDifference *difference);
// A line as a run writes it, without its end; and one that a replay has written.
void record_print_line(Buffer *out, uint64_t step, Bytes members);
void record_print_compared(Buffer *out, const RecordLine *line); // without the members that are not compared
int record_parse(RecordLine *line, Bytes text);

// The lines that hold for a step: its own, and the last ones before it of the process and of the dataset. -1 after
// fail(): 66 when there is no such step.
typedef struct {
    RecordLine own, process, dataset;
} RecordStep;
int record_find(const Record *record, uint64_t step, RecordStep *found);
