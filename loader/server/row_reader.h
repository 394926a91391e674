// Reads the rows of samples: decodes the frames of a shuffle group into a window and copies rows of T+1 ids out of it.
// One dataset, one thread.
#pragma once

#include "loader/protocol/wire.h"
#include "shardtool/format/dataset.h"

typedef struct RowReader RowReader;

// Opens every shard of the dataset (borrowed). Fails with 65 when a shard is not what the manifest says, 74 when it
// cannot be read.
RowReader *row_reader_open(const Dataset *dataset);
void row_reader_close(RowReader *reader); // accepts NULL

// Copies the rows of a GET to `ids`. *rows is less than requested only at the end of a sequential split; *epoch is that
// of the first row. Fails with 65 (damaged) or 74 (cannot be read) naming split, shard number and frame number, but no
// path, because the message goes to the trainer. *shard is then the shard's number; it stays as it is when the split is
// too short (65).
int row_reader_read(RowReader *reader, const WireGet *get, uint16_t *ids, uint32_t *rows, uint64_t *epoch,
                    uint32_t *shard);

// Decodes one frame of the current group or of the next one ahead of its use; false when all are decoded. The server
// calls it while no request waits.
bool row_reader_prefetch(RowReader *reader);

uint64_t row_reader_frames(const RowReader *reader); // the number of frames decoded since row_reader_open
