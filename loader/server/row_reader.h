// Turns sample numbers into rows: decodes each frame once into a window that holds the group's extents, and copies
// rows of T+1 ids out of it. One dataset, one thread.
#pragma once

#include "loader/protocol/sampling.h"
#include "shardtool/format/dataset.h"

typedef struct RowReader RowReader;

// Opens every shard of the dataset (borrowed). Fails with 65 when a shard is not what the manifest says.
RowReader *row_reader_open(const Dataset *dataset);
void row_reader_close(RowReader *reader); // accepts NULL

// Copies rows [first_sample, first_sample + rows) of sample_order_open's sampling to `ids`; *filled is fewer only at
// the end of a sequential split. Errors: 65 with split, shard number and frame number, but no path (the message goes to
// the trainer); *shard is then the shard's number.
int row_reader_read(RowReader *reader, const FeedRequest *ask, uint32_t sequence_tokens, uint16_t *ids,
                    uint32_t *filled, uint64_t *epoch, uint32_t *shard);

// Decodes one frame that will be wanted soon (the rest of this group, then the next); false when there is none. For
// moments with nothing else to do.
bool row_reader_prefetch(RowReader *reader);

uint64_t row_reader_frames(const RowReader *reader); // decoded since row_reader_open
