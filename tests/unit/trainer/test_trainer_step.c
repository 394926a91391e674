// The network on the CPU backend: steps, accumulation, evaluation.
#include "common/machine/cpu.h"
#include "common/machine/stop.h"
#include "kernels/cpu/onednn.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/model/evaluate.h"
#include "trainer/optim/schedule.h"
#include <math.h>

// What steps have packed is what a pack of the parameters gives.
static void check_packed(const Tiny *tiny) {
    for (int i = 0; i < tiny->network.weight_count; i++) {
        const Weight *w = &tiny->network.weights[i];
        const size_t bytes = tiny->backend->packed_bytes(w->rows, w->cols);
        if (!bytes) continue;
        char *packed = malloc(bytes);
        CHECK(packed);
        memcpy(packed, w->packed, bytes);
        tiny->backend->pack(w);
        CHECK(!memcmp(packed, w->packed, bytes));
        free(packed);
    }
}

// The losses and parameters of a run, which others must have bit for bit.
enum { STEPS_MAX = 8 };
typedef struct {
    int count; // of steps
    double losses[STEPS_MAX];
    float *params;
    size_t elements;
} TinyRun;

// A run of `steps` on a tiny model; the caller frees the parameters.
static TinyRun run_tiny(const TinyShape *shape, int steps, float loss_scale) {
    TinyRun run = {.count = steps};
    CHECK(steps <= STEPS_MAX);
    Tiny tiny;
    tiny_open(&tiny, shape);
    for (int step = 0; step < steps; step++) {
        const StepPosition place = {(uint64_t)step, (uint64_t)step, loss_scale, NULL, NULL};
        const StepResult result = tiny_step(&tiny, (uint64_t)(step * shape->batch * shape->accumulation), &place);
        CHECK(result.finite);
        run.losses[step] = result.loss;
    }
    if (steps * shape->accumulation > 8) CHECK_EQUAL(tiny.memory.most, 4); // the window was full
    check_packed(&tiny);
    run.params = tiny_read(&tiny, tiny.plan.params), run.elements = tiny.model.elements;
    tiny_close(&tiny);
    return run;
}

TEST(steps_leave_every_weight_packed_as_it_was_updated) {
    for (OptimizerName name = OPTIMIZER_ADAMW; name <= OPTIMIZER_MUON; name++)
        for (OffloadMode offload = OFFLOAD_NONE; offload <= OFFLOAD_OPTIMIZER; offload++)
            for (Dtype type = DTYPE_FP32; type <= DTYPE_BF16; type++) {
                TinyShape shape = tiny_shape;
                shape.optimizer = optimizer_of(name), shape.offload = offload, shape.type = type;
                free(run_tiny(&shape, 2, 1).params);
            }
}

TEST(steps_match_for_any_split_into_micro_batches) {
    TinyShape whole = tiny_shape, cut = tiny_shape;
    whole.batch = 8, cut.batch = 2, cut.accumulation = 4;
    const TinyRun one = run_tiny(&whole, 5, 1), other = run_tiny(&cut, 5, 1);
    for (int i = 0; i < 5; i++) CHECK(fabs(one.losses[i] - other.losses[i]) < 2e-6);
    CHECK_CLOSE(one.params, other.params, one.elements, 0, 2e-5);
    // the rows that pad the vocabulary stay zero
    Tiny tiny;
    tiny_open(&tiny, &whole);
    const Tensor *wte = model_tensor(&tiny.model, PARAM_WTE, 0);
    for (size_t i = 97 * 32; i < 128 * 32; i++) CHECK(one.params[wte->offset + i] == 0);
    tiny_close(&tiny);
    free(one.params), free(other.params);
}

static void check_same_run(const TinyRun *want, const TinyShape *shape, float scale) {
    const TinyRun run = run_tiny(shape, want->count, scale);
    CHECK(!memcmp(want->losses, run.losses, (size_t)want->count * sizeof *run.losses));
    CHECK(!memcmp(want->params, run.params, want->elements * sizeof *run.params));
    free(run.params);
}

static void check_same_steps(const TinyShape *one, const TinyShape *other, int count) {
    TinyRun run = run_tiny(one, count, 1);
    check_same_run(&run, other, 1);
    free(run.params);
}

