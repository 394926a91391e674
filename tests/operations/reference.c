// reference.h: plain loops in double precision.
#include "tests/operations/reference.h"
#include "common/id_array.h"
#include "kernels/muon_scalars.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define IN(tensor)  ((const double *)(const void *)(tensor))
#define OUT(tensor) ((double *)(void *)(tensor))

static double sum_or_set(double old, double value, bool add) { return add ? old + value : value; }

// dbias (cols) = or += the column sums of d (rows,cols)
static void column_sums(Grad *dbias, const double *d, size_t rows, size_t cols, bool add) {
    if (!dbias) return;
    for (size_t c = 0; c < cols; c++) {
        double total = 0;
        for (size_t r = 0; r < rows; r++) total += d[r * cols + c];
        OUT(dbias)[c] = sum_or_set(OUT(dbias)[c], total, add);
    }
}

// Token n of B sequences, in rows of T+1.
static int token_of(const void *rows, int n, int T, unsigned bytes) {
    return (int)id_at(rows, (size_t)(n / T * (T + 1) + n % T), bytes);
}

static int position_of(const int32_t *positions, int n, int T) { return positions ? positions[n] : n % T; }

static void reference_embed_forward(Res *out, const void *rows, const int32_t *positions, const Par *wte,
                                    const Par *wpe, int B, int T, int C, int vocab) {
    const unsigned bytes = id_bytes((unsigned)vocab);
    for (int n = 0; n < B * T; n++)
        for (int c = 0; c < C; c++) OUT(out)
    [n * C + c] =
        IN(wte)[token_of(rows, n, T, bytes) * C + c] + (wpe ? IN(wpe)[position_of(positions, n, T) * C + c] : 0);
}

static void reference_embed_backward(Grad *dwte, Grad *dwpe, const Res *dout, const void *rows, int B, int T, int C,
                                     int vocab, bool add) {
    const unsigned bytes = id_bytes((unsigned)vocab);
    if (!add && dwpe) memset(dwpe, 0, (size_t)T * (size_t)C * sizeof(double));
    for (int n = 0; n < B * T; n++)
        for (int c = 0; c < C; c++) {
            OUT(dwte)[token_of(rows, n, T, bytes) * C + c] += IN(dout)[n * C + c];
            if (dwpe) OUT(dwpe)[n % T * C + c] += IN(dout)[n * C + c];
        }
}

static void reference_layernorm_forward(Res *sum, Act *out, const Res *in, const Act *branch, const Norm *norm) {
    const int N = norm->N, C = norm->C;
    for (int n = 0; n < N; n++) {
        double *x = OUT(sum) + n * C, *y = OUT(out) + n * C, total = 0, squares = 0;
        for (int c = 0; c < C; c++) total += x[c] = IN(in)[n * C + c] + (branch ? IN(branch)[n * C + c] : 0);
        if (!norm->mean) total = 0;
        for (int c = 0; c < C; c++) squares += (x[c] - total / C) * (x[c] - total / C);
        const double scale = 1 / sqrt(squares / C + 1e-5);
        for (int c = 0; c < C; c++)
            y[c] = (x[c] - total / C) * scale * IN(norm->weight)[c] + (norm->bias ? IN(norm->bias)[c] : 0);
        if (norm->mean) norm->mean[n] = (float)(total / C);
        norm->rstd[n] = (float)scale;
    }
}

