// One optimizer step, and the warm-up before the first.
#include "trainer/optim/step.h"
#include "common/machine/stop.h"
#include "trainer/model/layer_offload.h"
#include "trainer/optim/offload.h"
#include "trainer/optim/recheck.h"
#include <math.h>

// Keys of recordings; from PARTS on the parts of a micro-batch, and then of one whose gradients are added.
enum { FIRST_MICRO_BATCH, NEXT_MICRO_BATCH, NORM, UPDATE, PARTS };

// The share of the parameters in their average after update n, from 0: the first ones all have about the same weight.
static double average_take(double decay, double n) { return 1 - fmin(decay, n / (n + 9)); }

void step_begin(Network *network, const Config *config, const StepPosition *position) {
    *network->scalars = (StepScalars){.loss_scale = position->loss_scale, .divisor = position->loss_scale};
    network->plan->optimizer->prepare(network->scalars->optimizer, config,
                                      schedule_rate(config, position->cooldown, position->step), position->update);
    network->scalars->average_take = (float)average_take(config->ema, (double)position->update);
    if (network->plan->dropout) {
        const double p = config->dropout;
        network->scalars->dropout =
            (Dropout){.seed = {(uint32_t)config->seed, (uint32_t)((uint64_t)config->seed >> 32)},
                      .step = (uint32_t)position->step,
                      .threshold = (uint32_t)lround(p * 65536),
                      .scale = (float)(1 / (1 - p))};
    }
    network->ops->upload(network_at(network, network->plan->scalars), network->scalars, sizeof *network->scalars);
    network->micro = 0, network->step_targets = network->own_targets = 0;
    if (network->collective->world > 1)
        network->ops->zero(network_loss(network), plan_losses(network->plan, 1) * sizeof(double));
}

// ---- the exchange between ranks

static int bucket_count(const Network *network) { return shard_buckets(network->model, network->collective->world); }
static GradientBucket bucket_at(const Network *network, int bucket) {
    return shard_bucket(network->model, network->collective->world, bucket);
}

// The elements that each rank has of the buckets before.
static size_t shares_before(const Network *network, int index) {
    size_t elements = 0;
    for (int i = 0; i < index; i++) elements += bucket_at(network, i).share;
    return elements;
}

// Adds the gradients of this round's micro-batches, in their order, to the sums of the rounds before; after the last
// round the sums are where the gradients are.
static void add_round(const Network *network, float *gradients, const GradientBucket *bucket, size_t before) {
    Collective *ranks = network->collective;
    const MemoryPlan *plan = network->plan;
    const int64_t left = network->micro_batches - (int64_t)network->micro * ranks->world;
    float *sums = (float *)network_at(network, plan->shard_sums) + before;
    const OrderedSum sum = {.ranks = left < ranks->world ? (unsigned)left : ranks->world,
                            .before = network->micro ? sums : NULL,
                            .after =
                                network->micro == plan->rounds - 1 ? gradients + ranks->rank * bucket->share : sums,
                            .bf16 = plan->reduce_bf16};
    collective_begin_ordered_sum(ranks, gradients, bucket->count, bucket->share, &sum);
}

static void reduce_bucket(const Network *network, int index) {
    const GradientBucket bucket = bucket_at(network, index);
    float *gradients = (float *)network_at(network, network->plan->grads) + bucket.first;
    if (!bucket.count) return;
    if (network->plan->fixed_order)
        add_round(network, gradients, &bucket, shares_before(network, index));
    else
        collective_begin_reduce_scatter(network->collective, gradients, bucket.count, bucket.share,
                                        network->plan->reduce_bf16);
}

static void reduce_layer(const Network *network, int layer) { reduce_bucket(network, shard_bucket_of_layer(layer)); }

// Begins to copy the shares of a bucket, in a range that has an element of `bytes` for each `unit` parameters, to all
// ranks.
static void gather_bucket(const Network *network, int index, size_t range, size_t bytes, size_t unit) {
    const GradientBucket bucket = bucket_at(network, index);
    const size_t count = (bucket.count + unit - 1) / unit * bytes, share = bucket.share / unit * bytes;
    unsigned char *start = network_at(network, range + bucket.first / unit * bytes);
    if (count) collective_begin_all_gather(network->collective, start, count, share);
}

