// The gradients of the reference (reference.h) against central differences of its forward operations, along random
// directions, in double precision.
#include "common/rng.h"
#include "tests/operations/reference.h"
#include "tests/test.h"
#include <math.h>

enum { MAX = 4096 };
static const Dropout dropout = {{1, 2}, 3, 4, 13107, 1.25f};

// Up to three inputs that are differentiated, and one output.
typedef struct {
    size_t in_count[3], out_count;
    double step, bound; // of the differences; 0: 1e-5 and 2e-6, as mean, rstd and lse are floats
    double in[3][MAX], gradient[3][MAX], out[MAX], dout[MAX];
} Numbers;
static Numbers x;

static void fill(double *values, size_t count, uint64_t seed) {
    for (size_t i = 0; i < count; i++) values[i] = rng_normal(seed, 0, i);
}

// forward computes x.out from x.in, backward x.gradient from x.dout.
static void check_gradient(void (*forward)(void), void (*backward)(void), Numbers start) {
    static double direction[3][MAX], at[3][MAX];
    x = start;
    fill(x.dout, x.out_count, 9);
    for (int i = 0; i < 3; i++)
        fill(x.in[i], x.in_count[i], (uint64_t)i), fill(direction[i], x.in_count[i], 20 + (uint64_t)i);
    memcpy(at, x.in, sizeof at);
    forward();
    backward();
    double want[3] = {0};
    for (int i = 0; i < 3; i++)
        for (size_t k = 0; k < x.in_count[i]; k++) want[i] += x.gradient[i][k] * direction[i][k];
    for (int i = 0; i < 3; i++) {
        if (!x.in_count[i]) continue;
        double along[2] = {0}, step = x.step > 0 ? x.step : 1e-5;
        for (int side = 0; side < 2; side++) {
            for (size_t k = 0; k < x.in_count[i]; k++) x.in[i][k] = at[i][k] + (side ? -step : step) * direction[i][k];
            forward();
            for (size_t k = 0; k < x.out_count; k++) along[side] += x.out[k] * x.dout[k];
        }
        memcpy(x.in[i], at[i], sizeof at[i]);
        const double got = (along[0] - along[1]) / (2 * step);
        if (!(fabs(got - want[i]) <= (x.bound > 0 ? x.bound : 2e-6) * (1 + fabs(want[i])))) {
            print_error("input %d: %.9g by differences, %.9g by the backward operation\n", i, got, want[i]);
            test_failed("gradient", __FILE__, __LINE__);
        }
    }
}

#define T_(pointer) ((void *)(pointer))
static const uint16_t rows[] = {3, 1, 4, 1, 5, 2, 0, 5, 3, 5, 1, 2};
enum { B = 2, T = 5, C = 6, N = B * T, V = 8, ROWS = 7, HEADS = 2 };
static float mean[N], rstd[N], lse[B * HEADS * T];
static double unused[MAX];

static void embed(void) {
    reference_backend()->embed_forward(T_(x.out), rows, NULL, T_(x.in[0]), T_(x.in[1]), B, T, C, V);
}
static void embed_gradient(void) {
    reference_backend()->embed_backward(T_(x.gradient[0]), T_(x.gradient[1]), T_(x.dout), rows, B, T, C, V, false);
}
TEST(reference_embedding_has_the_gradient_of_its_differences) {
    check_gradient(embed, embed_gradient, (Numbers){.in_count = {V * C, T * C}, .out_count = N * C});
}

static void layernorm(void) {
    const Norm norm = {N, C, T_(x.in[1]), T_(x.in[2]), mean, rstd};
    reference_backend()->layernorm_forward(T_(unused), T_(x.out), T_(x.in[0]), NULL, &norm);
}
static void rms_norm(void) {
    const Norm norm = {N, C, T_(x.in[1]), NULL, NULL, rstd};
    reference_backend()->layernorm_forward(T_(unused), T_(x.out), T_(x.in[0]), NULL, &norm);
}
static void rms_norm_gradient(void) {
    const Norm norm = {N, C, T_(x.in[1]), NULL, NULL, rstd};
    const NormGradients to = {T_(x.gradient[1]), NULL, NULL};
    reference_backend()->layernorm_backward(T_(x.gradient[0]), T_(unused + MAX / 2), &to, T_(x.dout), T_(unused), &norm,
                                            true, false);
}
TEST(reference_rms_norm_has_the_gradient_of_its_differences) {
    check_gradient(rms_norm, rms_norm_gradient, (Numbers){.in_count = {N * C, C}, .out_count = N * C});
}

static void layernorm_gradient(void) {
    const Norm norm = {N, C, T_(x.in[1]), NULL, mean, rstd};
    const NormGradients to = {T_(x.gradient[1]), T_(x.gradient[2]), NULL};
    reference_backend()->layernorm_backward(T_(x.gradient[0]), T_(unused + MAX / 2), &to, T_(x.dout), T_(unused), &norm,
                                            true, false);
}
TEST(reference_layernorm_has_the_gradient_of_its_differences) {
    check_gradient(layernorm, layernorm_gradient, (Numbers){.in_count = {N * C, C, C}, .out_count = N * C});
}

