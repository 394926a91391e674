// One optimizer step, and the warm-up before the first.
#include "trainer/optim/step.h"
#include "trainer/optim/offload.h"
#include "trainer/optim/recheck.h"
#include "trainer/optim/schedule.h"
#include <math.h>

enum { FIRST_MICRO_BATCH, NEXT_MICRO_BATCH, UPDATE }; // keys of recordings

void step_begin(Network *network, const Config *config, const StepPosition *position) {
    *network->scalars = (StepScalars){.loss_scale = position->loss_scale};
    network->plan->optimizer->prepare(network->scalars->optimizer, config, schedule_rate(config, position->step),
                                      position->update);
    if (network->plan->dropout) {
        const double p = config->dropout;
        network->scalars->dropout = (Dropout){
            .seed = {(uint32_t)config->seed, (uint32_t)((uint64_t)config->seed >> 32)},
            .step = (uint32_t)position->step,
            .threshold = (uint32_t)lround(p * 65536),
            .scale = (float)(1 / (1 - p))
        };
    }
    network->ops->upload(network_at(network, network->plan->scalars), network->scalars, sizeof *network->scalars);
}

void step_micro_batch(Network *network, float scale, int micro) {
    const PassLayout *pass = &network->plan->train;
    int B = pass->rows, T = network->model->shape.block;
    StepScalars *scalars = network_at(network, network->plan->scalars);
    const bool add = micro;
    if (network->plan->dropout) { // its masks are those of the samples of the step, however they are split
        const Collective *ranks = network->collective;
        network->scalars->dropout.first_sample = ((uint32_t)micro * ranks->world + ranks->rank) * (uint32_t)B;
        network->ops->upload(&scalars->dropout, &network->scalars->dropout, sizeof scalars->dropout);
    }
    int key = add ? NEXT_MICRO_BATCH : FIRST_MICRO_BATCH;
    if (!network->ops->graph_begin(key)) return;
    network_forward(network, pass, B, T);
    network_losses(network, pass, B, T, scale, true, add);
    network->ops->sum_losses(&scalars->loss, network_at(network, pass->losses), B * T);
    network_backward(network, pass, B, T, add);
    network->ops->graph_end(key);
}

static void gradient_norm(const Network *network) {
    StepScalars *scalars = network_at(network, network->plan->scalars);
    network->ops->gradient_norm(&scalars->norm, network_at(network, network->plan->grads), network->model->elements,
                                &scalars->loss_scale);
}

// Whether the update has to be left out. To know it before the update costs a wait for the device.
static bool skip_spike(Network *network, const Config *config, const StepPosition *position, double tokens) {
    if (config->spike_action != SPIKE_SKIP || !position->spikes) return false;
    gradient_norm(network);
    network->ops->download(network->scalars, network_at(network, network->plan->scalars), sizeof *network->scalars);
    return spike_score(position->spikes, network->scalars->loss / tokens, (double)network->scalars->norm) >
           config->spike_z;
}

void step_end(Network *network) {
    const bool recorded = !network->plan->host_bytes; // copies to host memory cannot be recorded
    if (!recorded || network->ops->graph_begin(UPDATE)) {
        gradient_norm(network);
        offload_update(network);
        network_pack(network);
        if (recorded) network->ops->graph_end(UPDATE);
    }
    network->ops->download(network->scalars, network_at(network, network->plan->scalars), sizeof *network->scalars);
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
    step_begin(network, config, &position);
    network->ops->zero(network_at(network, pass->tokens),
                       (size_t)pass->rows * (size_t)(config->block_size + 1) * sizeof(uint16_t));
    for (int run = 0; run < 2; run++) { // the first run is executed, the second recorded
        for (int add = 0; add <= adds; add++) step_micro_batch(network, scale, add);
        network_write(network, network->plan->grads, DTYPE_FP32, 0, 1,
                      &nan); // the norm is not finite: the update changes nothing
        step_end(network);
    }
}

FeedResult step_agree(Collective *ranks, FeedResult found, double *loss) {
    enum { LOSS, STOPPED, CHANGED, FAILED, SUMS };
    double sums[SUMS] = {[LOSS] = *loss,
                         [STOPPED] = found == FEED_STOPPED,
                         [CHANGED] = found == FEED_CHANGED,
                         [FAILED] = found == FEED_ERROR};
    if (ranks->world == 1) return found;
    if (collective_all_reduce(ranks, sums, SUMS) < 0 || sums[FAILED] > 0) return FEED_ERROR;
    *loss = sums[LOSS];
    return sums[STOPPED] > 0 ? FEED_STOPPED : sums[CHANGED] > 0 ? FEED_CHANGED : FEED_BATCH;
}

// The micro-batches of this process.
static FeedResult run_micro_batches(Network *network, const Config *config, BatchStream *stream, uint64_t step,
                                    double tokens, const atomic_int *stop) {
    const PassLayout *pass = &network->plan->train;
    const unsigned world = network->collective->world;
    const int micros = (int)config->gradient_accumulation_steps / (int)world;
    for (int micro = 0; micro < micros; micro++) {
        if (stop && *stop && (micro || world > 1)) return FEED_STOPPED; // one process has looked before the step
        FeedBatch batch;
        FeedResult found = batch_stream_next(stream, &batch);
        if (found != FEED_BATCH) return found;
        network_tokens(network, pass, batch.ids, pass->rows, network->model->shape.block);
        stream->source->release(stream->source->self, &batch);
        step_micro_batch(network, (float)(1 / tokens), micro);
        if (!micro && config->recheck_interval && step % (uint64_t)config->recheck_interval == 0 &&
            recheck_first_micro_batch(network, (float)(1 / tokens), step) < 0)
            return FEED_ERROR;
    }
    return FEED_BATCH;
}

// Adds up the losses and gradients of all processes, which are in host memory.
static FeedResult sum_ranks(Network *network, FeedResult found) {
    Collective *ranks = network->collective;
    const size_t elements = network->model->elements, share = collective_share(ranks, elements);
    float *gradients = network_at(network, network->plan->grads);
    StepScalars *scalars = network_at(network, network->plan->scalars);
    found = step_agree(ranks, found, &scalars->loss);
    if (found != FEED_BATCH) return found;
    if (collective_reduce_scatter(ranks, gradients, elements, share) < 0 ||
        collective_all_gather(ranks, gradients, elements * sizeof *gradients, share * sizeof *gradients) < 0)
        return FEED_ERROR;
    return FEED_BATCH;
}

FeedResult step_run(Network *network, const Config *config, BatchStream *stream, const StepPosition *position,
                    const atomic_int *stop, StepResult *result) {
    const double tokens = step_tokens(network, config);
    step_begin(network, config, position);
    FeedResult found = run_micro_batches(network, config, stream, position->step, tokens, stop);
    if (network->collective->world > 1) found = sum_ranks(network, found);
    if (found != FEED_BATCH) return found;
    const bool applied = !skip_spike(network, config, position, tokens);
    if (applied) step_end(network);
    *result = (StepResult){.loss = network->scalars->loss / tokens,
                           .norm = network->scalars->norm,
                           .learning_rate = schedule_rate(config, position->step)};
    result->finite = isfinite(result->loss) && isfinite(result->norm), result->applied = applied && result->finite;
    return FEED_BATCH;
}