static void gather(const Network *network, size_t range, size_t bytes, size_t unit) {
    for (int i = 0; i < bucket_count(network); i++) gather_bucket(network, i, range, bytes, unit);
    collective_finish(network->collective);
}

// Parameters, in the order in which the forward pass of the next step waits for them (run_parts).
static void gather_parameters(const Network *network) {
    const int last = bucket_count(network) - 1;
    for (int i = 0; i <= last; i++) {
        const int bucket = i < 2 ? i * last : i - 1; // the embeddings, the vectors, each layer
        gather_bucket(network, bucket, network->plan->params, network->ops->par_bytes, 1);
        collective_mark(network->collective, bucket);
    }
    collective_defer(network->collective);
}

// Ends the reduction of the gradients. Then each rank has the losses of all and the gradients of its shards, or, if
// every rank keeps all of the optimizer's state, all gradients.
static void exchange(const Network *network) {
    Collective *ranks = network->collective;
    const size_t each = plan_losses(network->plan, 1) * sizeof(double);
    if (ranks->world == 1) return;
    collective_begin_all_gather(ranks, network_at(network, network->plan->losses), ranks->world * each, each);
    collective_finish(ranks);
    if (network->plan->shards == 1) gather(network, network->plan->grads, network->ops->grad_bytes, 1);
}

// ---- micro-batches

// Whether its gradients are added to the gradients of the micro-batches before; else `micro` is added as a whole, after
// its layers.
static bool begin_micro_batch(Network *network, int micro) {
    StepScalars *scalars = network_at(network, network->plan->scalars);
    network->micro = micro, network->apart = micro && network->plan->micro_gradients.layer_bytes;
    if (network->plan->dropout) { // masks depend on samples, not on micro-batches
        const Collective *ranks = network->collective;
        network->scalars->dropout.first_sample =
            ((uint32_t)micro * ranks->world + ranks->rank) * (uint32_t)network->plan->train.rows;
        network->ops->upload(&scalars->dropout, &network->scalars->dropout, sizeof scalars->dropout);
    }
    return micro && !network->plan->fixed_order;
}

static bool is_recorded(const Network *network) { // copies cannot be recorded
    return !network->plan->train.host_inputs && !network->plan->layer_gradients.layer_bytes;
}

static void sum_losses(const Network *network) {
    const PassLayout *pass = &network->plan->train;
    network->ops->sum_losses(network_loss(network), network_at(network, pass->losses),
                             pass->rows * network->model->shape.block);
}

void step_micro_batch(Network *network, float scale, int micro) {
    const PassLayout *pass = &network->plan->train;
    const int key = micro ? NEXT_MICRO_BATCH : FIRST_MICRO_BATCH, B = pass->rows, T = network->model->shape.block;
    const bool add = begin_micro_batch(network, micro);
    collective_settle(network->collective);
    if (network->ops->graph_begin(key, is_recorded(network))) {
        layer_offload_begin_gradients(network, micro);
        network_forward(network, pass, B, T);
        network_losses(network, pass, B, T, scale, true, add);
        sum_losses(network);
        network_backward(network, pass, B, T, add);
        network->ops->graph_end(key);
    }
    network->apart = false;
}

// The parts of a micro-batch: the embedding, each layer, the head, each layer of the backward pass, and its rest.
static int part_count(const Network *network) { return 2 * network->model->shape.layers + 3; }

static void run_part(const Network *network, int part, float scale, bool add) {
    const PassLayout *pass = &network->plan->train;
    const int B = pass->rows, T = network->model->shape.block, layers = network->model->shape.layers;
    if (part == 0) {
        layer_offload_begin_gradients(network, network->micro);
        network_forward_embedding(network, pass, B, T);
    } else if (part <= layers)
        network_forward_layer(network, pass, part - 1, B, T);
    else if (part == layers + 1) {
        network_forward_norm(network, pass, B, T);
        network_losses(network, pass, B, T, scale, true, add);
        network_backward_norm(network, pass, B, T, add);
    } else if (part < 2 * layers + 2)
        network_backward_layer(network, pass, 2 * layers + 1 - part, B, T, add);
    else
        network_backward_embedding(network, pass, B, T, add);
}

