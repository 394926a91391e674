// Dynamic loss scaling: the rule of torch.amp.GradScaler, and fp16 steps under it.
#include "common/rng.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/optim/loss_scaler.h"
#include <math.h>

// The documentation of torch.amp.GradScaler (init_scale 2^16, growth_factor 2, backoff_factor 0.5, growth_interval
// 2000) in closed form: a step with inf or NaN halves the scale, 2000 finite steps in a row double it.
TEST(scaler_matches_gradscaler) {
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

TEST(scaler_counts_overflows_of_gradients_until_the_scale_is_one) {
    LossScaler scaler = {0};
    loss_scaler_init(&scaler, true);
    for (uint32_t i = 1; i <= 16; i++) { // 2^16 to 1
        loss_scaler_step(&scaler, true, false);
        CHECK_EQUAL(scaler.overflow_streak, i);
    }
    CHECK(scaler.scale == 1);
    loss_scaler_step(&scaler, true, false); // the scale is 1 already: not its overflow
    CHECK(scaler.overflow_streak == 16 && scaler.scale == 1);
    loss_scaler_step(&scaler, true, true);
    CHECK(scaler.overflow_streak == 0 && scaler.good == 1);
    scaler.scale = 1024;
    loss_scaler_step(&scaler, false, false); // a loss that is not finite is not its overflow either
    CHECK(scaler.overflow_streak == 0 && scaler.scale == 512 && scaler.good == 0);
    loss_scaler_init(&scaler, true); // keeps the state of a checkpoint
    CHECK(scaler.scale == 512);
    scaler.scale = 0x1p127f, scaler.good = 1999; // never doubled to infinity
    loss_scaler_step(&scaler, true, true);
    CHECK(scaler.scale == 0x1p127f && scaler.good == 0);
    loss_scaler_init(&scaler, false); // another dtype has no scale
    loss_scaler_step(&scaler, true, false);
    CHECK(scaler.scale == 0 && scaler.overflow_streak == 0 && loss_scaler_scale(&scaler) == 1);
}

typedef struct {
    double losses[16];
    float scales[16], *params;
    int applied;
} Trajectory;

// Runs `steps` steps on the same eight rows, with a scaler that starts at `scale`.
static Trajectory run_trajectory(Dtype type, float scale, int steps) {
    Tiny tiny;
    Trajectory trajectory = {0};
    LossScaler scaler = {.scale = scale};
    tiny_open(&tiny, TINY_SHAPE(.batch = 4, .accumulation = 2, .type = type));
    for (int step = 0; step < steps; step++) {
        const StepPosition place = {(uint64_t)trajectory.applied, (uint64_t)trajectory.applied,
                                    loss_scaler_scale(&scaler), NULL, NULL};
        float *before = tiny_read(&tiny, tiny.plan.params);
        const StepResult result = tiny_step(&tiny, 0, &place);
        float *after = tiny_read(&tiny, tiny.plan.params);
        CHECK(!memcmp(before, after, tiny.model.elements * sizeof *after) == !result.finite);
        free(before), free(after);
        trajectory.losses[step] = result.loss, trajectory.scales[step] = place.loss_scale;
        trajectory.applied += result.finite;
        loss_scaler_step(&scaler, isfinite(result.loss), isfinite(result.norm));
    }
    trajectory.params = tiny_read(&tiny, tiny.plan.params);
    tiny_close(&tiny);
    return trajectory;
}

TEST(steps_in_fp16_recover_from_a_scale_that_overflows) {
    enum { STEPS = 8 };
    Trajectory exact = run_trajectory(DTYPE_FP32, 0, STEPS), whole = run_trajectory(DTYPE_FP16, 0x1p16f, STEPS);
    CHECK(whole.applied == STEPS && exact.losses[STEPS - 1] < exact.losses[0] - 0.05);
    for (int i = 0; i < STEPS; i++) CHECK(fabs(whole.losses[i] - exact.losses[i]) < 1e-3);
    // a scale far too large: steps are skipped and the scale halved until the gradients fit; then the steps are
    // unchanged
    Trajectory planted = run_trajectory(DTYPE_FP16, 0x1p24f, 16);
    int skipped = 16 - planted.applied;
    CHECK(skipped > 1 && skipped < 8);
    for (int i = 0; i < skipped; i++) CHECK(planted.losses[i] == planted.losses[skipped]);
    for (int i = 0; i < 16; i++) CHECK(planted.scales[i] == ldexpf(0x1p24f, i < skipped ? -i : -skipped));
    Trajectory fitting = run_trajectory(DTYPE_FP16, planted.scales[15], planted.applied);
    CHECK(!memcmp(planted.losses + skipped, fitting.losses, (size_t)planted.applied * sizeof(double)));
    for (int i = 0; i < STEPS; i++) CHECK(fabs(fitting.losses[i] - exact.losses[i]) < 1e-3);
    free(exact.params), free(whole.params), free(planted.params), free(fitting.params);
}

// Without a scale, small gradients underflow.
TEST(steps_in_fp16_need_the_scale) {
    Trajectory exact = run_trajectory(DTYPE_FP32, 0, 2), scaled = run_trajectory(DTYPE_FP16, 0x1p16f, 2);
    Trajectory plain = run_trajectory(DTYPE_FP16, 1, 2);
    double with = 0, without = 0;
    for (size_t i = 0; i < 1 << 14; i++) {
        with += fabs((double)(scaled.params[i] - exact.params[i]));
        without += fabs((double)(plain.params[i] - exact.params[i]));
    }
    CHECK(with < 0.5 * without);
    free(exact.params), free(scaled.params), free(plain.params);
}