static void reference_layernorm_backward(Res *dsum, Act *dsum_act, const NormGradients *gradients, const Act *dout,
                                         const Res *sum, const Norm *norm, bool first, bool add) {
    const int N = norm->N, C = norm->C;
    const double *weight = IN(norm->weight);
    const float *mean = norm->mean;
    double *dw = calloc((size_t)C, sizeof *dw);
    for (int n = 0; n < N; n++) {
        const double *dy = IN(dout) + n * C, *x = IN(sum) + n * C, scale = (double)norm->rstd[n];
        const double middle = mean ? (double)mean[n] : 0;
        double dot = 0, total = 0;
        for (int c = 0; c < C; c++) {
            const double normalized = (x[c] - middle) * scale, d = dy[c] * weight[c];
            dot += d * normalized, total += mean ? d : 0, dw[c] += dy[c] * normalized;
        }
        for (int c = 0; c < C; c++) {
            const double normalized = (x[c] - middle) * scale, d = dy[c] * weight[c];
            const double through = scale * (d - total / C - normalized * dot / C);
            OUT(dsum_act)[n * C + c] = OUT(dsum)[n * C + c] = sum_or_set(OUT(dsum)[n * C + c], through, !first);
        }
    }
    for (int c = 0; c < C; c++) OUT(gradients->weight)[c] = sum_or_set(OUT(gradients->weight)[c], dw[c], add);
    column_sums(gradients->bias, IN(dout), (size_t)N, (size_t)C, add);
    column_sums(gradients->below, IN(dsum), (size_t)N, (size_t)C, add);
    free(dw);
}

static void reference_matmul_forward(Act *out, const Act *in, const Weight *w, const Par *bias, int M) {
    for (int m = 0; m < M; m++)
        for (int r = 0; r < w->rows; r++) {
            double total = bias ? IN(bias)[r] : 0;
            for (int c = 0; c < w->cols; c++) total += IN(in)[m * w->cols + c] * IN(w->param)[r * w->cols + c];
            OUT(out)[m * w->rows + r] = total;
        }
}

static void reference_matmul_backward_input(Act *din, const Act *dout, const Weight *w, int M) {
    memset(din, 0, (size_t)M * (size_t)w->cols * sizeof(double));
    for (int m = 0; m < M; m++)
        for (int r = 0; r < w->rows; r++)
            for (int c = 0; c < w->cols; c++)
                OUT(din)[m * w->cols + c] += IN(dout)[m * w->rows + r] * IN(w->param)[r * w->cols + c];
}

static void reference_matmul_backward_weight(Grad *dw, const Act *dout, const Act *in, int M, int rows, int cols,
                                             bool add) {
    if (!add) memset(dw, 0, (size_t)rows * (size_t)cols * sizeof(double));
    for (int m = 0; m < M; m++)
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < cols; c++) OUT(dw)[r * cols + c] += IN(dout)[m * rows + r] * IN(in)[m * cols + c];
}

static void reference_matmul_symmetric(Grad *out, const Act *a, const Act *b, int M, int n) {
    reference_matmul_backward_weight(out, a, b, M, n, n, false);
}

