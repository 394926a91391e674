// Muon: singular values after a step, its state in the plan, and the same bits whatever the threads and the offload. A
// run of it is compared with torch.optim.Muon in test_trainer_parity.c.
#include "common/rng.h"
#include "kernels/half.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/checkpoint/checkpoint.h"
#include <math.h>

enum { MATRICES = 1 << KIND_MATRIX | 1 << KIND_RESIDUAL };

// ---- orthogonalization

// count orthonormal columns of `rows` numbers: column k is out[k * rows ...].
static void orthonormal(double *out, int rows, int count, uint64_t seed) {
    for (int i = 0; i < rows * count; i++) out[i] = rng_normal(seed, 0, (uint64_t)i);
    for (int k = 0; k < count; k++) {
        double *column = out + k * rows, length = 0;
        for (int twice = 0; twice < 2; twice++)
            for (int j = 0; j < k; j++) {
                double dot = 0;
                for (int i = 0; i < rows; i++) dot += column[i] * out[j * rows + i];
                for (int i = 0; i < rows; i++) column[i] -= dot * out[j * rows + i];
            }
        for (int i = 0; i < rows; i++) length += column[i] * column[i];
        for (int i = 0; i < rows; i++) column[i] /= sqrt(length);
    }
}

// What the published iteration makes of a singular value, in double precision.
static double iterated(double s) {
    for (int step = 0; step < 5; step++) s = 3.4445 * s - 4.7750 * pow(s, 3) + 2.0315 * pow(s, 5);
    return s;
}

// The singular values of a gradient fall from 1 to `least` of the largest, those after the first `rank` are 0. limit is
// that of the relative error in fp32. Of a null space the iteration multiplies rounding errors by 3.4445^5.
typedef struct {
    double least;
    int rank;
    double limit;
} Spectrum;
static const Spectrum spectra[] = {{0.02, 32, 1e-5}, {1e-8, 32, 1.5e-5}, {1, 1, 2e-4}, {1, 0, 0}};

// A gradient (rows,cols) U S V^T, and U f(S) V^T.
static void make_gradient(int rows, int cols, uint64_t seed, const Spectrum *spectrum, float *gradient,
                          double *wanted) {
    const int n = rows < cols ? rows : cols;
    double *u = malloc((size_t)(rows * n) * sizeof *u), *v = malloc((size_t)(cols * n) * sizeof *v), length = 0;
    CHECK(u && v);
    orthonormal(u, rows, n, seed), orthonormal(v, cols, n, seed + 1);
    memset(wanted, 0, (size_t)(rows * cols) * sizeof *wanted);
    double *sum = calloc((size_t)(rows * cols), sizeof *sum);
    CHECK(sum);
    for (int k = 0; k < spectrum->rank; k++) length += pow(pow(spectrum->least, (double)k / (n - 1)), 2);
    for (int k = 0; k < spectrum->rank; k++) {
        const double s = pow(spectrum->least, (double)k / (n - 1)), f = iterated(s / sqrt(length));
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < cols; j++) {
                sum[i * cols + j] += s * u[k * rows + i] * v[k * cols + j];
                wanted[i * cols + j] += f * u[k * rows + i] * v[k * cols + j];
            }
    }
    for (int i = 0; i < rows * cols; i++) gradient[i] = (float)sum[i];
    free(u), free(v), free(sum);
}

static double bf16(double x) { return (double)bf16_value(bf16_of((float)x)); }

// out (rows,cols) = a x + c m y in bf16, m (rows,rows)
static void torch_addmm(double *out, double a, const double *x, double c, const double *m, const double *y, int rows,
                        int cols) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            double sum = 0;
            for (int k = 0; k < rows; k++) sum += m[i * rows + k] * y[k * cols + j];
            out[i * cols + j] = bf16(a * x[i * cols + j] + c * sum);
        }
}

