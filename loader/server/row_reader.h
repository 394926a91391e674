// Copies the rows of requests out of the frame cache, and prefetches the frames of the shuffle groups that clients read
// now and will read next. Never waits: rows of frames that are not decoded yet are copied by a later call.
#pragma once

#include "loader/protocol/sampling.h"
#include "loader/protocol/wire.h"
#include "loader/server/frame_cache.h"
#include "loader/server/served.h"

typedef struct RowReader RowReader;

// All rows of a request have so many bytes.
static inline uint64_t row_bytes(const Served *served, const WireGet *get) {
    return (uint64_t)get->rows * (get->sequence_tokens + 1) * id_bytes(served->dataset.vocab_size);
}

RowReader *row_reader_open(uint64_t cache_bytes, unsigned threads); // NULL after fail()
bool row_reader_close(RowReader *reader); // as frame_cache_close, after row_reader_forget; accepts NULL
FrameCache *row_reader_cache(RowReader *reader);

// A request whose rows are being copied.
typedef struct {
    Served *served;
    WireGet get;
    uint8_t *ids;         // where the next ids go
    unsigned id_bytes;    // of an id (common/id_array.h)
    uint32_t rows, done;  // fewer rows than requested only at the end of a sequential split
    uint32_t skipped;     // ids of the current row's block before the document that begins it
    bool found;           // `skipped` is final
    uint32_t column;      // ids of the current row that have been copied
    uint32_t prefetched;  // rows whose frames have been queued
    uint64_t epoch;       // of the first row
    CachedFrame *awaited; // not decoded yet, pinned; NULL: none
    uint32_t known;       // bit i: order[i] and group[i] are set
    SampleOrder order[SOURCES_MAX + 1];
    ShuffleGroup group[SOURCES_MAX + 1];
} RowCopy;

// Starts copying to `ids`, which has room for row_bytes. Fails with 65 when the split is too short for a sample.
int row_copy_begin(RowReader *reader, RowCopy *copy, Served *served, const WireGet *get, void *ids);

// ROWS_WAIT: a frame has to be decoded. ROWS_MORE: about 1 MiB was copied, there is more to do. ROWS_FAILED: an error
// is pending, 65 (damaged) or 74 (cannot be read), which names split, shard number and frame number, but no path,
// because it goes to the trainer; copy->awaited is the frame.
typedef enum { ROWS_DONE, ROWS_WAIT, ROWS_MORE, ROWS_FAILED } RowResult;
RowResult row_copy_advance(RowReader *reader, RowCopy *copy);
void row_copy_end(RowCopy *copy);

// Queues frames that will be needed: the frames of the current and of the next group of each stream of requests.
void row_reader_prefetch(RowReader *reader);

// Forgets a dataset that has no requests. False when a decoder works on it: call it again later.
bool row_reader_forget(RowReader *reader, Served *served);