// A micro-batch with a recording for each of its parts. Each part of the forward pass waits for its own parameters,
// which ranks may still receive, and with `exchanges` the gradients of a layer begin to be summed over the ranks as
// soon as they are complete. The place of the loss depends on the micro-batch, so it is not recorded.
static void run_parts(Network *network, float scale, int micro, bool exchanges) {
    Collective *ranks = network->collective;
    const int layers = network->model->shape.layers, parts = part_count(network), head = layers + 1;
    const bool add = begin_micro_batch(network, micro);
    const int key = PARTS + (add ? parts : 0);
    for (int part = 0; part < parts; part++) {
        if (part < head)
            collective_await(ranks, part ? shard_bucket_of_layer(part - 1) : bucket_count(network) - 1);
        else if (part == head)
            collective_await_all(ranks);
        if (network->ops->graph_begin(key + part, is_recorded(network))) {
            run_part(network, part, scale, add);
            network->ops->graph_end(key + part);
        }
        if (part == head) sum_losses(network);
        if (exchanges && part > head && part < parts - 1) reduce_layer(network, 2 * layers + 1 - part);
    }
    network->apart = false;
}

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
    ops->gradient_norm(&scalars->norm, sums, norm_pieces(network->model->elements), &scalars->divisor);
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
    const size_t each = plan_losses(network->plan, 1);
    double *losses = (double *)(void *)network->staging, sum = 0;
    if (collective_wait(network->collective) < 0) return;
    network->ops->download(network->scalars, network_at(network, network->plan->scalars), sizeof *network->scalars);
    if (world == 1) return;
    network->ops->download(losses, network_at(network, network->plan->losses), world * each * sizeof *losses);
    for (size_t micro = 0; micro < each; micro++) // in the order of the micro-batches
        for (unsigned rank = 0; rank < world; rank++) sum += losses[rank * each + micro];
    network->scalars->loss = sum;
}

// Whether the update is left out because of a spike. The test before the update costs a wait for the device.
static bool skip_spike(Network *network, const Config *config, const StepPosition *position) {
    if (config->spike_action != SPIKE_SKIP || !position->spikes) return false;
    read_results(network);
    return spike_score(position->spikes, network->scalars->loss / network->step_targets,
                       (double)network->scalars->norm) > config->spike_z;
}

static void update_slice(const Network *network, const Slice *slice) {
    const Optimizer *optimizer = network->plan->optimizer;
    const StepScalars *scalars = network_at(network, network->plan->scalars);
    optimizer->update(network, slice);
    if (optimizer->averages)
        network->ops->average(slice_average(optimizer, slice), &slice->update, &scalars->average_take);
}

static void update(Network *network) {
    const MemoryPlan *plan = network->plan;
    const bool alone = plan->shards == 1; // an exchange may be in flight else, which a choice by timing would wait for
    if (!alone || network->ops->graph_begin(UPDATE, !plan->update.slice)) { // copies to host memory are not recorded
        offload_slices(network, update_slice);
        if (!alone) gather_parameters(network);
        if (!plan_updates_whole(plan)) network_pack(network);
        if (alone) network->ops->graph_end(UPDATE);
    }
    read_results(network);
}

void step_end(Network *network) {
    gradient_norm(network);
    update(network);
}

static void swap_slice(const Network *network, const Slice *slice) {
    network->ops->average_swap(slice_average(network->plan->optimizer, slice), &slice->update);
}