static double gelu(double x, Activation form) {
    if (form == ACTIVATION_RELU2) return x > 0 ? x * x : 0;
    return form == ACTIVATION_GELU ? x / 2 * (1 + erf(x / sqrt(2)))
                                   : x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x, Activation form) {
    if (form == ACTIVATION_RELU2) return x > 0 ? 2 * x : 0;
    if (form == ACTIVATION_GELU) return (1 + erf(x / sqrt(2))) / 2 + x * exp(-x * x / 2) / sqrt(2 * M_PI);
    const double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
    return (1 + t) / 2 + x / 2 * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

static void reference_gelu_forward(Act *out, const Act *in, size_t n, Activation form) {
    for (size_t i = 0; i < n; i++) OUT(out)[i] = gelu(IN(in)[i], form);
}

static void reference_gelu_backward(Act *d, Grad *dbias, const Act *in, int N, int C, Activation form, bool add) {
    for (int i = 0; i < N * C; i++) OUT(d)[i] *= gelu_slope(IN(in)[i], form);
    column_sums(dbias, IN(d), (size_t)N, (size_t)C, add);
}

static void reference_matmul_gelu_forward(Act *out, Act *pre, const Act *in, const Weight *w, const Par *bias, int M,
                                          Activation form) {
    reference_matmul_forward(pre, in, w, bias, M);
    reference_gelu_forward(out, pre, (size_t)(M * w->rows), form);
}

static void reference_matmul_gelu_backward(Act *d, Grad *dbias, const Act *dout, const Act *pre, const Weight *w, int M,
                                           Activation form, bool add) {
    reference_matmul_backward_input(d, dout, w, M);
    reference_gelu_backward(d, dbias, pre, M, w->cols, form, add);
}

static double logistic(double x) { return 1 / (1 + exp(-x)); }

static void reference_swiglu_forward(Act *out, const Act *in, int N, int F) {
    for (int i = 0; i < N * F; i++) {
        const double *gate = IN(in) + i / F * 2 * F + i % F;
        OUT(out)[i] = *gate * logistic(*gate) * gate[F];
    }
}

static void reference_swiglu_backward(Act *in, Grad *dbias, const Act *dout, int N, int F, bool add) {
    for (int i = 0; i < N * F; i++) {
        double *gate = OUT(in) + i / F * 2 * F + i % F, x = *gate, s = logistic(x), d = IN(dout)[i];
        *gate = d * gate[F] * (s + x * s * (1 - s)), gate[F] = d * x * s;
    }
    column_sums(dbias, IN(in), (size_t)N, 2 * (size_t)F, add);
}

static double head_rstd(const double *x, int D) {
    double squares = 0;
    for (int i = 0; i < D; i++) squares += x[i] * x[i];
    return 1 / sqrt(squares / D + 1e-5);
}

static void turn(double *x, const float *angles, int D, double direction) {
    for (int i = 0; i < D / 2; i++) {
        const double a = x[i], b = x[i + D / 2], c = (double)angles[i], s = direction * (double)angles[D / 2 + i];
        x[i] = a * c - b * s, x[i + D / 2] = a * s + b * c;
    }
}

// Heads 0 .. H-1 of a row are queries, the next K keys, the last K values. Returns the first of its places in qkv.
static int head_place(int head, int H, int K, int *copies) {
    *copies = head < H ? 1 : H / K;
    return head < H ? head : H + (head - H) * *copies;
}

static void reference_heads_forward(Act *qkv, const Act *in, const Heads *of) {
    const int B = of->B, T = of->T, H = of->H, K = of->K, D = of->D;
    const Par *q_gain = of->q_gain, *k_gain = of->k_gain;
    const float *rotation = of->rotation;
    for (int n = 0; n < B * T; n++)
        for (int head = 0; head < H + 2 * K; head++) {
            int copies, to = head_place(head, H, K, &copies);
            const double *x = IN(in) + (n * (H + 2 * K) + head) * D, *gain = IN(head < H ? q_gain : k_gain);
            double *y = OUT(qkv) + (n * 3 * H + to) * D;
            const double scale = q_gain && head < H + K ? head_rstd(x, D) : 1;
            for (int i = 0; i < D; i++) y[i] = x[i] * scale * (q_gain && head < H + K ? gain[i] : 1);
            if (rotation && head < H + K) turn(y, rotation + position_of(of->positions, n, T) * D, D, 1);
            for (int copy = 1; copy < copies; copy++) memcpy(y + copy * D, y, (size_t)D * sizeof *y);
        }
}

static void reference_heads_backward(Act *din, Grad *dq_gain, Grad *dk_gain, Grad *dbias, const Act *dqkv,
                                     const Act *in, const Heads *of, bool add) {
    const int B = of->B, T = of->T, H = of->H, K = of->K, D = of->D;
    const Par *q_gain = of->q_gain, *k_gain = of->k_gain;
    const float *rotation = of->rotation;
    double *dy = calloc((size_t)D, sizeof *dy);
    for (int i = 0; q_gain && !add && i < D; i++) OUT(dq_gain)[i] = OUT(dk_gain)[i] = 0;
    for (int n = 0; n < B * T; n++)
        for (int head = 0; head < H + 2 * K; head++) {
            int copies, from = head_place(head, H, K, &copies);
            const double *x = IN(in) + (n * (H + 2 * K) + head) * D, *gain = IN(head < H ? q_gain : k_gain);
            double *dx = OUT(din) + (n * (H + 2 * K) + head) * D, *dgain = OUT(head < H ? dq_gain : dk_gain);
            memset(dy, 0, (size_t)D * sizeof *dy);
            for (int i = 0; i < D * copies; i++) dy[i % D] += IN(dqkv)[(n * 3 * H + from) * D + i];
            if (rotation && head < H + K) turn(dy, rotation + n % T * D, D, -1);
            if (q_gain && head < H + K) {
                const double scale = head_rstd(x, D);
                double along = 0;
                for (int i = 0; i < D; i++)
                    along += dy[i] * gain[i] * x[i] * scale / D, dgain[i] += dy[i] * x[i] * scale;
                for (int i = 0; i < D; i++) dy[i] = scale * (dy[i] * gain[i] - x[i] * scale * along);
            }
            memcpy(dx, dy, (size_t)D * sizeof *dx);
        }
    column_sums(dbias, IN(din), (size_t)(B * T), (size_t)((H + 2 * K) * D), add);
    free(dy);
}

// One head of one sequence: row t of q, k, v is q + t*step, k + t*step, v + t*step.
typedef struct {
    Attention all;
    int b, h;
} Head;

static int first_seen(const Head *a, int t) { return a->all.starts ? a->all.starts[a->b * a->all.T + t] : 0; }

static double attention_factor(const Head *a, int t, int s) {
    if (!a->all.dropout) return 1;
    return (double)dropout_factor(a->all.dropout, a->all.layer, DROPOUT_ATTENTION, (uint32_t)a->b,
                                  (uint32_t)(a->h * a->all.T + t), (uint32_t)a->all.T, (uint32_t)s);
}

static double dot(const double *a, const double *b, int n) {
    double total = 0;
    for (int i = 0; i < n; i++) total += a[i] * b[i];
    return total;
}

// Whether query t sees key s <= t: its text are the tokens from first_seen on, and before these as many of the
// sequence's first ones as its position needs.
static bool is_seen(const Head *a, int t, int s) {
    const int first = first_seen(a, t), *positions = a->all.positions;
    return s >= first || (positions && s < positions[a->b * a->all.T + t] - (t - first));
}

// p[s] = exp(score[s] - largest) of the keys that are seen, 0 of the others; returns the log of the softmax's
// denominator
static double attention_weights(double *p, const double *qkv, const Head *a, int t) {
    const int step = 3 * a->all.H * a->all.D;
    const double *q = qkv + (a->b * a->all.T + t) * step + a->h * a->all.D;
    double largest = -INFINITY, total = 0;
    for (int s = 0; s <= t; s++) {
        p[s] = dot(q, q + (s - t) * step + a->all.H * a->all.D, a->all.D) / sqrt(a->all.D);
        if (is_seen(a, t, s)) largest = fmax(largest, p[s]);
    }
    for (int s = 0; s <= t; s++) total += p[s] = is_seen(a, t, s) ? exp(p[s] - largest) : 0;
    for (int s = 0; s <= t; s++) p[s] /= total;
    return largest + log(total);
}

static void reference_attention_forward(Act *out, float *lse, const Act *qkv, const Attention *attention) {
    const int T = attention->T, H = attention->H, D = attention->D;
    double *p = calloc((size_t)T, sizeof *p);
    memset(out, 0, (size_t)attention->B * (size_t)T * (size_t)(H * D) * sizeof(double));
    for (Head a = {.all = *attention}; a.b < attention->B; a.b++)
        for (a.h = 0; a.h < H; a.h++)
            for (int t = attention->from; t < T; t++) {
                lse[(a.b * H + a.h) * T + t] = (float)attention_weights(p, IN(qkv), &a, t);
                double *o = OUT(out) + (a.b * T + t) * H * D + a.h * D;
                for (int s = 0; s <= t; s++) {
                    const double *v = IN(qkv) + (a.b * T + s) * 3 * H * D + (2 * H + a.h) * D;
                    for (int i = 0; i < D; i++) o[i] += p[s] * attention_factor(&a, t, s) * v[i];
                }
            }
    free(p);
}

// From qkv alone: out and lse, which a backend may read, follow from it.
static void reference_attention_backward(Act *dqkv, Grad *dbias, const Act *dout, const Act *out, const float *lse,
                                         const Act *qkv, const Attention *attention, bool add) {
    (void)out, (void)lse;
    const int B = attention->B, T = attention->T, H = attention->H, D = attention->D, C = H * D, step = 3 * C;
    double *p = calloc(2 * (size_t)T, sizeof *p), *dp = p + T;
    memset(dqkv, 0, (size_t)B * (size_t)T * (size_t)step * sizeof(double));
    for (Head a = {.all = *attention}; a.b < attention->B; a.b++)
        for (a.h = 0; a.h < H; a.h++)
            for (int t = 0; t < T; t++) {
                const int at = (a.b * T + t) * step + a.h * D;
                const double *dy = IN(dout) + (a.b * T + t) * C + a.h * D;
                double mean = 0;
                attention_weights(p, IN(qkv), &a, t);
                for (int s = first_seen(&a, t); s <= t; s++) {
                    const double factor = attention_factor(&a, t, s);
                    const int v = at + (s - t) * step + 2 * C;
                    dp[s] = dot(dy, IN(qkv) + v, D) * factor, mean += p[s] * dp[s];
                    for (int i = 0; i < D; i++) OUT(dqkv)[v + i] += p[s] * factor * dy[i];
                }
                for (int s = first_seen(&a, t); s <= t; s++) {
                    const double d = p[s] * (dp[s] - mean) / sqrt(D);
                    const int k = at + (s - t) * step + C;
                    for (int i = 0; i < D; i++) {
                        OUT(dqkv)[at + i] += d * IN(qkv)[k + i];
                        OUT(dqkv)[k + i] += d * IN(qkv)[at + i];
                    }
                }
            }
    column_sums(dbias, IN(dqkv), (size_t)(B * T), (size_t)step, add);
    free(p);
}

static void reference_dropout(Act *out, Grad *dbias, const Act *in, const Dropout *dropout, int layer, DropoutSite site,
                              int B, int T, int C, bool add) {
    for (int n = 0; n < B * T; n++)
        for (int c = 0; c < C; c++) {
            const uint32_t b = (uint32_t)(n / T), t = (uint32_t)(n % T);
            OUT(out)
            [n * C + c] =
                IN(in)[n * C + c] * (double)dropout_factor(dropout, layer, site, b, t, (uint32_t)C, (uint32_t)c);
        }
    column_sums(dbias, IN(out), (size_t)(B * T), (size_t)C, add);
}

static void reference_dropout_residual(Res *x, const Dropout *dropout, int B, int T, int C) {
    reference_dropout((Act *)(void *)x, NULL, (Act *)(void *)x, dropout, 0, DROPOUT_EMBEDDING, B, T, C, false);
}

static void reference_cross_entropy(Act *logits, float *losses, const void *rows, const CrossEntropy *loss) {
    const int M = loss->M, T = loss->T, vocab = loss->vocab, V = loss->V;
    double *seen = calloc((size_t)V, sizeof *seen); // the capped logits of a row
    for (int m = 0; m < M; m++) {
        double *x = OUT(logits) + (size_t)m * (size_t)V, largest = -INFINITY, total = 0;
        const int n = loss->first + m,
                  target = (int)id_at(rows, (size_t)(n / T * (T + 1) + n % T + 1), id_bytes((unsigned)vocab));
        const double cap = (double)loss->softcap, z = (double)loss->z_loss;
        const bool counts = !loss->counted || loss->counted[n];
        for (int c = 0; c < vocab; c++) seen[c] = cap > 0 ? cap * tanh(x[c] / cap) : x[c];
        for (int c = 0; c < vocab; c++) largest = fmax(largest, seen[c]);
        for (int c = 0; c < vocab; c++) total += exp(seen[c] - largest);
        const double log_sum = largest + log(total);
        losses[n] = counts ? (float)(log_sum - seen[target] + z * log_sum * log_sum) : 0;
        for (int c = 0; c < V && loss->gradient; c++) {
            const double d = exp(seen[c] - log_sum) * (1 + 2 * z * log_sum) - (c == target);
            const double slope = cap > 0 ? 1 - seen[c] / cap * (seen[c] / cap) : 1;
            x[c] = c < vocab && counts ? d * slope * (double)loss->scale * (double)*loss->loss_scale : 0;
        }
    }
    free(seen);
}

static void reference_sum_losses(double *total, const float *losses, int n) {
    for (int i = 0; i < n; i++) *total += (double)losses[i];
}

static void reference_add_gradients(Grad *sums, const Grad *part, size_t count) {
    for (size_t i = 0; i < count; i++) OUT(sums)[i] += IN(part)[i];
}

// Eight bits of fraction with the first one, from 2^-133 on, below 2^128.
static void reference_round_to_bf16(Grad *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        double *value = &OUT(values)[i];
        int exponent;
        if (!isfinite(*value)) continue;
        frexp(*value, &exponent);
        const double unit = ldexp(1, exponent - 8 > -133 ? exponent - 8 : -133);
        *value = nearbyint(*value / unit) * unit;
        if (fabs(*value) >= 0x1p128) *value = copysign(INFINITY, *value);
    }
}

