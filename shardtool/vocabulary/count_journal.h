// The journal of an unfinished count of pieces, DIR/.counting: with it the same command continues after the last line.
//
// The first line describes the run: the settings of the counts, and the inputs. Each other line is written when all
// documents before a position are counted in run files, which it lists with their checksums. Run files that the last
// line does not list are removed. As in tokenize, no line follows a bad input that was skipped, so the limit of skips
// holds for the whole count.
#pragma once

#include "shardtool/ingest/source_options.h"
#include "shardtool/pipeline/journal_line.h"
#include "tokenizer/training/piece_run.h"

#define COUNT_JOURNAL ".counting"
enum { COUNT_RUNS_MAX = 16 }; // in a line; more are merged into one before

typedef struct {
    InputPosition position; // documents before it are counted
    uint64_t documents, bytes, pieces, replaced;
    uint64_t sample_from; // documents with a smaller hash are left out (count_sample.h)
    uint64_t next_run;    // the number of the next run file
    size_t run_count;
    PieceRun runs[COUNT_RUNS_MAX];
    bool complete; // all documents were counted, and there is one run file
} CountState;

typedef struct {
    int fd;
    size_t good; // bytes of complete lines
    char folder[PATH_MAX_BYTES], path[PATH_MAX_BYTES];
    JournalPoint point;           // with .counting-window
    const SourceOptions *options; // borrowed: access points
} CountJournal;

typedef enum { COUNT_NEW, COUNT_CONTINUES, COUNT_OTHER } CountStart;

// Reads the journal in `folder`. COUNT_CONTINUES sets *state and the point; COUNT_OTHER, with a copy of its options in
// `other`, when its run has other options or inputs and has counted something. -1 after fail().
int count_journal_load(CountJournal *journal, const char *folder, const char *params, const Inputs *inputs,
                       CountState *state, Buffer *other);
// Opens it for lines, empty with a first line unless it continues, and removes the run files that *state does not list.
int count_journal_open(CountJournal *journal, const char *params, const Inputs *inputs, const CountState *state,
                       bool continues, const SourceOptions *options);
int count_journal_add(CountJournal *journal, const CountState *state);
void count_journal_close(CountJournal *journal); // accepts a zeroed struct
void count_journal_remove(const char *folder);   // with all run files; after the vocabulary was written
