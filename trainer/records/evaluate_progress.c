// Evaluation with a progress line: a source of batches that counts the tokens of the batches that are released.
#include "trainer/records/evaluate_progress.h"
#include "common/log.h"

typedef struct {
    const BatchSource *inner;
    Progress progress;
    uint64_t row_tokens;
} CountingSource;

static int counting_request(void *self, const FeedRequest *request) {
    const BatchSource *inner = ((CountingSource *)self)->inner;
    return inner->request(inner->self, request);
}

static uint32_t counting_capacity(void *self) {
    const BatchSource *inner = ((CountingSource *)self)->inner;
    return inner->capacity(inner->self);
}

static FeedResult counting_next(void *self, FeedBatch *batch) {
    const BatchSource *inner = ((CountingSource *)self)->inner;
    return inner->next(inner->self, batch);
}

static void counting_release(void *self, const FeedBatch *batch) {
    CountingSource *counting = self;
    const uint64_t tokens = batch->rows * counting->row_tokens;
    counting->inner->release(counting->inner->self, batch);
    progress_update(&counting->progress, counting->progress.done + tokens);
}

static void counting_cancel(void *self) {
    const BatchSource *inner = ((CountingSource *)self)->inner;
    inner->cancel(inner->self);
}

FeedResult evaluate_with_progress(Network *network, const BatchSource *source, int split, uint64_t samples,
                                  const atomic_int *stop, double *loss) {
    static const char *const verbs[SPLIT_COUNT] = {"evaluating on training data", "evaluating on validation data"};
    const uint64_t row_tokens = (uint64_t)network->plan->eval.block;
    CountingSource counting = {.inner = source, .row_tokens = row_tokens};
    const BatchSource counted = {&counting,     counting_request, counting_capacity,
                                 counting_next, counting_release, counting_cancel};
    progress_start(&counting.progress, verbs[split], "tok", samples * row_tokens);
    FeedResult result = evaluate(network, &counted, split, samples, stop, loss);
    progress_finish(&counting.progress);
    return result;
}
