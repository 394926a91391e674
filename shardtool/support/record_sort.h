// Sorts records of 16 bytes by their key with bounded memory: each goes to the bucket of its key, a temporary file
// without a name; then the buckets are sorted in memory one after the other.
#pragma once

#include <stdint.h>

typedef struct {
    uint64_t key, value;
} SortRecord;

typedef struct RecordSort RecordSort;

// The most memory that `records` records need in a bucket, for a check before the work: there are 256 buckets.
uint64_t record_sort_least_memory(uint64_t records);

// For about `records` records, whose keys are spread evenly below `keys`, 0: below 2^64. `memory` is for one bucket; where
// keys are not spread evenly it is exceeded. The files are in `folder`, NULL: $TMPDIR or /tmp. NULL after fail().
RecordSort *record_sort_open(const char *folder, uint64_t records, uint64_t keys, uint64_t memory);
void record_sort_close(RecordSort *sort); // accepts NULL

int record_sort_add(RecordSort *sort, SortRecord record);

// The records in ascending order of keys, equal keys in the order in which they were added: 1, 0 after the last, -1 after
// fail(). No record is added after the first call. The space of a bucket on disk is free when it has been read.
int record_sort_next(RecordSort *sort, SortRecord *record);