static void reference_square_sums(double *sums, const Grad *gradients, size_t count) {
    memset(sums, 0, norm_pieces(count) * sizeof *sums);
    for (size_t i = 0; i < count; i++) sums[i / NORM_PIECE] += IN(gradients)[i] * IN(gradients)[i];
}

static void reference_gradient_norm(float *norm, const double *sums, size_t count, const float *divisor) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += sums[i];
    *norm = (float)(sqrt(sum) / (double)*divisor);
}

static double gradient_scale(const AdamW *adamw, float norm, float divisor) {
    const bool clip = adamw->max_norm > 0 && norm > adamw->max_norm;
    return (clip ? (double)adamw->max_norm / ((double)norm + 1e-6) : 1) / (double)divisor;
}

static void reference_adamw(Moment *m, Moment *v, const Update *of, const AdamW *adamw) {
    if (!isfinite(*of->norm)) return;
    const double by = gradient_scale(adamw, *of->norm, *of->divisor);
    for (size_t i = 0; i < of->count; i++) {
        const double g = IN(of->gradients)[i] * by, beta1 = (double)adamw->beta1, beta2 = (double)adamw->beta2;
        double *p = OUT(of->params) + i, *m1 = OUT(m) + i, *m2 = OUT(v) + i;
        *m1 = beta1 * *m1 + (1 - beta1) * g, *m2 = beta2 * *m2 + (1 - beta2) * g * g;
        if (of->first + i < of->decay_count) *p *= (double)adamw->shrink;
        *p -= (double)adamw->rate * *m1 / (sqrt(*m2) * (double)adamw->root + (double)adamw->epsilon);
    }
}