// The squared error of the iteration of torch.optim.Muon, every result of which is rounded to bf16.
static double torch_error(int rows, int cols, const float *gradient, const double *wanted) {
    enum { MOST = 128 * 128 };
    static double x[MOST], next[MOST], gram[MOST], update[MOST];
    const int n = rows < cols ? rows : cols, m = rows < cols ? cols : rows;
    double length = 0, error = 0;
#define TURNED(i, j) (rows > cols ? (j)*cols + (i) : (i)*cols + (j))
    for (int i = 0; i < n * m; i++) x[i] = bf16((double)gradient[TURNED(i / m, i % m)]), length += x[i] * x[i];
    for (int i = 0; i < n * m; i++) x[i] = bf16(x[i] / fmax(bf16(sqrt(length)), 1e-7));
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                double sum = 0;
                for (int k = 0; k < m; k++) sum += x[i * m + k] * x[j * m + k];
                gram[i * n + j] = bf16(sum);
            }
        torch_addmm(update, -4.7750, gram, 2.0315, gram, gram, n, n);
        torch_addmm(next, 3.4445, x, 1, update, x, n, m);
        memcpy(x, next, sizeof x);
    }
    for (int i = 0; i < n * m; i++) error += pow(x[i] - wanted[TURNED(i / m, i % m)], 2);
#undef TURNED
    return error;
}

// One step with a learning rate of 1, from gradients whose singular vectors are known. In bf16
// the limit is the error of torch.
static void check_orthogonalization(Dtype type, const Spectrum *spectrum) {
    Tiny tiny;
    tiny_open(&tiny, TINY_SHAPE(.optimizer = optimizer_of(OPTIMIZER_MUON), .type = type));
    tiny.config.learning_rate = 1, tiny.config.lr_schedule = LR_CONSTANT, tiny.config.warmup_iters = 0,
    tiny.config.weight_decay = 0;
    const ParamId ids[] = {PARAM_QKV_W, PARAM_ATT_W, PARAM_FC_W, PARAM_PROJ_W};
    double *wanted = calloc(tiny.model.elements, sizeof *wanted);
    float *gradients = calloc(tiny.model.elements, sizeof *gradients), *before = tiny_read(&tiny, tiny.plan.params);
    CHECK(wanted && gradients);
    for (int i = 0; i < 4; i++) {
        const Tensor *tensor = model_tensor(&tiny.model, ids[i], 1);
        const int parts = ids[i] == PARAM_QKV_W ? 3 : 1, rows = tensor->rows / parts;
        for (int part = 0; part < parts; part++) {
            const size_t at = tensor->offset + (size_t)(part * rows * tensor->cols);
            make_gradient(rows, tensor->cols, (uint64_t)(10 * i + 2 * part + 1), spectrum, gradients + at, wanted + at);
        }
    }
    network_write(&tiny.network, tiny.plan.grads, DTYPE_FP32, 0, tiny.model.elements, gradients);
    step_begin(&tiny.network, &tiny.config, AFTER_STEPS(0));
    step_end(&tiny.network);
    float *after = tiny_read(&tiny, tiny.plan.params);
    for (int i = 0; i < 4; i++) {
        const Tensor *tensor = model_tensor(&tiny.model, ids[i], 1);
        const int rows = ids[i] == PARAM_QKV_W ? tensor->rows / 3 : tensor->rows;
        const double factor = 0.2 * sqrt(rows > tensor->cols ? rows : tensor->cols);
        double error = 0, size = 0, torch = 0;
        for (size_t k = tensor->offset; k < tensor->offset + tensor_elements(tensor); k++) {
            const double got = (double)(before[k] - after[k]) / factor;
            error += pow(got - wanted[k], 2), size += pow(wanted[k], 2);
        }
        for (size_t k = tensor->offset; k < tensor->offset + tensor_elements(tensor);
             k += (size_t)(rows * tensor->cols))
            torch += torch_error(rows, tensor->cols, gradients + k, wanted + k);
        CHECK(error <= (type == DTYPE_BF16 ? torch : pow(spectrum->limit, 2) * size));
    }
    free(wanted), free(gradients), free(before), free(after);
    tiny_close(&tiny);
}

