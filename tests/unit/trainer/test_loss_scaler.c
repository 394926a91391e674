// Dynamic loss scaling: torch.amp.GradScaler's rule, and fp16 steps under it.
#include "common/rng.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/optim/loss_scaler.h"
#include <math.h>

// The documentation of torch.amp.GradScaler (init_scale 2^16, growth_factor 2, backoff_factor 0.5, growth_interval
// 2000) in closed form: every step with inf or NaN halves, every 2000 in a row without double.
TEST(scaler_follows_gradscalers_rule) {
    LossScaler scaler = {0};
    loss_scaler_init(&scaler, true);
    int row = 0, doubled = 0, halved = 0;
    for (uint64_t step = 0; step < 60000; step++) {
        bool good = rng_u64(3, 1, step) % 9000 >= (step < 40000 ? 2 : 6);
        CHECK(loss_scaler_scale(&scaler) == ldexpf(1, 16 + doubled + row / 2000 - halved));
        loss_scaler_step(&scaler, true, good);
        if (good)
            row++;
        else
            doubled += row / 2000, row = 0, halved++;
    }
    CHECK(doubled > 10 && halved > 10);
}

TEST(scaler_answers_for_gradients_alone_and_down_to_one) {
    LossScaler scaler = {0};
    loss_scaler_init(&scaler, true);
    for (uint32_t i = 1; i <= 16; i++) { // 2^16 to 1
        loss_scaler_step(&scaler, true, false);
        CHECK_EQUAL(scaler.overflow_streak, i);
    }
    CHECK(scaler.scale == 1);
    loss_scaler_step(&scaler, true, false); // that was not the scale
    CHECK(scaler.overflow_streak == 16 && scaler.scale == 1);
    loss_scaler_step(&scaler, true, true);
    CHECK(scaler.overflow_streak == 0 && scaler.good == 1);
    scaler.scale = 1024;
    loss_scaler_step(&scaler, false, false); // nor is a loss that is not finite
    CHECK(scaler.overflow_streak == 0 && scaler.scale == 512 && scaler.good == 0);
    loss_scaler_init(&scaler, true); // of a checkpoint
    CHECK(scaler.scale == 512);
    scaler.scale = 0x1p127f, scaler.good = 1999; // never to infinity
    loss_scaler_step(&scaler, true, true);
    CHECK(scaler.scale == 0x1p127f && scaler.good == 0);
    loss_scaler_init(&scaler, false); // another type
    loss_scaler_step(&scaler, true, false);
    CHECK(scaler.scale == 0 && scaler.overflow_streak == 0 && loss_scaler_scale(&scaler) == 1);
}

typedef struct {
    double losses[16];
    float scales[16], *params;
    int applied;
} Course;

// `steps` on the same eight rows, under a scaler that begins at `scale`.
static Course run_course(Dtype type, float scale, int steps) {
    enum { ROWS = 8 };
    TinyShape shape = tiny_shape;
    shape.batch = ROWS / 2, shape.accumulation = 2, shape.type = type;
    Tiny tiny;
    TestSource memory;
    Course course = {0};
    LossScaler scaler = {.scale = scale};
    tiny_open(&tiny, &shape);
    BatchSource source = test_source(&memory, shape.block, shape.vocab);
    const FeedRequest form = {.split = SPLIT_TRAIN, .mode = SAMPLING_EPOCH, .rows = ROWS / 2, .seed = 1};
    for (int step = 0; step < steps; step++) {
        BatchStream stream = {0};
        StepResult result;
        const StepPlace place = {(uint64_t)course.applied, (uint64_t)course.applied, loss_scaler_scale(&scaler)};
        float *before = tiny_read(&tiny, tiny.plan.params);
        batch_stream_start(&stream, &source, &form, 0, ROWS);
        NEED(step_run(&tiny.network, &tiny.config, &stream, &place, NULL, &result) == FEED_BATCH);
        float *after = tiny_read(&tiny, tiny.plan.params);
        CHECK(!memcmp(before, after, tiny.model.elements * sizeof *after) == !result.finite);
        free(before), free(after);
        course.losses[step] = result.loss, course.scales[step] = place.loss_scale;
        course.applied += result.finite;
        loss_scaler_step(&scaler, isfinite(result.loss), isfinite(result.norm));
    }
    course.params = tiny_read(&tiny, tiny.plan.params);
    free(memory.ids);
    tiny_close(&tiny);
    return course;
}

TEST(steps_in_fp16_recover_from_a_scale_that_overflows) {
    enum { STEPS = 8 };
    Course exact = run_course(DTYPE_FP32, 0, STEPS), whole = run_course(DTYPE_FP16, 0x1p16f, STEPS);
    CHECK(whole.applied == STEPS && exact.losses[STEPS - 1] < exact.losses[0] - 0.05);
    for (int i = 0; i < STEPS; i++) CHECK(fabs(whole.losses[i] - exact.losses[i]) < 1e-3);
    // a scale far too large: skipped and halved until the gradients fit, then as if nothing had been
    Course planted = run_course(DTYPE_FP16, 0x1p24f, 16);
    int skipped = 16 - planted.applied;
    CHECK(skipped > 1 && skipped < 8);
    for (int i = 0; i < skipped; i++) CHECK(planted.losses[i] == planted.losses[skipped]);
    for (int i = 0; i < 16; i++) CHECK(planted.scales[i] == ldexpf(0x1p24f, i < skipped ? -i : -skipped));
    Course fitting = run_course(DTYPE_FP16, planted.scales[15], planted.applied);
    CHECK(!memcmp(planted.losses + skipped, fitting.losses, (size_t)planted.applied * sizeof(double)));
    for (int i = 0; i < STEPS; i++) CHECK(fabs(fitting.losses[i] - exact.losses[i]) < 1e-3);
    free(exact.params), free(whole.params), free(planted.params), free(fitting.params);
}

// Small gradients are lost without a scale: the reason for it all.
TEST(steps_in_fp16_need_the_scale) {
    Course exact = run_course(DTYPE_FP32, 0, 2), scaled = run_course(DTYPE_FP16, 0x1p16f, 2);
    Course plain = run_course(DTYPE_FP16, 1, 2);
    double with = 0, without = 0;
    for (size_t i = 0; i < 1 << 14; i++) {
        with += fabs((double)(scaled.params[i] - exact.params[i]));
        without += fabs((double)(plain.params[i] - exact.params[i]));
    }
    CHECK(with < 0.5 * without);
    free(exact.params), free(scaled.params), free(plain.params);
}