// Its masks are computed, not stored: the same for every recompute, number of threads and place of the optimizer.
TEST(steps_with_dropout_are_bit_identical_however_they_are_computed) {
    for (Dtype type = DTYPE_FP32; type <= DTYPE_FP16; type++) {
        TinyShape shape = tiny_shape;
        shape.layers = 3, shape.type = type, shape.accumulation = 2, shape.chunk_rows = 20, shape.dropout = 0.2;
        for (Recompute recompute = RECOMPUTE_NONE; recompute <= RECOMPUTE_BLOCK; recompute++) {
            TinyShape other = shape;
            other.recompute = recompute, other.recompute_layers = (int)recompute % 3;
            other.offload = recompute % 2 ? OFFLOAD_OPTIMIZER : OFFLOAD_NONE, other.threads = 1 + (int)recompute % 3;
            check_same_steps(&shape, &other, 3);
        }
    }
}

// A power of two changes only exponents: bit-identical after clipping (grad_clip is 1) and accumulation.
TEST(steps_are_bit_identical_for_every_loss_scale) {
    TinyShape shape = tiny_shape;
    shape.accumulation = 2;
    TinyRun unscaled = run_tiny(&shape, 5, 1);
    for (float scale = 1024; scale <= 0x1p20f; scale *= 1024) check_same_run(&unscaled, &shape, scale);
    free(unscaled.params);
}

// The optimizer state in host memory streams through three slots in eight slices.
TEST(steps_are_bit_identical_with_an_offloaded_optimizer) {
    static const OptimizerState states[] = {STATE_FP32, STATE_BF16, STATE_BF16_SR};
    for (int i = 0; i < 9; i++) {
        TinyShape here = tiny_shape, away;
        here.optimizer_state = states[i % 3], here.type = (Dtype)(i / 3), here.accumulation = 2;
        away = here, away.offload = OFFLOAD_OPTIMIZER;
        check_same_steps(&here, &away, 4);
    }
}

// Gradients and inputs of layers in host memory: five layers use three slots, each micro-batch adds to their content.
TEST(steps_are_bit_identical_with_offloaded_gradients_and_residuals) {
    for (Dtype type = DTYPE_FP32; type <= DTYPE_FP16; type++) {
        TinyShape shape = tiny_shape;
        shape.layers = 5, shape.type = type, shape.accumulation = 3, shape.threads = 1;
        shape.dropout = type == DTYPE_BF16 ? 0.1 : 0;
        TinyRun kept = run_tiny(&shape, 2, 1);
        shape.offload = OFFLOAD_ALL;
        for (int run = 0; run < 3; run++) {
            shape.recompute = (Recompute)(2 * run + 1), shape.recompute_layers = run;
            shape.warm_up = run == 1;
            check_same_run(&kept, &shape, 1);
        }
        free(kept.params);
    }
}

TEST(steps_are_bit_identical_after_a_warm_up) {
    static const OptimizerState states[] = {STATE_FP32, STATE_BF16, STATE_BF16_SR};
    for (int i = 0; i < 3; i++) {
        TinyShape cold = tiny_shape, warm;
        cold.optimizer_state = states[i], cold.accumulation = 2;
        warm = cold, warm.warm_up = true;
        check_same_steps(&cold, &warm, 3);
    }
}

static const EvaluateRequest five_samples = {.split = SPLIT_VAL, .samples = 5};

// After the first step our code allocates nothing: the linker wraps malloc and counts the calls (malloc_counter.c).
// fault 60
TEST(steps_and_evaluations_allocate_nothing) {
    for (Dtype type = DTYPE_FP32; type <= DTYPE_FP16; type++) {
        TinyShape shape = tiny_shape;
        shape.type = type, shape.accumulation = 2, shape.chunk_rows = 20;
        Tiny tiny;
        tiny_open(&tiny, &shape);
        uint64_t before = 0, rows = (uint64_t)(shape.batch * shape.accumulation);
        for (uint64_t step = 0; step < 4; step++) {
            EvaluateResult found;
            tiny_step(&tiny, step * rows, AFTER_STEPS(step));
            batch_stream_cancel(&tiny.stream); // an evaluation makes requests of its own
            CHECK(evaluate(&tiny.network, &tiny.source, &five_samples, &found) == FEED_BATCH);
            uint64_t made = test_allocations() - tiny.memory.served; // the test source allocates one per batch
            if (step == 0) before = made;
            CHECK_EQUAL(made, before);
        }
        tiny_close(&tiny);
    }
}

