// Times a forward pass over a few rows: a step takes three times as long for each token, and longer with recompute.
// Data, the optimizer and saves are left out.
#include "trainer/run/forecast.h"
#include "common/err.h"
#include "common/log.h"
#include "common/machine/stop.h"
#include "trainer/plan/step_cost.h"
#include "trainer/records/evaluation.h"
#include <math.h>

// On a GPU the pass has the shape of an evaluation, whose kernels exist. On a CPU about a thousand tokens have the rate
// of more.
static int pass_rows(const Run *run, const Evaluation *evaluation) {
    enum { TOKENS = 1024 };
    const PassLayout *pass = &run->engine.plan.eval;
    const uint64_t most = (uint64_t)pass->rows, few = TOKENS / (uint64_t)pass->block + 1,
                   rows = run->engine.backend->in_host_memory ? few : evaluation->parts[0].samples;
    return (int)(rows < most ? rows : most);
}

// -1 after fail() if a stop was requested.
static int run_layer(Network *network, int layer, int rows) {
    const PassLayout *pass = &network->plan->eval;
    StepScalars done; // a download waits for the device
    network_forward_layer(network, pass, layer, rows, pass->block);
    network->ops->download(&done, network_at(network, network->plan->scalars), sizeof done);
    return stop_check("a forward pass was timed");
}

// 0: a stop was requested. A layer of a large model takes a second on a CPU, a pass a minute.
static double pass_seconds(Network *network, int rows) {
    const PassLayout *pass = &network->plan->eval;
    StepScalars done;
    const uint64_t started = clock_ns();
    network_zero_tokens(network, pass, (uint64_t)rows);
    network_forward_embedding(network, pass, rows, pass->block);
    for (int layer = 0; layer < network->model->shape.layers; layer++)
        if (run_layer(network, layer, rows) < 0) return err_clear(), 0;
    network_forward_norm(network, pass, rows, pass->block);
    network_losses(network, pass, rows, pass->block, 0, false, false);
    network->ops->download(&done, network_at(network, network->plan->scalars), sizeof done);
    return (double)(clock_ns() - started) * 1e-9;
}

// Seconds for each token of a forward pass: of the shortest of a few, because the first has begun threads and made
// kernels, and another process may hold the processor during one. 0: a stop was requested.
static double token_seconds(Run *run, int rows) {
    enum { PASSES = 4 };
    const double enough = 10;
    double shortest = INFINITY, spent = 0;
    for (int i = 0; i < PASSES && spent < enough; i++) {
        const double seconds = pass_seconds(&run->engine.network, rows);
        if (seconds <= 0) return 0;
        shortest = fmin(shortest, seconds), spent += seconds;
    }
    return shortest / ((double)rows * run->engine.plan.eval.block);
}

// Also of each token in its forward pass. 0: there is no training split, or a stop was requested.
static double evaluation_seconds(Run *run, double *token_s) {
    const Config *config = &run->engine.config;
    Evaluation evaluations[SPLIT_COUNT];
    for (int split = SPLIT_TRAIN; split <= SPLIT_VAL; split++)
        evaluation_init(&evaluations[split], config, run->engine.feed, split, engine_use(&run->engine)->consumed);
    *token_s = 0;
    if (evaluations[SPLIT_TRAIN].part_count) *token_s = token_seconds(run, pass_rows(run, &evaluations[SPLIT_TRAIN]));
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