void step_swap_average(Network *network) {
    collective_settle(network->collective);
    offload_slices(network, swap_slice);
    if (network->plan->shards > 1) gather_parameters(network);
    collective_settle(network->collective);
    network_pack(network);
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
    const Collective *ranks = network->collective;
    const int last = (int)((config->gradient_accumulation_steps - 1 - ranks->rank) / ranks->world); // of this process
    const size_t first_gradient = away->layer_bytes ? away->kept : network->plan->grads;
    step_begin(network, config, &position);
    for (int run = 0; run < 2; run++) {                           // the first run is executed, the second recorded
        network_zero_tokens(network, pass, (uint64_t)pass->rows); // an update may lie where the tokens were
        for (int add = 0; add <= adds; add++) step_micro_batch(network, scale, add);
        if (ranks->world > 1) run_parts(network, scale, 0, false);
        if (ranks->world > 1 && last) run_parts(network, scale, last, false);
        network->ops->download(network->scalars, network_at(network, network->plan->scalars), sizeof *network->scalars);
        network_write(network, first_gradient, DTYPE_FP32, 0, 1, &nan); // the norm is not finite: nothing is updated
        step_end(network);
        collective_settle(network->collective);
    }
}

// Also adds up the targets of all processes.
static FeedResult agree(Collective *ranks, FeedResult found, double *targets) {
    enum { STOPPED, CHANGED, FAILED, TARGETS, SUMS };
    double sums[SUMS] = {[STOPPED] = found == FEED_STOPPED,
                         [CHANGED] = found == FEED_CHANGED,
                         [FAILED] = found == FEED_ERROR,
                         [TARGETS] = *targets};
    if (ranks->world == 1) return found;
    if (collective_all_reduce(ranks, sums, SUMS) < 0 || sums[FAILED] > 0) return FEED_ERROR;
    *targets = sums[TARGETS];
    return sums[STOPPED] > 0 ? FEED_STOPPED : sums[CHANGED] > 0 ? FEED_CHANGED : FEED_BATCH;
}

FeedResult step_agree(Collective *ranks, FeedResult found) { return agree(ranks, found, &(double){0}); }

// The same in a step: the targets since the last call count, for all processes.
static FeedResult agree_in_step(Network *network, FeedResult found) {
    found = agree(network->collective, found, &network->own_targets);
    network->step_targets += network->own_targets, network->own_targets = 0;
    return found;
}

static FeedResult next_batch(Network *network, BatchStream *stream) {
    const PassLayout *pass = &network->plan->train;
    FeedBatch batch;
    FeedResult found = batch_stream_next(stream, &batch);
    if (found != FEED_BATCH) return found;
    network_tokens(network, pass, batch.ids, pass->rows, network->model->shape.block);
    network->own_targets += (double)network->targets;
    stream->source->release(stream->source->self, &batch);
    return FEED_BATCH;
}

// Begins the sums that the backward pass has not begun: all buckets, or after it the vectors and the embeddings.
static void reduce_rest(const Network *network, bool layers) {
    for (int layer = network->model->shape.layers - 1; layer >= 0 && layers; layer--) reduce_layer(network, layer);
    reduce_bucket(network, bucket_count(network) - 1); // the vectors
    reduce_bucket(network, 0);                         // the embeddings
}

// A round of a step, for one process.
typedef struct {
    int micro;
    bool own;      // this process has a micro-batch
    bool rechecks; // which is computed twice
    bool reduces;  // gradients are summed over the ranks after it
} Round;

// Ends the exchanges of the round before, because this round overwrites its gradients and the host may wait for copies
// of a batch.
static int finish_round(Collective *ranks) {
    collective_finish(ranks);
    return collective_wait(ranks);
}

static void run_own(Network *network, const Round *round, float scale, bool exchanges) {
    const bool parts = exchanges || (!round->micro && network->collective->world > 1); // parameters may be awaited
    if (parts)
        run_parts(network, scale, round->micro, exchanges);
    else
        step_micro_batch(network, scale, round->micro);
}