// fault 66
TEST(step_stopped_between_micro_batches_changes_nothing) {
    Tiny tiny;
    tiny_open(&tiny, TINY_SHAPE(.accumulation = 3));
    float *before = tiny_read(&tiny, tiny.plan.params);
    tiny_start(&tiny, 0);
    stop_requested = 1;
    const FeedResult stopped = step_gradients(&tiny.network, &tiny.config, &tiny.stream, AFTER_STEPS(0));
    stop_requested = 0;
    CHECK(stopped == FEED_STOPPED);
    CHECK_EQUAL(tiny.memory.served, 1);
    tiny_start(&tiny, 0); // the same step from its start
    tiny.memory.event = FEED_CHANGED, tiny.memory.event_at = 3;
    CHECK(step_gradients(&tiny.network, &tiny.config, &tiny.stream, AFTER_STEPS(0)) == FEED_CHANGED);
    float *after = tiny_read(&tiny, tiny.plan.params);
    CHECK(!memcmp(before, after, tiny.model.elements * sizeof *before));
    free(before), free(after), tiny_close(&tiny);
}

static void check_not_applied(bool offload) {
    Tiny tiny;
    tiny_open(&tiny, TINY_SHAPE(.offload = offload ? OFFLOAD_OPTIMIZER : OFFLOAD_NONE));
    float *params = network_at(&tiny.network, tiny.plan.params), infinite = INFINITY;
    size_t bad = model_tensor(&tiny.model, PARAM_LNF_W, 0)->offset;
    params[bad] = infinite;
    float *before = tiny_read(&tiny, tiny.plan.params), *moments = tiny_read(&tiny, tiny.plan.states[0]);
    CHECK(!tiny_step(&tiny, 0, AFTER_STEPS(0)).finite);
    float *after = tiny_read(&tiny, tiny.plan.params), *moments_after = tiny_read(&tiny, tiny.plan.states[0]);
    CHECK(!memcmp(before, after, tiny.model.elements * sizeof *before));
    CHECK(!memcmp(moments, moments_after, tiny.model.elements * sizeof *moments));
    free(before), free(after), free(moments), free(moments_after), tiny_close(&tiny);
}

// fault 55
TEST(step_with_a_non_finite_loss_is_not_applied) { check_not_applied(false), check_not_applied(true); }

static double evaluate_in(int rows, Dtype type, size_t *train_end) {
    Tiny tiny;
    tiny_open(&tiny, TINY_SHAPE(.eval_batch = rows, .type = type, .batch = 8, .chunk_rows = 50));
    EvaluateResult found;
    CHECK(evaluate(&tiny.network, &tiny.source, &(EvaluateRequest){.split = SPLIT_VAL, .samples = 21}, &found) ==
          FEED_BATCH);
    CHECK_EQUAL(tiny.memory.served, (21 + rows - 1) / rows);
    *train_end = tiny.plan.bytes;
    tiny_close(&tiny);
    return found.loss;
}

// On AVX2 oneDNN rounds a product by its number of rows.
TEST(evaluation_is_bit_identical_for_every_batch_size) {
    const bool exact = cpu_isa() == ISA_PORTABLE || product_has_avx512();
    for (Dtype type = DTYPE_FP32; type <= DTYPE_FP16; type++) {
        size_t bytes, same;
        double loss = evaluate_in(1, type, &bytes);
        CHECK(fabs(loss - log(97)) < 0.5);
        for (int rows = 2; rows <= 8; rows++) {
            const double other = evaluate_in(rows, type, &same);
            CHECK(exact ? other == loss : fabs(other - loss) < 1e-6);
            CHECK_EQUAL(same, bytes); // inside the memory of the training pass
        }
    }
}

TEST(evaluation_has_no_dropout) {
    EvaluateResult found[2];
    for (int i = 0; i < 2; i++) {
        Tiny tiny;
        tiny_open(&tiny, TINY_SHAPE(.dropout = i ? 0.2 : 0));
        CHECK(evaluate(&tiny.network, &tiny.source, &five_samples, &found[i]) == FEED_BATCH);
        tiny_close(&tiny);
    }
    CHECK(found[0].loss == found[1].loss);
}

