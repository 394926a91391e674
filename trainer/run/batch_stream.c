// The stream of batches: asking ahead and checking that what comes is what was asked.
#include "trainer/run/batch_stream.h"
#include "common/err.h"
#include <string.h>

static int feed_source_ask(void *self, const FeedRequest *ask) { return feed_request(self, ask); }
static uint32_t feed_source_room(void *self) { return feed_capacity(self); }
static FeedResult feed_source_next(void *self, FeedBatch *batch) { return feed_next(self, batch); }
static void feed_source_done(void *self, const FeedBatch *batch) { feed_release(self, batch); }
static void feed_source_forget(void *self) { feed_cancel(self); }

BatchSource source_of_feed(Feed *feed) {
    return (BatchSource){
        feed, feed_source_ask, feed_source_room, feed_source_next, feed_source_done, feed_source_forget};
}

static bool same_form(const FeedRequest *a, const FeedRequest *b) {
    return a->split == b->split && a->mode == b->mode && a->rows == b->rows && a->seed == b->seed;
}

void batch_stream_start(BatchStream *stream, const BatchSource *source, const FeedRequest *form, uint64_t first,
                        uint64_t end) {
    bool goes_on =
        stream->source == source && same_form(&stream->form, form) && stream->next == first && stream->asked <= end;
    if (stream->source && !goes_on) batch_stream_cancel(stream);
    uint64_t asked = goes_on ? stream->asked : first;
    *stream = (BatchStream){source, *form, first, asked, end};
}

FeedResult batch_stream_next(BatchStream *stream, FeedBatch *batch) {
    const BatchSource *source = stream->source;
    while (stream->asked < stream->end && source->room(source->self)) {
        FeedRequest ask = stream->form;
        ask.first_sample = stream->asked;
        if (stream->end - stream->asked < ask.rows) ask.rows = (uint32_t)(stream->end - stream->asked);
        if (source->ask(source->self, &ask) < 0) return FEED_ERROR;
        stream->asked += ask.rows;
    }
    FeedResult result = source->next(source->self, batch);
    if (result == FEED_CHANGED) stream->asked = stream->next;
    if (result != FEED_BATCH) return result;
    uint64_t left = stream->end - stream->next;
    uint32_t want = left < stream->form.rows ? (uint32_t)left : stream->form.rows;
    if (batch->first_sample != stream->next || batch->rows != want) {
        source->done(source->self, batch);
        fail(EX_PROTOCOL, "asked for %u samples from %llu, the loader sent %u from %llu", want,
             (unsigned long long)stream->next, batch->rows, (unsigned long long)batch->first_sample);
        return FEED_ERROR;
    }
    stream->next += want;
    return FEED_BATCH;
}

void batch_stream_cancel(BatchStream *stream) {
    if (stream->asked != stream->next) stream->source->forget(stream->source->self);
    stream->asked = stream->next;
}