static void reference_muon_momentum(Grad *direction, float *momentum, const Update *of, const Muon *muon) {
    const double by = gradient_scale(&muon->adamw, *of->norm, *of->divisor), keep = (double)muon->momentum;
    for (size_t i = 0; i < of->count; i++) {
        OUT(direction)[i] = 0;
        if (!isfinite(*of->norm)) continue;
        const double g = IN(of->gradients)[i] * by, m = (double)momentum[i] + (1 - keep) * (g - (double)momentum[i]);
        momentum[i] = (float)m;
        OUT(direction)[i] = g + keep * (m - g);
    }
}

static void reference_muon_operand(Act *out, Act *transposed, const Grad *in, int rows, int cols, const float *norm) {
    for (int row = 0; row < rows; row++)
        for (int col = 0; col < cols; col++) {
            const double x = IN(in)[row * cols + col] / (norm ? fmax((double)*norm, (double)MUON_EPSILON) : 1);
            OUT(out)[row * cols + col] = x;
            OUT(transposed)[col * rows + row] = x;
        }
}

static void reference_muon_symmetric(const Symmetric *out, const Symmetric *a, const Symmetric *b, int n,
                                     bool polynomial) {
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++) {
            double *x = OUT(out->whole) + i * n + j;
            const double right = !a ? 0 : j == i ? 0 : IN(a->whole)[i * n + j] * IN(b->whole)[j * n + j];
            if (a) *x += IN(a->whole)[i * n + i] * IN(b->whole)[i * n + j] + right;
            if (polynomial)
                *x = (double)MUON_A * (i == j) + (double)MUON_B * IN(a->whole)[i * n + j] + (double)MUON_C * *x;
            OUT(out->whole)[j * n + i] = *x;
            OUT(out->beside)[i * n + j] = OUT(out->beside)[j * n + i] = i == j ? 0 : *x;
        }
}

