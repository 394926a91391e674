// The batches of a training run or an evaluation: requests samples ahead of their use, so that the feed's window stays
// full across steps, and checks that each batch holds the samples that were requested.
#pragma once

#include "loader/client/feed.h"

// The source of batches: the feed (feed.h documents the five calls), or a test.
typedef struct {
    void *self;
    int (*request)(void *self, const FeedRequest *request);
    uint32_t (*capacity)(void *self);
    FeedResult (*next)(void *self, FeedBatch *batch);
    void (*release)(void *self, const FeedBatch *batch);
    void (*cancel)(void *self);
} BatchSource;

BatchSource source_of_feed(Feed *feed);

// The batches of a step, which processes take in turn: this one has the batch at sample `first` of the step's `step`
// samples, and then every batch after `skip` samples that others have. Zeros: all batches.
typedef struct {
    uint64_t first, skip, step;
} BatchTurns;

// Samples [next, end) of one split in batches of `form.rows`; the last batch may be shorter. batch_stream_start keeps
// `turns` and `received`.
typedef struct {
    const BatchSource *source;
    FeedRequest form;              // split, mode, rows and seed of each request
    uint64_t next, requested, end; // batches from `next` up to `requested` have been requested and not yet received
    BatchTurns turns;
    uint64_t start;                                       // of the step that `next` is in
    void (*received)(void *self, const FeedBatch *batch); // sees each batch in its turn; may be NULL
    void *received_self;
} BatchStream;

// Starts at sample `first`, or with turns at the first batch of this process in the step that starts there. Requests
// made ahead are kept when the new range continues the old one, else cancelled.
void batch_stream_start(BatchStream *stream, const BatchSource *source, const FeedRequest *form, uint64_t first,
                        uint64_t end);
// Receives the batch at `next`; the caller returns it with source->release. Fails with 76 when the batch does not hold
// the requested samples. On FEED_CHANGED the stream is at `next`, with no request made.
FeedResult batch_stream_next(BatchStream *stream, FeedBatch *batch);
void batch_stream_cancel(BatchStream *stream); // cancels the requests made ahead