// nanochat's bits per byte by hand: total_nats += (loss * (num_bytes > 0)).sum(), total_bytes += num_bytes.sum().
TEST(evaluation_counts_nats_and_bytes_of_targets_with_a_text_alone) {
    uint8_t token_bytes[97];
    for (int id = 0; id < 97; id++) token_bytes[id] = (uint8_t)(id % 3 ? id % 7 + 1 : 0);
    TinyShape shape = tiny_shape;
    shape.eval_batch = 5; // one batch, whose losses are left in the arena
    Tiny tiny;
    tiny_open(&tiny, &shape);
    EvaluateRequest request = five_samples;
    EvaluateResult found;
    request.token_bytes = token_bytes;
    CHECK(evaluate(&tiny.network, &tiny.source, &request, &found) == FEED_BATCH);
    const float *losses = network_at(&tiny.network, tiny.plan.eval.losses);
    double nats = 0, all = 0;
    uint64_t bytes = 0;
    const int T = shape.block;
    for (int sample = 0; sample < 5; sample++)
        for (int t = 0; t < T; t++) {
            const uint8_t length = token_bytes[test_row_id(SPLIT_VAL, (uint64_t)sample, t + 1, T, 97)];
            all += losses[sample * T + t];
            nats += length ? losses[sample * T + t] : 0;
            bytes += length;
        }
    CHECK(bytes && nats < 0.9 * all);
    CHECK_EQUAL(found.bytes, bytes);
    CHECK(fabs(found.text_nats - nats) < 1e-6 * nats);
    CHECK(fabs(found.loss - all / (5 * T)) < 1e-6);
    tiny_close(&tiny);
}

// nanoGPT's get_lr, evaluated by hand in Python for warmup 5, decay 20, 1e-3 to 1e-4
TEST(schedule_matches_nanogpt) {
    Config config = {
        .learning_rate = 1e-3, .min_lr = 1e-4, .warmup_iters = 5, .lr_decay_iters = 20, .lr_schedule = LR_COSINE};
    static const struct {
        uint64_t step;
        double rate;
    } wanted[] = {{0, 0.00016666666666666666},
                  {4, 0.0008333333333333334},
                  {5, 0.001},
                  {12, 0.0005970378084704441},
                  {19, 0.00010983357966978738},
                  {20, 1e-4},
                  {1000, 1e-4}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        CHECK(fabs(schedule_rate(&config, NULL, wanted[i].step) - wanted[i].rate) < 1e-15);
    config.lr_schedule = LR_LINEAR;
    CHECK(fabs(schedule_rate(&config, NULL, 11) - (1e-4 + 0.6 * 9e-4)) < 1e-15);
    config.lr_schedule = LR_CONSTANT;
    CHECK(schedule_rate(&config, NULL, 19) == 1e-3);
    config.lr_schedule = LR_WSD, config.cooldown_iters = 4; // the square root of 1/4 and of 9/16 at 17 and 18.25
    CHECK(fabs(schedule_rate(&config, NULL, 4) - 0.0008333333333333334) < 1e-15);
    CHECK(schedule_rate(&config, NULL, 5) == 1e-3 && schedule_rate(&config, NULL, 16) == 1e-3);
    CHECK(fabs(schedule_rate(&config, NULL, 17) - (1e-4 + 0.5 * 9e-4)) < 1e-15);
    CHECK(fabs(schedule_rate(&config, NULL, 20) - 1e-4) < 1e-15);
    config.cooldown_iters = 0; // a fifth: the same four steps
    CHECK(fabs(schedule_rate(&config, NULL, 17) - (1e-4 + 0.5 * 9e-4)) < 1e-15);
    config.lr_schedule = LR_CONSTANT, config.warmup_iters = 0;
    CHECK(schedule_rate(&config, NULL, 0) == 1e-3);
}

// Mean loss of the last 50 of 300 steps over the same eight rows, which a tiny model memorizes.
static double learn(OptimizerState optimizer_state) {
    enum { STEPS = 300, LAST = 50 };
    Tiny tiny;
    tiny_open(&tiny, TINY_SHAPE(.batch = 8, .optimizer_state = optimizer_state));
    tiny.config.learning_rate = 3e-3, tiny.config.min_lr = 3e-4, tiny.config.lr_decay_iters = STEPS;
    double last = 0;
    for (int step = 0; step < STEPS; step++) {
        const StepResult result = tiny_step(&tiny, 0, AFTER_STEPS(step));
        CHECK(result.finite);
        if (step >= STEPS - LAST) last += result.loss / LAST;
    }
    tiny_close(&tiny);
    return last;
}

TEST_CI(optimizer_states_of_two_bytes_reach_the_loss_of_fp32) {
    double full = learn(STATE_FP32), m8 = learn(STATE_BF16), sr = learn(STATE_BF16_SR);
    CHECK(m8 != full && sr != full && sr != m8);
    CHECK(full < 0.1 && fabs(m8 - full) < 0.02 * full && fabs(sr - full) < 0.05 * full);
}