static void reference_muon_diagonal(Grad *x, const Grad *whole, int rows, int cols, const float *norm) {
    const int n = rows < cols ? rows : cols;
    for (int row = 0; row < rows; row++)
        for (int col = 0; col < cols; col++) OUT(x)
    [row * cols + col] *=
        IN(whole)[(rows < cols ? row : col) * (n + 1)] / (norm ? fmax((double)*norm, (double)MUON_EPSILON) : 1);
}

static void reference_muon_update(const Update *of, float scale, const Muon *muon) {
    double *params = OUT(of->params);
    if (!isfinite(*of->norm)) return;
    for (size_t i = 0; i < of->count; i++)
        params[i] = params[i] * (double)muon->shrink - (double)scale * (double)muon->rate * IN(of->gradients)[i];
}

static void reference_average(float *average, const Update *of, const float *take) {
    for (size_t i = 0; i < of->count && isfinite(*of->norm); i++)
        average[i] = (float)((double)average[i] + (double)*take * (IN(of->params)[i] - (double)average[i]));
}

static void reference_average_swap(float *average, const Update *of) {
    for (size_t i = 0; i < of->count; i++) {
        const double kept = (double)average[i];
        average[i] = (float)IN(of->params)[i], OUT(of->params)[i] = kept;
    }
}

