// One optimizer step, and the warm-up before the first.
#include "trainer/optim/step.h"
#include "trainer/model/layer_offload.h"
#include "trainer/optim/offload.h"
#include "trainer/optim/recheck.h"
#include "trainer/optim/schedule.h"
#include <math.h>

enum { FIRST_MICRO_BATCH, NEXT_MICRO_BATCH, NORM, UPDATE }; // keys of recordings

void step_begin(Network *network, const Config *config, const StepPosition *position) {
    *network->scalars = (StepScalars){.loss_scale = position->loss_scale};
    network->plan->optimizer->prepare(network->scalars->optimizer, config, schedule_rate(config, position->step),
                                      position->update);
    if (network->plan->dropout) {
        const double p = config->dropout;
        network->scalars->dropout =
            (Dropout){.seed = {(uint32_t)config->seed, (uint32_t)((uint64_t)config->seed >> 32)},
                      .step = (uint32_t)position->step,
                      .threshold = (uint32_t)lround(p * 65536),
                      .scale = (float)(1 / (1 - p))};
    }
    network->ops->upload(network_at(network, network->plan->scalars), network->scalars, sizeof *network->scalars);
    if (network->collective->world > 1) network->ops->zero(network_loss(network), sizeof(double));
}

// ---- the exchange between ranks

static int bucket_count(const Network *network) { return shard_buckets(network->model, network->collective->world); }
static GradientBucket bucket_at(const Network *network, int bucket) {
    return shard_bucket(network->model, network->collective->world, bucket);
}

static void reduce_bucket(const Network *network, int index) {
    const GradientBucket bucket = bucket_at(network, index);
    float *gradients = network_at(network, network->plan->grads);
    if (bucket.count)
        collective_begin_reduce_scatter(network->collective, gradients + bucket.first, bucket.count, bucket.share);
}

static void reduce_layer(const Network *network, int layer) { reduce_bucket(network, shard_bucket_of_layer(layer)); }

// Copies every share of a range that has an element of `bytes` for each `unit` parameters to all ranks.
static void gather(const Network *network, size_t range, size_t bytes, size_t unit) {
    unsigned char *start = network_at(network, range);
    for (int i = 0; i < bucket_count(network); i++) {
        const GradientBucket bucket = bucket_at(network, i);
        const size_t count = (bucket.count + unit - 1) / unit * bytes, share = bucket.share / unit * bytes;
        if (count) collective_begin_all_gather(network->collective, start + bucket.first / unit * bytes, count, share);
    }
    collective_finish(network->collective);
}

// Ends the reduction of the gradients. Then each rank has the losses of all and the gradients of its shards, or, where
// every rank keeps all of the optimizer's state, all gradients.
static void exchange(const Network *network) {
    Collective *ranks = network->collective;
    const size_t each = sizeof(double);
    if (ranks->world == 1) return;
    collective_begin_all_gather(ranks, network_at(network, network->plan->losses), ranks->world * each, each);
    collective_finish(ranks);
    if (network->plan->shards == 1) gather(network, network->plan->grads, network->ops->grad_bytes, 1);
}

// ---- micro-batches

// `reduce`: this is the last of the step, and its gradients are summed over the ranks while the backward pass runs.
static void run_micro_batch(Network *network, float scale, int micro, bool reduce) {
    const PassLayout *pass = &network->plan->train;
    int B = pass->rows, T = network->model->shape.block;
    StepScalars *scalars = network_at(network, network->plan->scalars);
    const bool add = micro;
    if (network->plan->dropout) { // masks depend on samples, not on micro-batches
        const Collective *ranks = network->collective;
        network->scalars->dropout.first_sample = ((uint32_t)micro * ranks->world + ranks->rank) * (uint32_t)B;
        network->ops->upload(&scalars->dropout, &network->scalars->dropout, sizeof scalars->dropout);
    }
    const int key = add ? NEXT_MICRO_BATCH : FIRST_MICRO_BATCH;
    const bool copies = pass->host_inputs || network->plan->layer_gradients.layer_bytes; // they cannot be recorded
    if (!reduce && !network->ops->graph_begin(key, !copies)) return;
    layer_offload_begin_gradients(network, add);
    network_forward(network, pass, B, T);
    network_losses(network, pass, B, T, scale, true, add);
    network->ops->sum_losses(network_loss(network), network_at(network, pass->losses), B * T);
    network->layer_done = reduce ? reduce_layer : NULL;
    network_backward(network, pass, B, T, add);
    network->layer_done = NULL;
    if (!reduce) network->ops->graph_end(key);
}

