// One optimizer step.
#include "trainer/step.h"
#include "trainer/schedule.h"
#include <math.h>

static void micro_batch(Network *network, const FeedBatch *batch, const Source *source, float scale, bool add) {
    const Pass *pass = &network->plan->train;
    int B = pass->rows, T = network->model->shape.block;
    StepNumbers *numbers = network_at(network, network->plan->numbers);
    network_tokens(network, pass, batch->ids, B, T);
    source->done(source->self, batch);
    if (!network->ops->begin(add)) return; // two kinds of micro-batch: what starts the gradients, and what adds to them
    network_forward(network, pass, B, T);
    network_losses(network, pass, B, T, scale, true, add);
    network->ops->sum_losses(&numbers->loss, network_at(network, pass->losses), B * T);
    network_backward(network, pass, B, T, add);
    network->ops->end(add);
}

FeedResult step_run(Network *network, const Config *config, const Optimizer *optimizer, Stream *stream, uint64_t step,
                    uint64_t update, const volatile int *stop, StepResult *result) {
    const Plan *plan = network->plan;
    int micros = (int)config->gradient_accumulation_steps;
    double tokens = (double)plan->train.rows * network->model->shape.block * micros;
    network->ops->zero(network_at(network, plan->numbers), sizeof(StepNumbers));
    for (int micro = 0; micro < micros; micro++) {
        if (stop && *stop && micro) return FEED_STOPPED;
        FeedBatch batch;
        FeedResult found = stream_next(stream, &batch);
        if (found != FEED_BATCH) return found;
        micro_batch(network, &batch, stream->source, (float)(1 / tokens), micro > 0);
    }
    *result = (StepResult){.learning_rate = schedule_rate(config, step)};
    optimizer->update(network, config, result->learning_rate, update);

    StepNumbers numbers;
    network->ops->download(&numbers, network_at(network, plan->numbers), sizeof numbers);
    result->loss = numbers.loss / tokens, result->norm = numbers.norm;
    result->finite = isfinite(result->loss) && isfinite(result->norm);
    return FEED_BATCH;
}
