// The spike detector: its scores, its window, and updates that are skipped.
#include "common/rng.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include <math.h>

static double clean_loss(uint64_t step) { return 3 + 4 * exp(-(double)step / 2e4) + 0.05 * rng_normal(1, 0, step); }
static double clean_norm(uint64_t step) { return exp(0.2 * rng_normal(1, 1, step)); }

TEST_CI(spikes_are_not_found_in_a_million_clean_steps) {
    static SpikeWindow window;
    int alarms = 0;
    for (uint64_t step = 0; step < 1000000; step++) {
        alarms += spike_score(&window, clean_loss(step), clean_norm(step)) > 6;
        spike_add(&window, clean_loss(step), clean_norm(step), 6);
    }
    CHECK(alarms <= 1);
}

static SpikeWindow window_after(uint64_t steps) {
    SpikeWindow window = {0};
    for (uint64_t step = 0; step < steps; step++) spike_add(&window, clean_loss(step), clean_norm(step), 6);
    return window;
}

// fault 56
TEST(spikes_of_the_loss_and_of_the_norm_are_found) {
    SpikeWindow window = window_after(1000);
    const double loss = clean_loss(1000);
    CHECK(spike_score(&window, loss, 1) < 6);
    CHECK(spike_score(&window, loss + 0.7, 1) > 6);
    CHECK(spike_score(&window, loss, exp(2)) > 6);
    CHECK(spike_score(&window, loss - 100, 1e-9) == 0); // below is none
    window = window_after(SPIKE_LEAST - 1);
    CHECK(spike_score(&window, 1e9, 1e9) == 0); // too few to compare with
}

// Computed by hand: the mean of 0, 1, .., 63 is 31.5, and the variance of the sample 64 * 65 / 12.
TEST(spike_score_counts_standard_deviations) {
    SpikeWindow window = {0};
    for (int i = 0; i < SPIKE_LEAST; i++) spike_add(&window, i, 1, 6);
    CHECK(fabs(spike_score(&window, 100, 1) - (100 - 31.5) / sqrt(64 * 65 / 12.0)) < 1e-12);
}

TEST(spike_window_rejects_values_that_are_not_finite) {
    SpikeWindow window = window_after(200), same = window;
    spike_add(&window, NAN, 1, 6), spike_add(&window, 3, INFINITY, 6), spike_add(&window, 3, NAN, 6);
    CHECK(!memcmp(&window, &same, sizeof window));
    CHECK(spike_score(&window, NAN, 1) == 0 && spike_score(&window, 3, INFINITY) == 0);
}

TEST(spike_window_follows_a_level_that_stays) {
    SpikeWindow window = window_after(500);
    int alarms = 0;
    for (uint64_t step = 500; step < 700; step++) {
        alarms += spike_score(&window, clean_loss(step) + 1, 1) > 6;
        spike_add(&window, clean_loss(step) + 1, 1, 6);
    }
    CHECK(alarms >= 1 && alarms <= 20);
}

// One step whose loss, about log(97), is to be compared with `losses` of the steps before. Returns the parameters
// after.
static float *step_after(double losses, SpikeAction action, StepResult *result) {
    Tiny tiny;
    SpikeWindow window = {0};
    for (uint64_t i = 0; i < SPIKE_WINDOW; i++)
        spike_add(&window, losses + 0.01 * rng_normal(2, 0, i), exp(3 + rng_normal(2, 1, i)), 6);
    tiny_open(&tiny, &tiny_shape);
    tiny.config.spike_action = action;
    *result = tiny_step(&tiny, 0, &(StepPosition){.loss_scale = 1, .spikes = &window});
    float *params = tiny_read(&tiny, tiny.plan.params);
    tiny_close(&tiny);
    return params;
}

// fault 56
TEST(spike_to_skip_leaves_the_parameters_as_they_are) {
    Tiny tiny;
    StepResult warned, skipped, clean;
    tiny_open(&tiny, &tiny_shape);
    const size_t bytes = tiny.model.elements * sizeof(float);
    float *before = tiny_read(&tiny, tiny.plan.params), *warn = step_after(1, SPIKE_WARN, &warned),
          *skip = step_after(1, SPIKE_SKIP, &skipped), *none = step_after(9, SPIKE_SKIP, &clean);
    CHECK(skipped.finite && !skipped.applied && !memcmp(before, skip, bytes));
    CHECK(warned.applied && memcmp(before, warn, bytes));
    CHECK(clean.applied && !memcmp(none, warn, bytes));
    CHECK(skipped.loss == warned.loss && skipped.norm == warned.norm);
    free(before), free(warn), free(skip), free(none);
    tiny_close(&tiny);
}
