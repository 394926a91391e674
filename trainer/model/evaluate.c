// Evaluation in micro-batches: forward pass and losses only; no activation is kept.
#include "trainer/model/evaluate.h"
#include "common/machine/stop.h"
#include <math.h>

// Adds the losses of the uploaded batch to the scalars, sequence by sequence, from target `from` of each on.
static void add_losses(Network *network, int B, int from) {
    const PassLayout *pass = &network->plan->eval;
    int T = pass->block;
    StepScalars *scalars = network_at(network, network->plan->scalars);
    network_forward(network, pass, B, T);
    network_losses(network, pass, B, T, 0, false, false);
    const float *losses = network_at(network, pass->losses);
    for (int b = 0; b < B; b++)
        network->ops->sum_losses(&scalars->loss, losses + (size_t)b * (size_t)T + from, T - from);
}

void evaluate_warm_up(Network *network, uint64_t samples) {
    const uint64_t most = (uint64_t)network->plan->eval.rows, last = samples % most;
    const PassLayout *pass = &network->plan->eval;
    network_zero_tokens(network, pass, most);
    if (samples >= most) add_losses(network, (int)most, 0);
    if (last) add_losses(network, (int)last, 0);
    if (most > 1) add_losses(network, 1, 0); // the end of a split
}

static bool counts(const Network *network, size_t target) {
    return !network->plan->answers || network->counted[target];
}

// Returns how many of the uploaded targets count before target `from` of each of B rows of T.
static uint64_t targets_before(const Network *network, int B, int T, int from) {
    uint64_t count = 0;
    for (size_t b = 0; b < (size_t)B; b++)
        for (size_t t = 0; t < (size_t)from; t++) count += counts(network, b * (size_t)T + t);
    return count;
}

// Returns the bytes of the targets that count from target `from` of each row on, and adds the losses of those without
// text to the scalars. ids (B,T+1).
static uint64_t add_bytes(Network *network, const uint8_t *token_bytes, const void *ids, int B, int T, int from) {
    const unsigned width = shape_id_bytes(&network->model->shape);
    StepScalars *scalars = network_at(network, network->plan->scalars);
    const float *losses = network_at(network, network->plan->eval.losses);
    uint64_t bytes = 0;
    for (size_t b = 0; b < (size_t)B; b++)
        for (size_t t = (size_t)from; t < (size_t)T; t++) {
            if (!counts(network, b * (size_t)T + t)) continue;
            const uint8_t length = token_bytes[id_at(ids, b * ((size_t)T + 1) + t + 1, width)];
            if (!length) network->ops->sum_losses(&scalars->textless_loss, losses + b * (size_t)T + t, 1);
            bytes += length;
        }
    return bytes;
}

// Reads the samples of one order and adds up their targets, from target `from` of each on.
static FeedResult read_samples(Network *network, const BatchSource *source, const EvaluateRequest *request,
                               uint8_t mode, uint64_t samples, int from, EvaluateResult *found) {
    const PassLayout *pass = &network->plan->eval;
    const int T = pass->block;
    const FeedRequest form = {.split = request->split,
                              .mode = mode,
                              .rows = (uint32_t)pass->rows,
                              .seed = EVALUATE_SEED,
                              .sequence_tokens = (uint32_t)T,
                              .source = request->source};
    BatchStream stream = {0};
    batch_stream_start(&stream, source, &form, 0, samples);
    while (stream.next < samples) {
        FeedBatch batch;
        FeedResult result = stop_requested ? FEED_STOPPED : batch_stream_next(&stream, &batch);
        if (result != FEED_BATCH) return batch_stream_cancel(&stream), result;
        const int B = (int)batch.rows;
        network_tokens(network, pass, batch.ids, B, T);
        found->targets += network->targets - targets_before(network, B, T, from);
        add_losses(network, B, from);
        if (request->token_bytes) found->bytes += add_bytes(network, request->token_bytes, batch.ids, B, T, from);
        source->release(source->self, &batch);
        if (request->progress)
            progress_update(request->progress, request->progress->done + (uint64_t)B * (uint64_t)(T - from));
    }
    return FEED_BATCH;
}

FeedResult evaluate(Network *network, const BatchSource *source, const EvaluateRequest *request,
                    EvaluateResult *found) {
    StepScalars *scalars = network_at(network, network->plan->scalars), sums;
    *found = (EvaluateResult){0};
    network->ops->zero(scalars, sizeof *scalars);
    FeedResult result = read_samples(network, source, request, request->mode, request->samples, 0, found);
    if (result == FEED_BATCH && request->rest)
        result = read_samples(network, source, request, SAMPLING_REST, 1,
                              network->plan->eval.block - (int)request->rest, found);
    if (result != FEED_BATCH) return result;
    network->ops->download(&sums, scalars, sizeof sums);
    found->loss = found->targets ? sums.loss / (double)found->targets : NAN;
    found->text_nats = sums.loss - sums.textless_loss;
    return FEED_BATCH;
}

uint64_t evaluate_samples_wanted(const Config *config) {
    const uint64_t T = (uint64_t)config_eval_block(config);
    return ((uint64_t)config_eval_tokens(config) + T - 1) / T;
}

uint64_t evaluate_samples_of(const Config *config, uint64_t split_tokens) {
    return split_tokens ? (split_tokens - 1) / (uint64_t)config_eval_block(config) : 0;
}
