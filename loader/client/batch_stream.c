// Requests batches ahead of their use and checks the answers. See batch_stream.h.
#include "loader/client/batch_stream.h"
#include "common/err.h"
#include <assert.h>

static int feed_source_request(void *self, const FeedRequest *request) { return feed_request(self, request); }
static uint32_t feed_source_capacity(void *self) { return feed_capacity(self); }
static FeedResult feed_source_next(void *self, FeedBatch *batch) { return feed_next(self, batch); }
static void feed_source_release(void *self, const FeedBatch *batch) { feed_release(self, batch); }
static void feed_source_cancel(void *self) { feed_cancel(self); }

BatchSource source_of_feed(Feed *feed) {
    return (BatchSource){
        feed, feed_source_request, feed_source_capacity, feed_source_next, feed_source_release, feed_source_cancel};
}

static bool same_form(const FeedRequest *a, const FeedRequest *b) {
    return a->split == b->split && a->mode == b->mode && a->rows == b->rows && a->seed == b->seed;
}

void batch_stream_start(BatchStream *stream, const BatchSource *source, const FeedRequest *form, uint64_t first,
                        uint64_t end) {
    stream->start = first;
    first += stream->turns.first;
    bool continues = stream->source == source && same_form(&stream->form, form) && stream->next == first &&
                     stream->requested <= end + stream->turns.first;
    if (stream->source && !continues) batch_stream_cancel(stream);
    uint64_t requested = continues ? stream->requested : first;
    stream->source = source, stream->form = *form;
    stream->next = first, stream->requested = requested, stream->end = end;
}

static uint32_t rows_at(const BatchStream *stream, uint64_t sample) {
    assert(sample < stream->end);
    uint64_t left = stream->end - sample;
    return left < stream->form.rows ? (uint32_t)left : stream->form.rows;
}

// The sample of the batch after the one at `sample` of this process.
static uint64_t next_sample(const BatchStream *stream, uint64_t sample, uint32_t rows) {
    const BatchTurns *turns = &stream->turns;
    const uint64_t next = sample + rows + turns->skip;
    if (!turns->step) return next;
    const uint64_t end = sample - (sample - stream->start) % turns->step + turns->step; // of the step of `sample`
    return next < end ? next : end + turns->first;
}

FeedResult batch_stream_next(BatchStream *stream, FeedBatch *batch) {
    const BatchSource *source = stream->source;
    while (stream->requested < stream->end && source->capacity(source->self)) {
        FeedRequest request = stream->form;
        request.first_sample = stream->requested;
        request.rows = rows_at(stream, stream->requested);
        if (source->request(source->self, &request) < 0) return FEED_ERROR;
        stream->requested = next_sample(stream, stream->requested, request.rows);
    }
    FeedResult result = source->next(source->self, batch);
    if (result == FEED_CHANGED) stream->requested = stream->next;
    if (result != FEED_BATCH) return result;
    uint32_t rows = rows_at(stream, stream->next);
    if (batch->first_sample != stream->next || batch->rows != rows) {
        source->release(source->self, batch);
        if (sampling_ends(stream->form.mode) && batch->first_sample == stream->next && batch->rows < rows)
            return fail(EX_USAGE,
                        "the pass over the data ends before sample %llu: set a smaller max_iters, or another sampling",
                        (unsigned long long)stream->next + batch->rows),
                   FEED_ERROR;
        fail(EX_PROTOCOL, "requested %u samples from %llu, received %u from %llu", rows,
             (unsigned long long)stream->next, batch->rows, (unsigned long long)batch->first_sample);
        return FEED_ERROR;
    }
    assert(stream->requested > stream->next);
    if (stream->received) stream->received(stream->received_self, batch);
    stream->next = next_sample(stream, stream->next, rows);
    return FEED_BATCH;
}

void batch_stream_cancel(BatchStream *stream) {
    if (stream->requested != stream->next) stream->source->cancel(stream->source->self);
    stream->requested = stream->next;
}
