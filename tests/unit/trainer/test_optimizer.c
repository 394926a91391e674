// The optimizer table: a row that is unlike AdamW in everything a row may say is planned, run, offloaded, saved and
// loaded without a change anywhere else.
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"
#include <math.h>

enum { MATRICES = 1 << KIND_MATRIX | 1 << KIND_RESIDUAL, VECTORS = 1 << KIND_GAIN | 1 << KIND_BIAS };

typedef struct {
    float rate;
} MomentumScalars;

static size_t updated, slices;
static bool whole;

static void momentum_prepare(void *scalars, const Config *config, double learning_rate, uint64_t update) {
    (void)config, (void)update;
    *(MomentumScalars *)scalars = (MomentumScalars){(float)learning_rate};
}

// Momentum for matrices, one tensor at a time; a sum of squares for vectors; nothing for embeddings.
static void momentum_update(const Network *network, const Slice *slice) {
    const float rate = ((const MomentumScalars *)slice->scalars)->rate;
    const Update *of = &slice->update;
    const float *gradients = (const float *)of->gradients;
    float *params = (float *)of->params, *momentum = slice->state[0], *squares = slice->state[1];
    updated += of->count, slices++;
    if (!isfinite(*of->norm)) return;
    const Tensor *tensor = slice->tensor;
    CHECK((tensor != NULL) == (momentum != NULL) && !(momentum && squares));
    if (tensor) {
        CHECK(tensor->offset == of->first && tensor_elements(tensor) == of->count);
        CHECK(MATRICES >> tensor->kind & 1);
        whole = true;
    }
    for (size_t i = 0; i < of->count; i++) {
        const float g = gradients[i] / *of->divisor;
        if (squares) squares[i] += g * g;
        if (momentum) momentum[i] = 0.9f * momentum[i] + g;
        params[i] -= rate * (momentum ? momentum[i] : squares ? g / (sqrtf(squares[i]) + 1e-8f) : g);
    }
    if (of->weight) network->ops->pack(of->weight);
}

static const Optimizer momentum_row = {
    .name = "momentum",
    .states = {{"momentum.b", MATRICES, false}, {"momentum.s", VECTORS, false}},
    .state_count = 2,
    .whole_kinds = MATRICES,
    .scalar_bytes = sizeof(MomentumScalars),
    .prepare = momentum_prepare,
    .update = momentum_update,
};

static void open_momentum(Tiny *tiny, bool offload) {
    tiny_open(tiny, TINY_SHAPE(.optimizer = &momentum_row, .offload = offload ? OFFLOAD_OPTIMIZER : OFFLOAD_NONE));
    tiny->config.learning_rate = 0.1;
}

TEST(optimizer_row_has_state_for_the_parameters_it_names_only) {
    Tiny tiny;
    open_momentum(&tiny, false);
    size_t matrices = 0, vectors = 0;
    for (int i = 0; i < tiny.model.count; i++) {
        const Tensor *tensor = &tiny.model.tensors[i];
        if (MATRICES >> tensor->kind & 1) {
            CHECK_EQUAL(optimizer_offset(&momentum_row.states[0], &tiny.model, tensor), matrices);
            matrices += tensor_elements(tensor); // multiples of 64: no gaps
        } else if (VECTORS >> tensor->kind & 1) {
            vectors += (tensor_elements(tensor) + 63) / 64 * 64;
        }
    }
    CHECK_EQUAL(optimizer_elements(&momentum_row.states[0], &tiny.model), matrices);
    CHECK_EQUAL(optimizer_elements(&momentum_row.states[1], &tiny.model), vectors);
    CHECK(tiny.plan.states[1] - tiny.plan.states[0] < matrices * 4 + 256);
    CHECK(tiny.plan.scalars - tiny.plan.states[1] < vectors * 4 + 256);
    tiny_close(&tiny);
}

TEST(optimizer_slices_cover_each_parameter_once_and_keep_whole_tensors) {
    enum { STEPS = 6 };
    double losses[2][STEPS];
    float *params[2];
    size_t elements = 0;
    for (int offload = 0; offload < 2; offload++) {
        Tiny tiny;
        open_momentum(&tiny, offload);
        updated = slices = 0, whole = false;
        tiny_train(&tiny, 0, STEPS, losses[offload]);
        CHECK(whole);
        CHECK_EQUAL(updated, STEPS * tiny.model.elements);
        CHECK(!offload == !tiny.plan.host_bytes);
        elements = tiny.model.elements;
        params[offload] = tiny_read(&tiny, tiny.plan.params);
        tiny_close(&tiny);
    }
    CHECK(!memcmp(losses[0], losses[1], sizeof losses[0]));
    CHECK(!memcmp(params[0], params[1], elements * sizeof(float)));
    free(params[0]), free(params[1]);
}

TEST(optimizer_state_of_a_row_is_saved_loaded_and_reset) {
    enum { STEPS = 6 };
    double whole_run[STEPS], halves[STEPS];
    for (int offload = 0; offload < 2; offload++) {
        Tiny tiny;
        RunState saved;
        SafeFile file;
        char out[16];
        snprintf(out, sizeof out, "run%d", offload);
        open_momentum(&tiny, offload);
        tiny_train(&tiny, 0, STEPS / 2, whole_run);
        run_state_init(&saved);
        saved.step = STEPS / 2;
        CHECK(dir_make(out) == 0 && checkpoint_save(&tiny.network, &saved, &tiny.config, out, NULL) == 0);
        tiny_train(&tiny, STEPS / 2, STEPS, whole_run);
        tiny_close(&tiny);

        char path[64];
        snprintf(path, sizeof path, "%s/ckpt-%08d", out, STEPS / 2);
        open_momentum(&tiny, offload);
        CHECK(checkpoint_load(&tiny.network, path, true) == 0);
        tiny_train(&tiny, STEPS / 2, STEPS, halves);
        CHECK(!memcmp(whole_run + STEPS / 2, halves + STEPS / 2, STEPS / 2 * sizeof *halves));
        network_reset_optimizer(&tiny.network);
        float values[64];
        for (int s = 0; s < momentum_row.state_count; s++) {
            network_read(&tiny.network, tiny.plan.states[s], DTYPE_FP32, 0, 64, values);
            for (int i = 0; i < 64; i++) CHECK(values[i] == 0);
        }
        tiny_close(&tiny);

        snprintf(path, sizeof path, "%s/ckpt-%08d/optimizer.safetensors", out, STEPS / 2);
        CHECK(safe_open(&file, path) == 0);
        CHECK(safe_find(&file, "momentum.b.h.1.mlp.c_fc.weight") && safe_find(&file, "momentum.s.ln_f.bias"));
        CHECK(!safe_find(&file, "momentum.b.wte.weight") && !safe_find(&file, "momentum.b.ln_f.bias"));
        safe_close(&file);
    }
}
