// One optimizer step.
#include "trainer/step.h"
#include "trainer/schedule.h"
#include <math.h>

void step_begin(Network *network, const Config *config, const Optimizer *optimizer, const StepPlace *place) {
    *network->numbers = (StepNumbers){.loss_scale = place->loss_scale};
    optimizer->prepare(network->numbers, config, schedule_rate(config, place->step), place->update);
    network->ops->upload(network_at(network, network->plan->numbers), network->numbers, sizeof *network->numbers);
}

void step_micro_batch(Network *network, float scale, bool add) {
    const Pass *pass = &network->plan->train;
    int B = pass->rows, T = network->model->shape.block;
    StepNumbers *numbers = network_at(network, network->plan->numbers);
    if (!network->ops->begin(add)) return; // two kinds of micro-batch: what starts the gradients, and what adds to them
    network_forward(network, pass, B, T);
    network_losses(network, pass, B, T, scale, true, add);
    network->ops->sum_losses(&numbers->loss, network_at(network, pass->losses), B * T);
    network_backward(network, pass, B, T, add);
    network->ops->end(add);
}

void step_end(Network *network, const Optimizer *optimizer) {
    optimizer->update(network);
    network->ops->download(network->numbers, network_at(network, network->plan->numbers), sizeof *network->numbers);
}

FeedResult step_run(Network *network, const Config *config, const Optimizer *optimizer, Stream *stream,
                    const StepPlace *place, const volatile int *stop, StepResult *result) {
    const Pass *pass = &network->plan->train;
    int micros = (int)config->gradient_accumulation_steps, T = network->model->shape.block;
    double tokens = (double)pass->rows * T * micros;
    step_begin(network, config, optimizer, place);
    for (int micro = 0; micro < micros; micro++) {
        if (stop && *stop && micro) return FEED_STOPPED;
        FeedBatch batch;
        FeedResult found = stream_next(stream, &batch);
        if (found != FEED_BATCH) return found;
        network_tokens(network, pass, batch.ids, pass->rows, T);
        stream->source->done(stream->source->self, &batch);
        step_micro_batch(network, (float)(1 / tokens), micro > 0);
    }
    step_end(network, optimizer);
    *result = (StepResult){.loss = network->numbers->loss / tokens,
                           .norm = network->numbers->norm,
                           .learning_rate = schedule_rate(config, place->step)};
    result->finite = isfinite(result->loss) && isfinite(result->norm);
    return FEED_BATCH;
}