static void check_spectra(Dtype type) {
    for (size_t i = 0; i < sizeof spectra / sizeof *spectra; i++) check_orthogonalization(type, &spectra[i]);
}

TEST(muon_orthogonalizes_in_float32) { check_spectra(DTYPE_FP32); }
TEST(muon_in_bfloat16_is_not_farther_from_double_precision_than_torch) { check_spectra(DTYPE_BF16); }
TEST(muon_orthogonalizes_in_float16) { check_orthogonalization(DTYPE_FP16, &(const Spectrum){0.02, 32, 1e-2}); }

// ---- the plan

TEST(muon_keeps_one_number_for_each_of_a_matrix_and_two_for_the_rest) {
    Tiny tiny;
    tiny_open(&tiny, TINY_SHAPE(.optimizer = optimizer_of(OPTIMIZER_MUON)));
    const MemoryPlan *plan = &tiny.plan;
    size_t matrices = 0;
    for (int i = 0; i < tiny.model.count; i++)
        if (MATRICES >> tiny.model.tensors[i].kind & 1) matrices += tensor_elements(&tiny.model.tensors[i]);
    CHECK_EQUAL(matrices, 12 * 32 * 32 * 2);
    CHECK_EQUAL(plan->scalars - plan->states[0], 8 * (tiny.model.elements - matrices) + 4 * matrices);
    // fc: (128,32) of fp32 three times, (32,32) four times, the norm and the sums of its pieces
    const size_t workspace = 4 * (3 * 128 * 32 + 4 * 32 * 32) + 2 * 256;
    bool listed = false;
    for (int i = 0; i < plan->table.count; i++)
        if (!strcmp(plan->table.rows[i].name, "workspace of the update"))
            listed = plan->table.rows[i].overlaid && plan->table.rows[i].bytes == workspace;
    CHECK(listed);
    CHECK(plan->update.workspace == plan->passes && plan->update.workspace + workspace <= plan->bytes);
    tiny_close(&tiny);
}

// ---- bits

TEST(muon_gives_the_same_bits_with_any_threads_offloaded_and_resumed) {
    enum { STEPS = 6, RUNS = 5 };
    static const Dtype types[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
    static const OptimizerState states[] = {STATE_FP32, STATE_BF16_SR, STATE_FP32};
    for (int type = 0; type < 3; type++) {
        float *want = NULL;
        for (int i = 0; i < RUNS; i++) {
            TinyShape shape = tiny_shape;
            shape.optimizer = optimizer_of(OPTIMIZER_MUON), shape.type = types[type];
            shape.optimizer_state = states[type];
            shape.threads = i < 3 ? i + 1 : 2, shape.offload = i == 3;
            Tiny tiny;
            tiny_open(&tiny, &shape);
            if (i == RUNS - 1) { // a pause in the middle
                char out[16], path[64];
                RunState saved;
                snprintf(out, sizeof out, "run%d", type);
                snprintf(path, sizeof path, "%s/ckpt-%08d", out, STEPS / 2);
                run_state_init(&saved);
                saved.step = STEPS / 2;
                tiny_train(&tiny, 0, STEPS / 2, NULL);
                CHECK(dir_make(out) == 0 && checkpoint_save(&tiny.network, &saved, &tiny.config, out, NULL) == 0);
                tiny_close(&tiny);
                tiny_open(&tiny, &shape);
                CHECK(checkpoint_load(&tiny.network, path, true) == 0);
                tiny_train(&tiny, STEPS / 2, STEPS, NULL);
            } else {
                tiny_train(&tiny, 0, STEPS, NULL);
            }
            const size_t bytes = tiny.model.elements * sizeof(float);
            float *got = tiny_read(&tiny, tiny.plan.params);
            CHECK(!i || !memcmp(want, got, bytes));
            free(i ? got : NULL);
            if (!i) want = got;
            tiny_close(&tiny);
        }
        free(want);
    }
}