static Weight weight(void) { return (Weight){T_(x.in[1]), NULL, ROWS, C}; }
static void matmul(void) {
    const Weight w = weight();
    reference_backend()->matmul_forward(T_(x.out), T_(x.in[0]), &w, T_(x.in[2]), N);
}
static void matmul_gradient(void) {
    const Weight w = weight();
    reference_backend()->matmul_backward_input(T_(x.gradient[0]), T_(x.dout), &w, N);
    reference_backend()->matmul_backward_weight(T_(x.gradient[1]), T_(x.dout), T_(x.in[0]), N, ROWS, C, false);
    for (int n = 0; n < N; n++)
        for (int r = 0; r < ROWS; r++) x.gradient[2][r] += x.dout[n * ROWS + r];
}
TEST(reference_matmul_has_the_gradient_of_its_differences) {
    check_gradient(matmul, matmul_gradient, (Numbers){.in_count = {N * C, ROWS * C, ROWS}, .out_count = N * ROWS});
}

static Activation activation;
static void gelu(void) { reference_backend()->gelu_forward(T_(x.out), T_(x.in[0]), N * C, activation); }
static void gelu_gradient(void) {
    memcpy(x.gradient[0], x.dout, sizeof x.dout);
    reference_backend()->gelu_backward(T_(x.gradient[0]), NULL, T_(x.in[0]), N, C, activation, false);
}
TEST(reference_gelu_has_the_gradient_of_its_differences) {
    for (activation = ACTIVATION_GELU_TANH; activation <= ACTIVATION_RELU2; activation++)
        check_gradient(gelu, gelu_gradient, (Numbers){.in_count = {N * C}, .out_count = N * C});
}

static void swiglu(void) { reference_backend()->swiglu_forward(T_(x.out), T_(x.in[0]), N, C); }
static void swiglu_gradient(void) {
    memcpy(x.gradient[0], x.in[0], sizeof x.in[0]);
    reference_backend()->swiglu_backward(T_(x.gradient[0]), NULL, T_(x.dout), N, C, false);
}
TEST(reference_swiglu_has_the_gradient_of_its_differences) {
    check_gradient(swiglu, swiglu_gradient, (Numbers){.in_count = {2 * N * C}, .out_count = N * C});
}

// Without gains and rotation, with either, with both; each alone and with keys and values that two heads share.
enum { WIDTH = 6, QUERIES = 4 };
static bool gains, rotated;
static int kept;
static float angles[T * WIDTH];
static Heads heads_now(void) {
    return (Heads){.B = B,
                   .T = T,
                   .H = QUERIES,
                   .K = kept,
                   .D = WIDTH,
                   .q_gain = gains ? T_(x.in[1]) : NULL,
                   .k_gain = gains ? T_(x.in[2]) : NULL,
                   .rotation = rotated ? angles : NULL};
}
static void heads(void) {
    const Heads now = heads_now();
    reference_backend()->heads_forward(T_(x.out), T_(x.in[0]), &now);
}
static void heads_gradient(void) {
    const Heads now = heads_now();
    reference_backend()->heads_backward(T_(x.gradient[0]), T_(x.gradient[1]), T_(x.gradient[2]), NULL, T_(x.dout),
                                        T_(x.in[0]), &now, false);
}
TEST(reference_heads_have_the_gradient_of_their_differences) {
    for (int i = 0; i < T * WIDTH; i++) angles[i] = (float)rng_normal(11, 0, (uint64_t)i);
    for (int variation = 0; variation < 8; variation++) {
        gains = variation & 1, rotated = variation & 2, kept = variation & 4 ? QUERIES / 2 : QUERIES;
        check_gradient(
            heads, heads_gradient,
            (Numbers){.in_count = {(size_t)(N * (QUERIES + 2 * kept) * WIDTH), gains ? WIDTH : 0, gains ? WIDTH : 0},
                      .out_count = N * 3 * QUERIES * WIDTH});
    }
}

static Attention causal = {.B = B, .T = T, .H = HEADS, .D = C / HEADS, .layer = 3};
static void attention(void) { reference_backend()->attention_forward(T_(x.out), lse, T_(x.in[0]), &causal); }
static void attention_gradient(void) {
    reference_backend()->attention_backward(T_(x.gradient[0]), NULL, T_(x.dout), T_(x.out), lse, T_(x.in[0]), &causal,
                                            false);
}
TEST(reference_attention_has_the_gradient_of_its_differences) {
    int32_t documents[N];
    for (int n = 0; n < N; n++) documents[n] = n % T / 2 * 2;
    for (int form = 0; form < 4; form++) {
        causal.dropout = form % 2 ? &dropout : NULL, causal.starts = form / 2 ? documents : NULL;
        check_gradient(attention, attention_gradient, (Numbers){.in_count = {N * 3 * C}, .out_count = N * C});
    }
}

static const float one = 1;
static CrossEntropy loss = {.M = N, .T = T, .vocab = V - 1, .V = V, .scale = 1, .loss_scale = &one};
static void cross_entropy(void) {
    float losses[N];
    loss.gradient = false;
    reference_backend()->cross_entropy(T_(x.in[0]), losses, rows, &loss);
    for (int n = 0; n < N; n++) x.out[n] = (double)losses[n];
}
static void cross_entropy_gradient(void) {
    float losses[N];
    loss.gradient = true;
    memcpy(x.gradient[0], x.in[0], sizeof x.in[0]);
    reference_backend()->cross_entropy(T_(x.gradient[0]), losses, rows, &loss);
    for (int i = 0; i < N * V; i++) x.gradient[0][i] *= x.dout[i / V];
}
TEST(reference_cross_entropy_has_the_gradient_of_its_differences) {
    for (int variation = 0; variation < 4; variation++) {
        loss.softcap = variation & 1 ? 4.0f : 0, loss.z_loss = variation & 2 ? 0.1f : 0;
        // losses are floats
        check_gradient(cross_entropy, cross_entropy_gradient,
                       (Numbers){.in_count = {N * V}, .out_count = N, .step = 4e-3, .bound = 5e-5});
    }
}