void step_micro_batch(Network *network, float scale, int micro) { run_micro_batch(network, scale, micro, false); }

// ---- the update

// The norm of the gradients of all ranks, from the sums of each rank's part.
static void sum_norm(const Network *network) {
    const Backend *ops = network->ops;
    const MemoryPlan *plan = network->plan;
    const unsigned rank = plan->shards > 1 ? network->collective->rank : 0;
    StepScalars *scalars = network_at(network, plan->scalars);
    const size_t bytes = ops->grad_bytes;
    double *sums = network_at(network, plan->sums);
    layer_offload_collect_gradients(network);
    for (int i = 0; i < shard_buckets(network->model, plan->shards); i++) {
        const GradientBucket bucket = shard_bucket(network->model, plan->shards, i);
        const OwnedRange own = shard_range(&bucket, rank);
        if (own.count)
            ops->square_sums(sums + own.first / NORM_PIECE, network_at(network, plan->update.grads + own.first * bytes),
                             own.count);
    }
    if (plan->shards > 1) gather(network, plan->sums, sizeof *sums, NORM_PIECE);
    ops->gradient_norm(&scalars->norm, sums, norm_pieces(network->model->elements), &scalars->loss_scale);
}

static void gradient_norm(const Network *network) {
    const MemoryPlan *plan = network->plan;
    if (plan->shards > 1) return sum_norm(network);
    if (!network->ops->graph_begin(NORM, !plan->layer_gradients.layer_bytes)) return;
    sum_norm(network);
    network->ops->graph_end(NORM);
}

// The results of the step, with the losses of all ranks. Waits for the device.
static void read_results(Network *network) {
    const unsigned world = network->collective->world;
    double losses[COLLECTIVE_RANKS], sum = 0;
    if (collective_wait(network->collective) < 0) return;
    network->ops->download(network->scalars, network_at(network, network->plan->scalars), sizeof *network->scalars);
    if (world == 1) return;
    network->ops->download(losses, network_at(network, network->plan->losses), world * sizeof *losses);
    for (unsigned rank = 0; rank < world; rank++) sum += losses[rank];
    network->scalars->loss = sum;
}

// Whether the update is left out because of a spike. The test before the update costs a wait for the device.
static bool skip_spike(Network *network, const Config *config, const StepPosition *position, double tokens) {
    if (config->spike_action != SPIKE_SKIP || !position->spikes) return false;
    read_results(network);
    return spike_score(position->spikes, network->scalars->loss / tokens, (double)network->scalars->norm) >
           config->spike_z;
}

static void update(Network *network) {
    const MemoryPlan *plan = network->plan;
    const bool alone = plan->shards == 1; // an exchange may be in flight else, which a choice by timing would wait for
    if (!alone || network->ops->graph_begin(UPDATE, !plan->update.slice)) { // copies to host memory are not recorded
        offload_update(network);
        if (!alone) gather(network, plan->params, network->ops->par_bytes, 1);
        if (!plan_updates_whole(plan)) network_pack(network);
        if (alone) network->ops->graph_end(UPDATE);
    }
    read_results(network);
}

void step_end(Network *network) {
    gradient_norm(network);
    update(network);
}

static double step_tokens(const Network *network, const Config *config) {
    return (double)network->plan->train.rows * network->model->shape.block *
           (double)config->gradient_accumulation_steps;
}

