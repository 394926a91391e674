// The workers that count pieces: each has a table, which becomes a run file when it is full.
#pragma once

#include "shardtool/vocabulary/count_journal.h"
#include "tokenizer/training/piece_counter.h"

enum {
    COUNT_BATCH_BYTES = 1 << 20, // of text; more only if a document cannot be cut
    COUNT_BATCH_TEXTS = 4096
};

// A document, or a part of one that ends between two pieces.
typedef struct {
    uint64_t file, document, offset; // offset: of the part in the document
    size_t bytes;
} CountText;

typedef struct {
    struct CountWorkers *workers;
    Buffer text; // of all texts one after the other; the bytes after them are not counted
    CountText *texts;
    unsigned count;
    unsigned flushed; // the number of a table, from 1, that is to be written instead
} CountBatch;

typedef struct {
    unsigned threads; // at least 1
    uint64_t memory;  // limit in bytes, of everything but the readers of the inputs
    Pattern pattern;
    InvalidUtf8 invalid;
    uint64_t max_word;
    const char *folder; // of the run files
} CountWorkersOptions;

// 2 when the memory is too small for the workers.
int count_workers_check(const CountWorkersOptions *options);

typedef struct CountWorkers CountWorkers;
// Continues from a state. Borrows all but the state. NULL after fail().
CountWorkers *count_workers_open(const CountWorkersOptions *options, const Inputs *inputs, const CountState *state);
void count_workers_close(CountWorkers *workers); // accepts NULL

CountBatch *count_workers_batch(CountWorkers *workers); // an empty one; NULL after the error of a worker
void count_workers_submit(CountWorkers *workers);       // the batch that was returned last
int count_workers_flush(CountWorkers *workers);         // waits until all that was submitted is in run files
size_t count_workers_runs(CountWorkers *workers);       // how many there are
// Waits for the workers, then merges run files until there are at most `most`.
int count_workers_merge(CountWorkers *workers, size_t most);
void count_workers_state(CountWorkers *workers, CountState *state); // sets runs, pieces and replaced; after a flush
