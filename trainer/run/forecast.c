// Times a forward pass over a few rows, of one layer for all: a step takes three times as long for each token, and
// longer with recompute. Data, the optimizer and saves are left out.
#include "trainer/run/forecast.h"
#include "common/err.h"
#include "common/log.h"
#include "common/machine/stop.h"
#include "trainer/plan/step_cost.h"
#include "trainer/records/evaluation.h"
#include <math.h>

// On a GPU the pass has the shape of an evaluation, whose kernels exist. On a CPU a few hundred tokens have the rate of
// more.
static int pass_rows(const Run *run, const Evaluation *evaluation) {
    enum { TOKENS = 256 };
    const PassLayout *pass = &run->engine.plan.eval;
    const uint64_t most = (uint64_t)pass->rows, few = TOKENS / (uint64_t)pass->block + 1,
                   rows = run->engine.backend->in_host_memory ? few : evaluation->parts[0].samples;
    return (int)(rows < most ? rows : most);
}

// Seconds from *started, which becomes the end: a download waits for the device.
static double seconds_since(const Network *network, uint64_t *started) {
    StepScalars done;
    const uint64_t before = *started;
    network->ops->download(&done, network_at(network, network->plan->scalars), sizeof done);
    return (double)((*started = clock_ns()) - before) * 1e-9;
}

// The shortest times of a layer and of all else in a few passes, because the first has begun threads and made kernels,
// and another process may hold the processor during one. Returns the seconds for each token of a pass of all layers;
// 0: a stop was requested.
static double token_seconds(Network *network, int rows) {
    enum { PASSES = 4 };
    const double enough = 1;
    const PassLayout *pass = &network->plan->eval;
    double layer_s = INFINITY, others_s = INFINITY, spent_s = 0;
    for (int i = 0; i < PASSES && (i < 2 || spent_s < enough); i++) {
        uint64_t at = clock_ns();
        network_zero_tokens(network, pass, (uint64_t)rows);
        network_forward_embedding(network, pass, rows, pass->block);
        const double embedding_s = seconds_since(network, &at);
        network_forward_layer(network, pass, 0, rows, pass->block);
        const double one_s = seconds_since(network, &at);
        if (stop_check("a forward pass was timed") < 0) return err_clear(), 0;
        network_forward_norm(network, pass, rows, pass->block);
        network_losses(network, pass, rows, pass->block, 0, false, false);
        const double rest_s = embedding_s + seconds_since(network, &at);
        layer_s = fmin(layer_s, one_s), others_s = fmin(others_s, rest_s), spent_s += one_s + rest_s;
    }
    return (others_s + layer_s * network->model->shape.layers) / ((double)rows * pass->block);
}

// Also of each token in its forward pass. 0: there is no training split, or a stop was requested.
static double evaluation_seconds(Run *run, double *token_s) {
    const Config *config = &run->engine.config;
    Evaluation evaluations[SPLIT_COUNT];
    for (int split = SPLIT_TRAIN; split <= SPLIT_VAL; split++)
        evaluation_init(&evaluations[split], config, run->engine.feed, split, engine_use(&run->engine)->consumed);
    *token_s = 0;
    if (evaluations[SPLIT_TRAIN].part_count)
        *token_s = token_seconds(&run->engine.network, pass_rows(run, &evaluations[SPLIT_TRAIN]));
    const double tokens = (double)(evaluations[SPLIT_TRAIN].tokens + evaluations[SPLIT_VAL].tokens);
    return config->eval_interval ? *token_s * tokens * (config->ema > 0 ? 2 : 1) : 0;
}

double forecast_evaluation(Run *run) {
    double token_s;
    return evaluation_seconds(run, &token_s);
}

void forecast_log(Run *run) {
    const Config *config = &run->engine.config;
    const uint64_t step = run->engine.state.step, left = engine_end(&run->engine) - step;
    const uint64_t between = config->eval_interval ? (uint64_t)config->eval_interval : left + step + 1;
    const uint64_t next = between - step % between, evaluations_left = (left + step % between) / between;
    const double little = 60;
    double token_s;
    if (log_quiet || *config->until || !run_owns(run)) return;

    const double evaluation_s = evaluation_seconds(run, &token_s);
    if (token_s <= 0) return; // the loop ends the run
    const double again = step_cost_recompute(&run->engine.model.shape, run->engine.backend, config->recompute,
                                             (int)config->recompute_layers);
    const double step_s = (3 + again) * token_s *
                          (double)(engine_sequences(&run->engine) * (uint64_t)config->block_size) /
                          run->engine.collective.world; // the processes divide a step, but not an evaluation
    const double first_s = run->engine.state.evaluated ? 0 : evaluation_s;
    const double run_s = first_s + step_s * (double)left + evaluation_s * (double)evaluations_left;
    char evaluation[16], second[16], whole[16];
    if (run_s < little) return;
    human_time(evaluation, evaluation_s), human_time(whole, run_s);
    human_time(second, first_s + step_s * (double)(next < left ? next : left) + evaluation_s);
    log_line("this takes about: an evaluation %s (eval_tokens), until the end of the next %s (eval_interval), the run "
             "%s (max_iters); by a forward pass, without data and optimizer",
             evaluation, second, whole);
}