void step_warm_up(Network *network, const Config *config) {
    const PassLayout *pass = &network->plan->train;
    const int adds = config->gradient_accumulation_steps > 1;
    const float nan = NAN, scale = (float)(1 / step_tokens(network, config));
    const StepPosition position = {.loss_scale = 1};
    const LayerGradients *away = &network->plan->layer_gradients;
    const size_t first_gradient = away->layer_bytes ? away->kept : network->plan->grads;
    step_begin(network, config, &position);
    for (int run = 0; run < 2; run++) {                       // the first run is executed, the second recorded
        network->ops->zero(network_at(network, pass->tokens), // an update may lie where the tokens were
                           (size_t)pass->rows * (size_t)(config->block_size + 1) *
                               shape_id_bytes(&network->model->shape));
        for (int add = 0; add <= adds; add++) step_micro_batch(network, scale, add);
        network->ops->download(network->scalars, network_at(network, network->plan->scalars), sizeof *network->scalars);
        network_write(network, first_gradient, DTYPE_FP32, 0, 1, &nan); // the norm is not finite: nothing is updated
        step_end(network);
    }
}

FeedResult step_agree(Collective *ranks, FeedResult found) {
    enum { STOPPED, CHANGED, FAILED, SUMS };
    double sums[SUMS] = {
        [STOPPED] = found == FEED_STOPPED, [CHANGED] = found == FEED_CHANGED, [FAILED] = found == FEED_ERROR};
    if (ranks->world == 1) return found;
    if (collective_all_reduce(ranks, sums, SUMS) < 0 || sums[FAILED] > 0) return FEED_ERROR;
    return sums[STOPPED] > 0 ? FEED_STOPPED : sums[CHANGED] > 0 ? FEED_CHANGED : FEED_BATCH;
}

static FeedResult next_batch(Network *network, BatchStream *stream) {
    const PassLayout *pass = &network->plan->train;
    FeedBatch batch;
    FeedResult found = batch_stream_next(stream, &batch);
    if (found != FEED_BATCH) return found;
    network_tokens(network, pass, batch.ids, pass->rows, network->model->shape.block);
    stream->source->release(stream->source->self, &batch);
    return FEED_BATCH;
}

// The micro-batches of this process. All processes agree before they begin to exchange gradients, in the backward pass
// of the last one; or after it, where the only one is computed twice.
static FeedResult run_micro_batches(Network *network, const Config *config, BatchStream *stream, uint64_t step,
                                    float scale, const atomic_int *stop) {
    Collective *ranks = network->collective;
    const bool recheck = config->recheck_interval && step % (uint64_t)config->recheck_interval == 0;
    const int micros = (int)(config->gradient_accumulation_steps / ranks->world);
    const bool overlap = ranks->world > 1 && !(recheck && micros == 1);
    bool agreed = false;
    FeedResult found = FEED_BATCH;
    for (int micro = 0; micro < micros && found == FEED_BATCH; micro++) {
        const bool stops =
            stop && *stop && (micro || ranks->world > 1); // a single process has checked it before the step
        found = stops ? FEED_STOPPED : next_batch(network, stream);
        if (overlap && micro == micros - 1) found = step_agree(ranks, found), agreed = true;
        if (found != FEED_BATCH) break;
        run_micro_batch(network, scale, micro, agreed);
        if (!micro && recheck && recheck_first_micro_batch(network, scale, step) < 0) found = FEED_ERROR;
    }
    if (!agreed) found = step_agree(ranks, found);
    if (ranks->world == 1 || found != FEED_BATCH) return found;
    for (int layer = network->model->shape.layers - 1; layer >= 0 && !agreed; layer--) reduce_layer(network, layer);
    reduce_bucket(network, bucket_count(network) - 1); // the vectors
    reduce_bucket(network, 0);                         // the embeddings
    return FEED_BATCH;
}

FeedResult step_run(Network *network, const Config *config, BatchStream *stream, const StepPosition *position,
                    const atomic_int *stop, StepResult *result) {
    const double tokens = step_tokens(network, config);
    step_begin(network, config, position);
    FeedResult found = run_micro_batches(network, config, stream, position->step, (float)(1 / tokens), stop);
    if (found != FEED_BATCH) return found;
    exchange(network);
    if (network->collective->lost) return FEED_ERROR;
    gradient_norm(network);
    const bool applied = !skip_spike(network, config, position, tokens);
    if (applied) update(network);
    if (network->collective->lost) return FEED_ERROR;
    *result = (StepResult){.loss = network->scalars->loss / tokens,
                           .norm = network->scalars->norm,
                           .learning_rate = schedule_rate(config, position->step)};
    result->finite = isfinite(result->loss) && isfinite(result->norm), result->applied = applied && result->finite;
    return FEED_BATCH;
}