// All processes agree before they begin to exchange gradients: in the backward pass, or after it if there is no
// backward pass or it is computed twice.
static FeedResult run_round(Network *network, const Round *round, BatchStream *stream, uint64_t step, float scale) {
    Collective *ranks = network->collective;
    const bool overlaps = round->reduces && !round->rechecks;
    const bool finishes = round->micro == 1 || (round->micro && network->plan->fixed_order);
    if (ranks->world > 1 && finishes && finish_round(ranks) < 0) return FEED_ERROR;
    // its only one of several rounds: the others finish the gather of parameters before they agree
    if (round->reduces && !round->micro && network->plan->rounds > 1 && collective_settle(ranks) < 0) return FEED_ERROR;
    // a single process has checked it before the step
    const bool stops = stop_requested && (round->micro || ranks->world > 1);
    FeedResult found = stops ? FEED_STOPPED : round->own ? next_batch(network, stream) : FEED_BATCH;
    if (overlaps) found = agree_in_step(network, found);
    if (found == FEED_BATCH && round->own) run_own(network, round, scale, overlaps);
    if (found == FEED_BATCH && round->rechecks) // which waits for the device
        if (finish_round(ranks) < 0 || recheck_first_micro_batch(network, scale, step) < 0) found = FEED_ERROR;
    if (!overlaps && (round->reduces || found != FEED_BATCH)) found = agree_in_step(network, found);
    network->micro = round->micro;
    if (ranks->world == 1) agree_in_step(network, found);
    if (found == FEED_BATCH && round->reduces) reduce_rest(network, !overlaps || !round->own);
    return found;
}

// The micro-batches of this process: each of them is reduced, or with reduce_order = fast their sum, with its last.
static FeedResult run_micro_batches(Network *network, const Config *config, BatchStream *stream, uint64_t step,
                                    float scale) {
    const Collective *ranks = network->collective;
    const bool recheck = config->recheck_interval && step % (uint64_t)config->recheck_interval == 0;
    const bool fixed = network->plan->fixed_order, several = ranks->world > 1;
    FeedResult found = FEED_BATCH;
    network->micro_batches = config->gradient_accumulation_steps;
    for (int micro = 0; micro < network->plan->rounds && found == FEED_BATCH; micro++) {
        const int64_t left = network->micro_batches - (int64_t)micro * ranks->world - ranks->rank; // from its own on
        const Round round = {.micro = micro,
                             .own = left > 0,
                             .rechecks = recheck && !micro,
                             .reduces = several && (fixed || left <= ranks->world)};
        if (fixed || round.own) found = run_round(network, &round, stream, step, scale);
    }
    return found;
}

FeedResult step_gradients(Network *network, const Config *config, BatchStream *stream, const StepPosition *position) {
    step_begin(network, config, position);
    const float scale = (float)(1 / step_tokens(network, config));
    return run_micro_batches(network, config, stream, position->step, scale);
}

// The gradients are sums divided by the tokens of the step, and become means over its targets when they are divided by
// the loss scale. Without targets the divisor is 0: the norm is not finite, and so nothing is updated.
static void set_divisor(Network *network, const Config *config, float loss_scale) {
    StepScalars *scalars = network_at(network, network->plan->scalars);
    if (!network->plan->answers) return;
    network->scalars->divisor = (float)(loss_scale * (network->step_targets / step_tokens(network, config)));
    network->ops->upload(&scalars->divisor, &network->scalars->divisor, sizeof scalars->divisor);
}

int step_apply(Network *network, const Config *config, const StepPosition *position, StepResult *result) {
    const double targets = network->step_targets;
    exchange(network);
    if (network->collective->lost) return -1;
    set_divisor(network, config, position->loss_scale);
    gradient_norm(network);
    const bool applied = !skip_spike(network, config, position);
    if (applied) update(network);
    if (network->collective->lost) return -1;
    *result = (StepResult){.loss = targets > 0 ? network->scalars->loss / targets : NAN,
                           .norm = targets > 0 ? network->scalars->norm : NAN,
                           .targets = (uint64_t)targets,
                           .learning_rate = schedule_rate(config, position->cooldown, position->step)};
    const bool values = isfinite(result->loss) && isfinite(result->norm);
    result->finite = values || !result->targets, result->applied = applied && values;
    return 0;
}
