// Sorts records of two numbers by the first with bounded memory: each goes to the bucket of its key, a temporary file
// without a name; then the buckets are sorted in memory in order, the next ones in threads while one is read.
#pragma once

#include <stdint.h>

typedef struct {
    uint64_t key, value;
} SortRecord;

typedef struct RecordSort RecordSort;

// The most memory that `records` records need in a bucket, for a check before the work: there are 256 buckets.
uint64_t record_sort_least_memory(uint64_t records);

typedef struct {
    uint64_t records;      // about as many; more than that exceed the memory
    uint64_t keys, values; // all are below; 0: below 2^64. The fewer, the less a record takes on disk
} RecordLimits;

// Keys should be spread evenly: `memory` is for the buckets that are sorted or read, one and up to one more for each
// thread (0: as many as cores). If all records fit in it no file is written. The files are in `folder`, NULL: $TMPDIR
// or /tmp. NULL after fail().
RecordSort *record_sort_open(const char *folder, const RecordLimits *limits, uint64_t memory, unsigned threads);
void record_sort_close(RecordSort *sort); // accepts NULL

int record_sort_add(RecordSort *sort, SortRecord record);

// The records in ascending order of keys, equal keys in the order in which they were added: 1, 0 after the last, -1
// after fail(). No record is added after the first call. The space of a bucket on disk is free when it has been read.
int record_sort_next(RecordSort *sort, SortRecord *record);