static void reference_pack(const Weight *w) { (void)w; }

static void *reference_alloc(size_t bytes) { return calloc(bytes + 1, 1); }
static size_t no_scratch(const Shape *shape) { return (void)shape, 0; }
static void bind_nothing(void *scratch, size_t bytes) { (void)scratch, (void)bytes; }
static size_t no_packed(int rows, int cols) { return (void)rows, (void)cols, 0; }
static void reference_copy_in(void *device, const void *host, size_t bytes) { memcpy(device, host, bytes); }
static void reference_copy_out(void *host, const void *device, size_t bytes) { memcpy(host, device, bytes); }
static void reference_zero(void *device, size_t bytes) { memset(device, 0, bytes); }
static bool always_begin(int key, bool captured) { return (void)key, (void)captured, true; }
static void end_nothing(int key) { (void)key; }
static void close_nothing(void) {}

const Backend *reference_backend(void) {
    static const Backend backend = {
        .name = "reference",
        .in_host_memory = true,
        .act_bytes = sizeof(double),
        .par_bytes = sizeof(double),
        .grad_bytes = sizeof(double),
        .res_bytes = sizeof(double),
        .moment_bytes = sizeof(double),
        .packed_bytes = no_packed,
        .scratch_bytes = no_scratch,
        .alloc = reference_alloc,
        .release = free,
        .bind_scratch = bind_nothing,
        .upload = reference_copy_in,
        .download = reference_copy_out,
        .zero = reference_zero,
        .close = close_nothing,
        .graph_begin = always_begin,
        .graph_end = end_nothing,
#define OP(name, scratch, arguments) .name = reference_##name,
#include "kernels/ops.def"
#undef OP
    };
    return &backend;
}
