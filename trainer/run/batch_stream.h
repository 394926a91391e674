// The stream of batches: what a step asks of the loader, by the law (design: a batch is a pure function of what was
// asked). Asks ahead, so that the feed's window stays full across steps.
#pragma once

#include "loader/client/feed.h"

// Where batches come from: the feed, or a test.
typedef struct {
    void *self;
    int (*ask)(void *self, const FeedRequest *ask);
    uint32_t (*room)(void *self); // how many more can be asked
    FeedResult (*next)(void *self, FeedBatch *batch);
    void (*done)(void *self, const FeedBatch *batch);
    void (*forget)(void *self);
} BatchSource;

BatchSource source_of_feed(Feed *feed);

// Batches [next, end) of one split, `rows` samples each, the last one shorter.
typedef struct {
    const BatchSource *source;
    FeedRequest form; // split, mode, rows, seed
    uint64_t next, asked, end;
} BatchStream;

// Starts at sample `first`. What was asked ahead is kept when the stream only goes on.
void batch_stream_start(BatchStream *stream, const BatchSource *source, const FeedRequest *form, uint64_t first,
                        uint64_t end);
// The batch at `next`; rows are what was asked, or 76. Batches must be given back by source->done.
FeedResult batch_stream_next(BatchStream *stream, FeedBatch *batch);
void batch_stream_cancel(BatchStream *stream); // forgets what was asked ahead
