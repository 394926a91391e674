// The engine of train, without the writers. bench_grid.py makes the same run on the texts of the grid.
#include "trainer/run/short_run.h"
#include "common/err.h"
#include "common/log.h"
#include "trainer/engine/engine_data.h"
#include "trainer/engine/steps.h"
#include "trainer/plan/scaling_law.h"
#include <math.h>

enum { DEPTH = 2, STEPS = 110, COOLED_STEPS = 22, EARLY_FROM = 31, EARLY_TO = 50 };

static Config configure(const Config *given) {
    Config config = *given;
    const int64_t rows = SCALING_LAW_STEP_TOKENS / config.block_size;
    config.n_layer = config.n_head = DEPTH, config.n_embd = (int64_t)64 * DEPTH, config.n_kv_head = 0;
    config.batch_size.value = rows > 1 ? rows : 1, config.batch_size.is_auto = false;
    config.gradient_accumulation_steps = 1;
    config.optimizer = OPTIMIZER_MUON, config.learning_rate = 2e-3, config.min_lr = 0, config.muon_learning_rate = 0;
    config.warmup_iters = SCALING_LAW_WARMUP, config.max_iters = config.lr_decay_iters = STEPS;
    config.lr_schedule = LR_WSD, config.cooldown_iters = COOLED_STEPS;
    config.eval_interval = STEPS; // not 0, which takes data without a validation split
    config.eval_tokens = SCALING_LAW_EVAL_TOKENS;
    config.until = "";
    return config;
}

static int run_steps(Engine *engine, const Config *config, ShortRun *run) {
    Evaluation evaluations[SPLIT_COUNT];
    ComputedStep step;
    FeedResult result = FEED_BATCH;
    if (engine_open(engine, config, true, false) < 0 || engine_take_state(engine, false) < 0 ||
        engine_connect(engine) < 0 || engine_open_weights(engine, false) < 0 || feed_attach(engine->feed) < 0 ||
        engine_data_update(engine, true) < 0)
        return -1;
    const uint64_t started = clock_ns();
    double early = 0;
    while (result == FEED_BATCH && engine->state.step < STEPS) {
        result = engine_step(engine, &step);
        if (engine->state.step >= EARLY_FROM && engine->state.step <= EARLY_TO) early += step.result.loss;
    }
    run->seconds = (double)(clock_ns() - started) * 1e-9;
    if (result == FEED_BATCH) result = engine_evaluate(engine, evaluations);
    if (result == FEED_CHANGED) return fail(EX_AGAIN, "the dataset changed during the short run: plan again");
    if (result == FEED_STOPPED) return fail(EX_AGAIN, "stopped during the short run");
    if (result == FEED_ERROR) return -1;
    run->loss = evaluations[SPLIT_VAL].bits_per_byte;
    run->fall = 1 - evaluations[SPLIT_VAL].loss / (early / (EARLY_TO - EARLY_FROM + 1));
    if (isfinite(run->loss)) return 0;
    return fail(EX_USAGE, "the short run on '%s' has no bits per byte: set vocabulary=FILE", config->dataset);
}

int short_run(ShortRun *run, const Config *given) {
    static Engine engine;
    const Config config = configure(given);
    const bool quiet = log_quiet;
    log_line("a short run on '%s' takes some seconds", config.dataset);
    log_quiet = true;
    const int result = run_steps(&engine, &config, run);
    engine_close(&engine);
    log_quiet = quiet;
    return result;
}
