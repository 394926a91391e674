// Evaluation in micro-batches: forward pass and losses only; no activation is kept.
#include "trainer/model/evaluate.h"
#include <math.h>

// Adds the losses of the uploaded batch to the scalars, sequence by sequence.
static void add_losses(Network *network, int B) {
    const PassLayout *pass = &network->plan->eval;
    int T = pass->block;
    StepScalars *scalars = network_at(network, network->plan->scalars);
    network_forward(network, pass, B, T);
    network_losses(network, pass, B, T, 0, false, false);
    const float *losses = network_at(network, pass->losses);
    for (int b = 0; b < B; b++) network->ops->sum_losses(&scalars->loss, losses + (size_t)b * (size_t)T, T);
}

void evaluate_warm_up(Network *network, uint64_t samples) {
    const uint64_t most = (uint64_t)network->plan->eval.rows, last = samples % most;
    const PassLayout *pass = &network->plan->eval;
    network_zero_tokens(network, pass, most);
    if (samples >= most) add_losses(network, (int)most);
    if (last) add_losses(network, (int)last);
}

// Returns the bytes of the targets of B rows of T+1 ids that count, and adds the losses of those without text to the
// scalars.
static uint64_t add_bytes(Network *network, const uint8_t *token_bytes, const void *ids, int B, int T) {
    const unsigned width = shape_id_bytes(&network->model->shape);
    StepScalars *scalars = network_at(network, network->plan->scalars);
    const float *losses = network_at(network, network->plan->eval.losses);
    uint64_t bytes = 0;
    for (size_t b = 0; b < (size_t)B; b++)
        for (size_t t = 0; t < (size_t)T; t++) {
            if (network->plan->answers && !network->counted[b * (size_t)T + t]) continue;
            const uint8_t length = token_bytes[id_at(ids, b * ((size_t)T + 1) + t + 1, width)];
            if (!length) network->ops->sum_losses(&scalars->textless_loss, losses + b * (size_t)T + t, 1);
            bytes += length;
        }
    return bytes;
}

FeedResult evaluate(Network *network, const BatchSource *source, const EvaluateRequest *request,
                    EvaluateResult *found) {
    const PassLayout *pass = &network->plan->eval;
    const Backend *ops = network->ops;
    int T = pass->block;
    StepScalars *scalars = network_at(network, network->plan->scalars), sums;
    const FeedRequest form = {.split = request->split,
                              .mode = request->mode,
                              .rows = (uint32_t)pass->rows,
                              .seed = EVALUATE_SEED,
                              .sequence_tokens = (uint32_t)T,
                              .source = request->source};
    BatchStream stream = {0};
    *found = (EvaluateResult){0};
    batch_stream_start(&stream, source, &form, 0, request->samples);
    ops->zero(scalars, sizeof *scalars);
    while (stream.next < request->samples) {
        FeedBatch batch;
        FeedResult result = request->stop && *request->stop ? FEED_STOPPED : batch_stream_next(&stream, &batch);
        if (result != FEED_BATCH) return batch_stream_cancel(&stream), result;
        int B = (int)batch.rows;
        network_tokens(network, pass, batch.ids, B, T);
        found->targets += network->targets;
        add_losses(network, B);
        if (request->token_bytes) found->bytes += add_bytes(network, request->token_bytes, batch.ids, B, T);
        source->release(source->self, &batch);
        if (request->progress) progress_update(request->progress, request->progress->done + (uint64_t)B * (uint64_t)T);
    }
    ops->download(&sums, scalars, sizeof sums);
    found->loss = found->targets ? sums.loss / (double)found->targets : NAN;
    found->text_nats = sums.loss - sums.textless_loss;
    return FEED_BATCH;
}

uint64_t evaluate_samples(const Config *config, uint64_t split_tokens) {
    uint64_t T = (uint64_t)config_eval_block(config), most = split_tokens ? (split_tokens - 1) / T : 0;
    uint64_t tokens = config->eval_tokens ? (uint64_t)config->eval_tokens
                                          : (uint64_t)(config->eval_iters * config->batch_size.value) * T;
    uint64_t samples = (tokens + T - 1) / T;
    return samples < most ? samples : most;
}
