// Attention of every kind of head width against a reference in double precision: odd widths, where a pair of bf16 is
// half empty, and widths beyond 256.
#include "tests/unit/kernels/fixture_kernels.h"

enum { B = 2, T = 70, H = 3, LAYER = 5 };

typedef struct {
    double *out, *dqkv, *lse;
} Reference;

static double *doubles(size_t n) { return host(n, sizeof(double)); }

// qkv (B,T,3C) and dout (B,T,C) hold values of the activation type.
static Reference reference(const float *qkv, const float *dout, const Dropout *dropout, int D) {
    const size_t C = (size_t)(H * D), n = (size_t)(B * T) * C, width = (size_t)D;
    const double scale = 1 / sqrt((double)D);
    Reference r = {doubles(n), doubles(3 * n), doubles((size_t)(B * H * T))};
    double p[T], dp[T], factor[T];
    for (size_t b = 0; b < B; b++)
        for (size_t h = 0; h < H; h++) {
            const float *q = qkv + b * T * 3 * C + h * width, *g = dout + b * T * C + h * width;
            double *o = r.out + b * T * C + h * width, *d = r.dqkv + b * T * 3 * C + h * width;
            for (size_t t = 0; t < T; t++) {
                double sum = 0, delta = 0;
                for (size_t s = 0; s <= t; s++) {
                    double score = 0;
                    for (size_t i = 0; i < width; i++) score += (double)q[t * 3 * C + i] * (double)q[s * 3 * C + C + i];
                    sum += p[s] = exp(score * scale);
                }
                r.lse[(b * H + h) * T + t] = log(sum);
                for (size_t s = 0; s <= t; s++) {
                    p[s] /= sum, dp[s] = 0;
                    factor[s] = !dropout ? 1
                                         : (double)dropout_factor(dropout, LAYER, DROPOUT_ATTENTION, (uint32_t)b,
                                                                  (uint32_t)(h * T + t), T, (uint32_t)s);
                    for (size_t i = 0; i < width; i++) {
                        const double v = (double)q[s * 3 * C + 2 * C + i], dy = (double)g[t * C + i];
                        o[t * C + i] += p[s] * factor[s] * v, dp[s] += dy * v * factor[s];
                        d[s * 3 * C + 2 * C + i] += p[s] * factor[s] * dy;
                    }
                    delta += p[s] * dp[s];
                }
                for (size_t s = 0; s <= t; s++) {
                    const double ds = p[s] * (dp[s] - delta) * scale;
                    for (size_t i = 0; i < width; i++) {
                        d[t * 3 * C + i] += ds * (double)q[s * 3 * C + C + i];
                        d[s * 3 * C + C + i] += ds * (double)q[t * 3 * C + i];
                    }
                }
            }
        }
    return r;
}

// The norm of the difference, relative to the norm of the reference.
static void check_norm(const char *what, int D, const Kernels *k, const float *got, const double *want, size_t n) {
    static const double bounds[] = {[DTYPE_FP32] = 2e-6, [DTYPE_BF16] = 5e-3, [DTYPE_FP16] = 7e-4};
    double error = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        const double difference = (double)got[i] - want[i];
        error += difference * difference, norm += want[i] * want[i];
    }
    error = sqrt(error / norm);
    if (!(error < bounds[k->ops->act_type]))
        print_error("%s of width %d in %s: relative error %.2g\n", what, D, dtype_name(k->ops->act_type), error);
    CHECK(error < bounds[k->ops->act_type]);
}

static void check_width(Dtype type, const Dropout *dropout, int D) {
    const size_t C = (size_t)(H * D), n = (size_t)(B * T) * C, rows = (size_t)(B * H * T);
    const Shape shape = {.B = B, .T = T, .C = (int)C, .H = H, .V = 64, .chunk_rows = 64, .threads = 2};
    Kernels k = kernels_open(type, 2, &shape);
    Act *qkv = PUT_ACT(&k, numbers(1, 3 * n, 1), 3 * n), *dout = PUT_ACT(&k, numbers(2, n, 1), n);
    Act *out = take(&k, n * 4), *dqkv = take(&k, 3 * n * 4);
    float *lse = take(&k, rows * 4);
    Dropout *on_device = dropout ? take(&k, sizeof *dropout) : NULL;
    if (dropout) k.ops->upload(on_device, dropout, sizeof *dropout);
    Grad *dbias = take(&k, 3 * C * 4);
    const Reference want = reference(GET_ACT(&k, qkv, 3 * n), GET_ACT(&k, dout, n), dropout, D);
    k.ops->attention_forward(out, lse, qkv, on_device, LAYER, B, T, H, D);
    k.ops->attention_backward(dqkv, dbias, dout, out, lse, qkv, on_device, LAYER, B, T, H, D, false);
    double *columns = doubles(3 * C);
    for (size_t i = 0; i < 3 * n; i++) columns[i % (3 * C)] += want.dqkv[i];
    check_norm("out", D, &k, GET_ACT(&k, out, n), want.out, n);
    check_norm("lse", D, &k, get(&k, lse, rows, 4), want.lse, rows);
    check_norm("dqkv", D, &k, GET_ACT(&k, dqkv, 3 * n), want.dqkv, 3 * n);
    check_norm("dbias of v", D, &k, GET_GRAD(&k, dbias, 3 * C) + 2 * C, columns + 2 * C, C);
    kernels_close(&k);
}

TEST(kernels_attention_matches_double_precision_at_every_head_width) {
    static const int widths[] = {1, 3, 25, 43, 64, 100, 128, 255, 256, 257, 320, 768};
    for (Dtype type = DTYPE_FP32; type <= DTYPE_FP16; type++)
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) check_width(type, NULL, widths[i]);
}

TEST(kernels_attention_with_dropout_matches_double_precision) {
    static const Dropout dropout = {
        {1337, 42},
        7, 3, 13107, 1.25f
    };
    for (Dtype type = DTYPE_FP32; type <= DTYPE_FP16; type++)
        for (int D = 24; D <= 25; D++) check_width(type, &dropout, D);
}
