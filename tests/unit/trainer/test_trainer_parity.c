// Losses, norms and logits against a PyTorch model like nanoGPT's with the same weights and batches
// (tests/oracle/trainer/make_trainer_parity.py).
#include "tests/unit/trainer/fixture_trainer.h"
#include <math.h>

enum { STEPS = 10, BLOCK = 16, VOCAB = 97, FIRST_ROW = 12 };

// Reads the next line of the file, which must be called `name`.
static float *read_values(FILE *file, const char *name, int want) {
    char found[64];
    int count = 0;
    CHECK(fscanf(file, "%63s %d", found, &count) == 2 && !strcmp(found, name));
    CHECK_EQUAL(count, want);
    float *values = malloc((size_t)count * sizeof *values);
    CHECK(values);
    for (int i = 0; i < count; i++) CHECK(fscanf(file, "%f", &values[i]) == 1);
    return values;
}

static void check_logits(Tiny *tiny, FILE *file, const char *name, double atol) {
    enum { ROWS = BLOCK - FIRST_ROW };
    uint16_t ids[BLOCK + 1];
    float logits[ROWS * VOCAB], *wanted = read_values(file, name, ROWS * VOCAB);
    for (int t = 0; t <= BLOCK; t++) ids[t] = test_row_id(1, 0, t, BLOCK, VOCAB);
    network_tokens(&tiny->network, &tiny->plan.eval, ids, 1, BLOCK);
    network_forward(&tiny->network, &tiny->plan.eval, 1, BLOCK);
    for (int row = 0; row < ROWS; row++)
        network_logits(&tiny->network, &tiny->plan.eval, FIRST_ROW + row, logits + row * VOCAB);
    CHECK_CLOSE(logits, wanted, ROWS * VOCAB, 0, atol);
    free(wanted);
}

// Numbers of each matrix that Muon has updated: those of c_attn are three.
static void check_matrices(const Tiny *tiny, FILE *file) {
    enum { STRIDE = 37, MOST = 4 * 32 * 32 / STRIDE + 1 };
    float *params = tiny_read(tiny, tiny->plan.params), got[MOST];
    for (int layer = 0; layer < tiny->model.shape.layers; layer++)
        for (ParamId id = PARAM_QKV_W; id <= PARAM_PROJ_W; id++) {
            const Tensor *tensor = model_tensor(&tiny->model, id, layer);
            const size_t parts = id == PARAM_QKV_W ? 3 : 1, elements = tensor_elements(tensor) / parts;
            for (size_t part = 0; part < parts; part++) {
                int count = 0;
                double error = 0, size = 0;
                for (size_t i = 0; i < elements; i += STRIDE)
                    got[count++] = params[tensor->offset + part * elements + i];
                float *wanted = read_values(file, "matrix", count);
                for (int i = 0; i < count; i++) {
                    error += pow((double)(got[i] - wanted[i]), 2);
                    size += pow((double)wanted[i], 2);
                }
                CHECK(sqrt(error / size) < 1e-4);
                free(wanted);
            }
        }
    free(params);
}

static void check_parity(FILE *file, bool bias, double dropout, int end_of_text, OptimizerName optimizer, Dtype type,
                         double atol) {
    Tiny tiny;
    float losses[STEPS], norms[STEPS];
    tiny_open(&tiny, TINY_SHAPE(.batch = 4, .accumulation = 2, .eval_batch = 1, .bias = bias, .dropout = dropout,
                                .end_of_text = end_of_text, .type = type, .optimizer = optimizer_of(optimizer)));
    tiny.config.learning_rate = 1e-2, tiny.config.min_lr = 1e-3, tiny.config.muon_learning_rate = 5e-3;
    check_logits(&tiny, file, "logits_before", atol);
    for (int step = 0; step < STEPS; step++) {
        const StepResult result = tiny_step(&tiny, (uint64_t)step * 8, AFTER_STEPS(step));
        losses[step] = (float)result.loss, norms[step] = result.norm;
    }
    float *wanted = read_values(file, "losses", STEPS);
    CHECK_CLOSE(losses, wanted, STEPS, 0, atol);
    free(wanted);
    wanted = read_values(file, "norms", STEPS);
    CHECK_CLOSE(norms, wanted, STEPS, 0, atol);
    free(wanted);
    check_logits(&tiny, file, "logits_after", atol);
    if (optimizer == OPTIMIZER_MUON && type == DTYPE_FP32) check_matrices(&tiny, file);
    tiny_close(&tiny);
}

static void check_both(Dtype type, double atol) {
    char path[4096];
    snprintf(path, sizeof path, "%s/trainer_parity.txt", test_data);
    FILE *file = fopen(path, "r");
    CHECK(file);
    check_parity(file, false, 0, 0, OPTIMIZER_ADAMW, type, atol);
    check_parity(file, true, 0, 0, OPTIMIZER_ADAMW, type, atol);
    check_parity(file, true, 0.2, 0, OPTIMIZER_ADAMW, type, atol);
    check_parity(file, true, 0.2, test_row_id(1, 0, 9, BLOCK, VOCAB), OPTIMIZER_ADAMW, type, atol);
    check_parity(file, true, 0, 0, OPTIMIZER_MUON, type, atol);
    fclose(file);
}

TEST(parity_with_torch_in_float32) { check_both(DTYPE_FP32, 1e-5); }
TEST(parity_with_torch_in_bfloat16) { check_both(DTYPE_BF16, 0.2); }
TEST(parity_with_torch_in_float16) { check_both(DTYPE_FP16, 0.02); }
