// operations.h: inputs, the call, what must come out.
#include "tests/operations/operations.h"
#include "kernels/muon_scalars.h"
#include "tests/operations/pair.h"
#include <float.h>
#include <math.h>
#include <string.h>

enum { ANY = 64 }; // a shape's field that does not matter to the operation

// The norm of `grads`, in a block of ON_BOTH.
#define NORM(count, divisor)                                                                                           \
    on->square_sums(AT(sums), AT(grads), count);                                                                       \
    on->gradient_norm(AT(norm), AT(sums), norm_pieces(count), divisor)

// Positions of B sequences of T tokens, in any order.
static Array *any_positions(int B, int T) {
    int32_t *positions = malloc((size_t)(B * T) * sizeof *positions);
    CHECK(positions);
    for (int n = 0; n < B * T; n++) positions[n] = n * 31 % T;
    Array *array = array_bytes(positions, (size_t)(B * T) * sizeof *positions);
    free(positions);
    return array;
}

void operation_embed(int B, int T, int C, int V, int vocab, bool add) {
    const size_t n = (size_t)(B * T * C);
    pair_open((Shape){B, T, C, C / 8, V, ANY, 1});
    Array *rows = array_tokens((size_t)B * (size_t)(T + 1), vocab), *wte = array_normal(PARS, (size_t)(V * C), 1, 0);
    Array *wpe = array_normal(PARS, (size_t)(T * C), 1, 0), *out = array_filled(RESIDUALS, n, NAN);
    Array *dout = array_normal(RESIDUALS, n, 1, 0), *dwte = array_normal(GRADS, (size_t)(V * C), 1, 0);
    Array *dwpe = array_normal(GRADS, (size_t)(T * C), 1, 0), *positions = any_positions(B, T);
    for (int way = 0; way < 2; way++) {
        ON_BOTH(on->embed_forward(AT(out), AT(rows), way ? AT(positions) : NULL, AT(wte), AT(wpe), B, T, C, vocab));
        CHECK_NEAR(out, rounded_once);
    }
    ON_BOTH(on->embed_backward(AT(dwte), AT(dwpe), AT(dout), AT(rows), B, T, C, vocab, add));
    CHECK_NEAR(dwte, 1e-6);
    CHECK_NEAR(dwpe, 1e-6);
    pair_close();
}

void operation_layernorm(int N, int C, bool with_branch, bool with_bias, bool rms) {
    pair_open((Shape){1, N, C, C / 8, ANY, ANY, 1});
    const size_t n = (size_t)(N * C), c = (size_t)C, rows = (size_t)N;
    Array *in = array_normal(RESIDUALS, n, 2, 1), *branch = array_normal(ACTS, n, 1, 0);
    Array *weight = array_normal(PARS, c, 0.5, 1), *bias = array_normal(PARS, c, 1, 0);
    Array *sum = array_filled(RESIDUALS, n, NAN), *out = array_filled(ACTS, n, NAN);
    Array *mean = array_filled(FLOATS, rows, NAN), *rstd = array_filled(FLOATS, rows, NAN);
#define NORM_OF(bias) &(Norm){N, C, AT(weight), bias, rms ? NULL : AT(mean), AT(rstd)}
    ON_BOTH(on->layernorm_forward(AT(sum), AT(out), AT(in), with_branch ? AT(branch) : NULL,
                                  NORM_OF(with_bias ? AT(bias) : NULL)));
    CHECK_NEAR(sum, rounded_once);
    CHECK_NEAR(out, 2 * rounded_once); // of a rounded sum
    if (!rms) CHECK_NEAR(mean, 1e-3);
    CHECK_NEAR(rstd, 5e-4);
    ON_BOTH(on->layernorm_forward(AT(in), AT(out), AT(in), AT(branch), NORM_OF(NULL)));
    CHECK_NEAR(in, rounded_once);
    pair_close();
}

void operation_layernorm_backward(int N, int C, bool first, bool add, bool shared, bool rms) {
    pair_open((Shape){1, N, C, C / 8, ANY, ANY, 1});
    const size_t n = (size_t)(N * C), c = (size_t)C;
    Array *x = array_normal(RESIDUALS, n, 2, 1), *dout = array_normal(ACTS, n, 1, 0);
    Array *weight = array_normal(PARS, c, 0.5, 1), *mean = array_filled(FLOATS, (size_t)N, 0);
    Array *rstd = array_filled(FLOATS, (size_t)N, 0), *dsum = array_normal(RESIDUALS, n, 1, 0);
    Array *acts = array_filled(ACTS, n, NAN), *dweight = array_normal(GRADS, c, 1, 0);
    Array *dbias = array_normal(GRADS, c, 1, 0), *below = array_normal(GRADS, c, 1, 0);
    for (int i = 0; i < N; i++) {
        double m = 0, v = 0;
        for (int k = 0; k < C && !rms; k++) m += x->start[i * C + k] / C;
        for (int k = 0; k < C; k++) v += (x->start[i * C + k] - m) * (x->start[i * C + k] - m) / C;
        mean->start[i] = m, rstd->start[i] = 1 / sqrt(v + 1e-5);
    }
    shared = shared && pair_backend(TESTED)->act_bytes == pair_backend(TESTED)->res_bytes;
    ON_BOTH(on->layernorm_backward(AT(dsum), shared && run > 0 ? AT(dsum) : AT(acts),
                                   &(NormGradients){AT(dweight), AT(dbias), AT(below)}, AT(dout), AT(x), NORM_OF(NULL),
                                   first, add));
    CHECK_NEAR(dsum, rounded_once);
    if (!shared) CHECK_NEAR(acts, rounded_once);
    CHECK_NEAR(dweight, 1e-6);
    CHECK_NEAR(dbias, 1e-6);
    CHECK_NEAR(below, rounded_once); // sums of rounded numbers
    ON_BOTH(on->layernorm_backward(AT(dsum), AT(acts), &(NormGradients){.weight = AT(dweight)}, AT(dout), AT(x),
                                   NORM_OF(NULL), first, add));
#undef NORM_OF
    CHECK_NEAR(acts, rounded_once);
    CHECK_NEAR(dweight, 1e-6);
    pair_close();
}

// A weight with room for the tested backend's packed form.
typedef struct {
    Array *param, *packed; // packed NULL: the backend has none
    int rows, cols;
} WeightArray;

static WeightArray weight_array(int rows, int cols) {
    const size_t bytes = pair_backend(TESTED)->packed_bytes(rows, cols);
    WeightArray w = {array_normal(PARS, (size_t)(rows * cols), 0.1, 0), NULL, rows, cols};
    array_narrow(w.param); // products are of activations' type
    if (bytes) w.packed = array_filled(FLOATS, bytes / 4 + 16, 0);
    return w;
}

static Weight weight_at(const WeightArray *w, int run) {
    Weight weight = {array_at(w->param, run), run && w->packed ? array_at(w->packed, run) : NULL, w->rows, w->cols};
    return weight;
}

void operation_matmul(int M, int rows, int cols) {
    pair_open((Shape){1, M, cols, cols / 8, rows, M, 1});
    const size_t in_count = (size_t)(M * cols), out_count = (size_t)(M * rows);
    Array *in = array_normal(ACTS, in_count, 1, 0), *out = array_filled(ACTS, out_count, NAN);
    Array *bias = array_normal(PARS, (size_t)rows, 1, 0), *dout = array_normal(ACTS, out_count, 1, 0);
    Array *din = array_filled(ACTS, in_count, NAN), *dw = array_normal(GRADS, (size_t)(rows * cols), 1, 0);
    const WeightArray weight = weight_array(rows, cols);
    for (int biased = 0; biased < 2; biased++) {
        ON_BOTH(const Weight w = weight_at(&weight, run); on->pack(&w);
                on->matmul_forward(AT(out), AT(in), &w, biased ? AT(bias) : NULL, M));
        CHECK_NEAR(out, rounded_once);
    }
    ON_BOTH(const Weight w = weight_at(&weight, run); on->pack(&w);
            on->matmul_backward_input(AT(din), AT(dout), &w, M));
    CHECK_NEAR(din, rounded_once);
    for (int add = 0; add < 2; add++) {
        ON_BOTH(on->matmul_backward_weight(AT(dw), AT(dout), AT(in), M, rows, cols, add));
        CHECK_NEAR(dw, 1e-5);
    }
    pair_close();
}

// Whether two arrays of the backend are equal from byte `from` to `end`.
static bool same_bytes(const Backend *on, const void *a, const void *b, size_t from, size_t end) {
    char *copy = malloc(2 * end);
    CHECK(copy);
    on->download(copy, a, end), on->download(copy + end, b, end);
    const bool same = !memcmp(copy + from, copy + end + from, end - from);
    free(copy);
    return same;
}

void operation_matmul_row(int rows, int cols) {
    const int M = 64;
    pair_open((Shape){1, M, cols, cols / 8, rows, M, 1});
    const Backend *on = pair_backend(TESTED);
    const bool packed = on->act_type == DTYPE_FP32 && on->packed_bytes(rows, cols);
    Array *in = array_normal(ACTS, (size_t)(M * cols), 1, 0), *bias = array_normal(PARS, (size_t)rows, 1, 0);
    Array *all = array_filled(ACTS, (size_t)(M * rows), NAN), *each = array_filled(ACTS, (size_t)(M * rows), NAN);
    const WeightArray weight = weight_array(rows, cols);
    array_send(TESTED);
    const Weight w = weight_at(&weight, 1);
    on->pack(&w);
    const size_t in_row = (size_t)cols * on->act_bytes, out_row = (size_t)rows * on->act_bytes;
    on->matmul_forward(array_at(all, 1), array_at(in, 1), &w, array_at(bias, 1), M);
    for (size_t i = 0; i < (size_t)M; i++)
        on->matmul_forward((Act *)((char *)array_at(each, 1) + i * out_row),
                           (const Act *)((char *)array_at(in, 1) + i * in_row), &w, array_at(bias, 1), 1);
    CHECK(!packed || same_bytes(on, array_at(all, 1), array_at(each, 1), 0, (size_t)M * out_row));
    pair_close();
}

void operation_matmul_gelu(int M, int rows, int cols, Activation form, bool biased, bool add) {
    pair_open((Shape){1, M, rows, rows / 8, rows, M, 1});
    const size_t in_count = (size_t)(M * cols), out_count = (size_t)(M * rows);
    Array *in = array_normal(ACTS, in_count, 1, 0), *bias = array_normal(PARS, (size_t)rows, 1, 0);
    Array *pre = array_filled(ACTS, out_count, NAN), *out = array_filled(ACTS, out_count, NAN);
    Array *d = array_filled(ACTS, in_count, NAN), *dout = array_normal(ACTS, out_count, 1, 0);
    Array *dbias = array_normal(GRADS, (size_t)cols, 1, 0);
    const WeightArray weight = weight_array(rows, cols);
    ON_BOTH(if (on->graph_begin(0, true)) {
        const Weight w = weight_at(&weight, run);
        on->pack(&w);
        on->matmul_gelu_forward(AT(out), AT(pre), AT(in), &w, biased ? AT(bias) : NULL, M, form);
        on->matmul_gelu_backward(AT(d), biased ? AT(dbias) : NULL, AT(dout), AT(in), &w, M, form, add);
        on->graph_end(0);
    });
    CHECK_NEAR(pre, rounded_once);
    CHECK_NEAR(out, 3 * rounded_once); // a square has twice the error of pre, and float32 has fast exponentials
    const double limit = (pair_backend(TESTED)->act_type == DTYPE_FP32 ? 3 : 2) * rounded_once;
    CHECK_NEAR(d, limit);
    CHECK_NEAR(dbias, limit);
    pair_close();
}

void operation_gelu(int N, int C) {
    pair_open((Shape){1, N, C, C / 8, ANY, ANY, 1});
    const size_t n = (size_t)(N * C);
    Array *in = array_normal(ACTS, n, 2, 0), *out = array_filled(ACTS, n, NAN), *d = array_normal(ACTS, n, 1, 0);
    Array *dbias = array_normal(GRADS, (size_t)C, 1, 0);
    for (Activation form = ACTIVATION_GELU_TANH; form <= ACTIVATION_RELU2; form++) {
        ON_BOTH(on->gelu_forward(AT(out), AT(in), n, form));
        CHECK_NEAR(out, rounded_once);
        ON_BOTH(on->gelu_backward(AT(d), AT(dbias), AT(in), N, C, form, form == ACTIVATION_GELU));
        CHECK_NEAR(d, rounded_once);
        CHECK_NEAR(dbias, rounded_once);
        ON_BOTH(on->gelu_backward(AT(d), NULL, AT(in), N, C, form, true));
        CHECK_NEAR(d, rounded_once);
    }
    pair_close();
}

void operation_swiglu(int N, int F, bool add) {
    pair_open((Shape){1, N, F, F / 8, ANY, ANY, 1});
    const size_t n = (size_t)(N * F);
    Array *in = array_normal(ACTS, 2 * n, 2, 0), *out = array_filled(ACTS, n, NAN), *dout = array_normal(ACTS, n, 1, 0);
    Array *dbias = array_normal(GRADS, 2 * (size_t)F, 1, 0);
    ON_BOTH(on->swiglu_forward(AT(out), AT(in), N, F));
    CHECK_NEAR(out, rounded_once);
    ON_BOTH(on->swiglu_backward(AT(in), AT(dbias), AT(dout), N, F, add));
    CHECK_NEAR(in, rounded_once);
    CHECK_NEAR(dbias, rounded_once);
    ON_BOTH(on->swiglu_backward(AT(in), NULL, AT(dout), N, F, add));
    CHECK_NEAR(in, rounded_once);
    pair_close();
}

// Angles of any size: the operation does not know how they come about.
static Array *rotations(int T, int D) {
    Array *angles = array_normal(FLOATS, (size_t)(T * (D / 2)), 2, 0);
    Array *array = array_filled(FLOATS, (size_t)(T * D), 0);
    for (int i = 0; i < T * (D / 2); i++) {
        double *at = array->start + i / (D / 2) * D + i % (D / 2);
        at[0] = (double)(float)cos(angles->start[i]), at[D / 2] = (double)(float)sin(angles->start[i]);
    }
    return array;
}

void operation_heads(int B, int T, int H, int K, int D, bool gains, bool rotated, bool in_place) {
    pair_open((Shape){B, T, H * D, H, ANY, ANY, 1});
    const size_t width = (size_t)((H + 2 * K) * D), n = (size_t)(B * T), all = (size_t)(3 * H * D), d = (size_t)D;
    Array *in = array_normal(ACTS, n * width, 2, 0), *qkv = array_filled(ACTS, n * all, NAN);
    Array *q_gain = array_normal(PARS, d, 0.5, 1), *k_gain = array_normal(PARS, d, 0.5, 1);
    Array *rotation = rotations(T, D), *dqkv = array_normal(ACTS, n * all, 1, 0);
    Array *din = array_filled(ACTS, n * width, NAN), *dbias = array_normal(GRADS, width, 1, 0);
    Array *dq = array_normal(GRADS, d, 1, 0), *dk = array_normal(GRADS, d, 1, 0), *positions = any_positions(B, T);
    bool placed = false;
#define HEADS                                                                                                          \
    &(Heads) {                                                                                                         \
        B, T, H, K, D, gains ? AT(q_gain) : NULL, gains ? AT(k_gain) : NULL, rotated ? AT(rotation) : NULL,            \
            placed ? AT(positions) : NULL                                                                              \
    }
    for (int add = 0; add < 2; add++) {
        ON_BOTH(on->heads_backward(AT(din), AT(dq), AT(dk), AT(dbias), AT(dqkv), AT(in), HEADS, add));
        CHECK_NEAR(din, rounded_once);
        CHECK_NEAR(dq, 1e-6);
        CHECK_NEAR(dk, 1e-6);
        CHECK_NEAR(dbias, rounded_once);
    }
    for (int way = 2; way--;) {
        placed = way;
        ON_BOTH(on->heads_forward(AT(qkv), AT(in), HEADS));
        CHECK_NEAR(qkv, rounded_once);
    }
    if (in_place) {
        ON_BOTH(on->heads_backward(AT(dqkv), AT(dq), AT(dk), NULL, AT(dqkv), AT(in), HEADS, true));
        CHECK_NEAR(dqkv, rounded_once);
        ON_BOTH(on->heads_forward(AT(in), AT(in), HEADS));
        CHECK_NEAR(in, rounded_once);
    }
#undef HEADS
    pair_close();
}

static const Dropout dropout = {{1337, 42}, 7, 3, 13107, 1.25f};

// Documents of many lengths: one ends at every position n where n * n % 29 < 2.
static Array *document_starts(int B, int T) {
    int32_t *starts = malloc((size_t)(B * T) * sizeof *starts);
    CHECK(starts);
    for (int n = 0; n < B * T; n++)
        starts[n] = n % T == 0 ? 0 : n / 64 % 2 == 0 && n * n % 29 < 2 ? n % T : starts[n - 1];
    Array *array = array_bytes(starts, (size_t)(B * T) * sizeof *starts);
    free(starts);
    return array;
}

void operation_attention(int B, int T, int H, int D, bool with_dropout, bool with_starts) {
    const int C = H * D, layer = 5;
    pair_open((Shape){B, T, C, H, ANY, ANY, 1});
    const size_t n = (size_t)(B * T * C);
    Array *qkv = array_normal(ACTS, 3 * n, 1, 0), *out = array_filled(ACTS, n, NAN);
    Array *lse = array_filled(FLOATS, (size_t)(B * H * T), NAN), *dout = array_normal(ACTS, n, 1, 0);
    Array *dqkv = array_filled(ACTS, 3 * n, NAN), *dbias = array_normal(GRADS, (size_t)(3 * C), 1, 0);
    Array *masks = array_bytes(&dropout, sizeof dropout), *starts = document_starts(B, T);
#define ATTENTION                                                                                                      \
    &(Attention){.B = B,                                                                                               \
                 .T = T,                                                                                               \
                 .H = H,                                                                                               \
                 .D = D,                                                                                               \
                 .layer = layer,                                                                                       \
                 .starts = with_starts ? AT(starts) : NULL,                                                            \
                 .dropout = with_dropout ? AT(masks) : NULL}
    ON_BOTH(on->attention_forward(AT(out), AT(lse), AT(qkv), ATTENTION);
            on->attention_backward(AT(dqkv), AT(dbias), AT(dout), AT(out), AT(lse), AT(qkv), ATTENTION, true));
#undef ATTENTION
    CHECK_NEAR(out, 2 * rounded_once); // weights are rounded as well
    CHECK_NEAR(lse, 1e-5);
    CHECK_NEAR(dqkv, 3 * rounded_once);
    CHECK_NEAR(dbias, 3 * rounded_once);
    pair_close();
}

// Texts of many lengths go on from the first tokens of each sequence, whose last ones belong to no text.
void operation_attention_of_branches(int B, int T, int H, int D) {
    pair_open((Shape){B, (T + 1) / 2, H * D, H, ANY, ANY, 1}); // the scratch memory of half of these tokens
    const size_t n = (size_t)(B * T);
    int32_t *first = malloc(2 * n * sizeof *first), *position = first + n;
    CHECK(first);
    for (int b = 0, at = 0; b < B; b++) {
        const int shared = b * 67 % (T / 2 + 1), end = T - T / 8;
        for (int t = 0, start = 0; t < T; t++, at++) {
            if (t >= end || (t >= shared && (t - shared) * (t - shared) % 29 < 2)) start = t;
            first[at] = start, position[at] = t >= end ? 0 : start < shared ? t : shared + t - start;
        }
    }
    Array *qkv = array_normal(ACTS, n * (size_t)(3 * H * D), 1, 0), *out = array_filled(ACTS, n * (size_t)(H * D), NAN);
    Array *lse = array_filled(FLOATS, n * (size_t)H, NAN), *starts = array_bytes(first, n * sizeof *first);
    Array *positions = array_bytes(position, n * sizeof *position);
    free(first);
    ON_BOTH(Attention attention = {.B = B, .T = T, .H = H, .D = D, .starts = AT(starts), .positions = AT(positions)};
            on->attention_forward(AT(out), AT(lse), AT(qkv), &attention));
    CHECK_NEAR(out, 2 * rounded_once);
    CHECK_NEAR(lse, 1e-5);
    pair_close();
}

void operation_attention_from(int T, int H, int D, int from) {
    pair_open((Shape){1, T, H * D, H, ANY, ANY, 1});
    const Backend *on = pair_backend(TESTED);
    const size_t n = (size_t)(T * H * D), row = (size_t)(H * D) * on->act_bytes;
    Array *qkv = array_normal(ACTS, 3 * n, 1, 0), *lse = array_filled(FLOATS, (size_t)(H * T), NAN);
    Array *all = array_filled(ACTS, n, NAN), *last = array_filled(ACTS, n, NAN);
    array_send(TESTED);
    Attention attention = {.B = 1, .T = T, .H = H, .D = D};
    on->attention_forward(array_at(all, 1), array_at(lse, 1), array_at(qkv, 1), &attention);
    attention.from = from;
    on->attention_forward(array_at(last, 1), array_at(lse, 1), array_at(qkv, 1), &attention);
    CHECK(same_bytes(on, array_at(all, 1), array_at(last, 1), (size_t)from * row, (size_t)T * row));
    pair_close();
}

void operation_dropout(int B, int T, int C) {
    pair_open((Shape){B, T, C, C % 8 ? 1 : C / 8, ANY, ANY, 1});
    const size_t n = (size_t)(B * T * C);
    Array *in = array_normal(ACTS, n, 1, 0), *out = array_filled(ACTS, n, NAN), *x = array_normal(RESIDUALS, n, 1, 0);
    Array *dbias = array_normal(GRADS, (size_t)C, 1, 0), *masks = array_bytes(&dropout, sizeof dropout);
    for (int add = 0; add < 2; add++) {
        ON_BOTH(on->dropout(AT(out), AT(dbias), AT(in), AT(masks), 9, DROPOUT_MLP_OUT, B, T, C, add));
        CHECK_NEAR(out, 2 * rounded_once); // few numbers: not the mean error of a rounding
        CHECK_NEAR(dbias, 2 * rounded_once);
    }
    ON_BOTH(on->dropout_residual(AT(x), AT(masks), B, T, C));
    CHECK_NEAR(x, rounded_once);
    ON_BOTH(on->dropout(AT(in), NULL, AT(in), AT(masks), 9, DROPOUT_MLP_OUT, B, T, C, false));
    CHECK_NEAR(in, 2 * rounded_once);
    pair_close();
}

void operation_cross_entropy(int N, int T, int vocab, int V, int first, int M, double softcap, double z_loss) {
    pair_open((Shape){N / T, T, 64, 64 / 8, V, M, 1});
    const bool capped = softcap > 0 || z_loss > 0;
    const float cap = (float)softcap, z = (float)z_loss, by = capped ? 1 : 1.0f / 256;
    // Logits up to twice the cap, so that its slope is anywhere between 1 and 0.
    Array *logits = array_normal(ACTS, (size_t)M * (size_t)V, softcap > 0 ? softcap / 2 : 3, 0);
    Array *losses = array_filled(FLOATS, (size_t)N, 0), *rows = array_tokens((size_t)(N / T * (T + 1)), vocab);
    Array *scale = array_filled(FLOATS, 1, 4), *total = array_filled(DOUBLES, 1, 0.5);
    Array *counted = array_tokens((size_t)N, 2); // as bytes: 0 and 1
    for (int i = 0; i < M; i++)
        for (int c = vocab; c < V; c++)
            logits->start[(size_t)i * (size_t)V + (size_t)c] = NAN; // padding may hold anything
#define LOSS(gradient, counted) &(CrossEntropy){first, M, T, vocab, V, cap, z, gradient, by, AT(scale), counted}
    ON_BOTH(on->cross_entropy(AT(logits), AT(losses), AT(rows), LOSS(false, NULL));
            on->sum_losses(AT(total), AT(losses), N));
    CHECK_NEAR(losses, capped ? 2e-6 : 1e-6);
    CHECK_NEAR(total, capped ? 2e-6 : 1e-6);
    CHECK_NEAR(logits, 0); // loss only: untouched
    ON_BOTH(on->cross_entropy(AT(logits), AT(losses), AT(rows), LOSS(true, NULL)));
    CHECK_NEAR(losses, capped ? 2e-6 : 1e-6);
    CHECK_NEAR(logits, (capped ? 2 : 1) * rounded_once);
    for (int i = 0; i < M; i++)
        for (int c = vocab; c < V; c++) CHECK(logits->result[TESTED][(size_t)i * (size_t)V + (size_t)c] == 0);
    ON_BOTH(on->cross_entropy(AT(logits), AT(losses), AT(rows), LOSS(true, AT(counted)))); // of these as logits
#undef LOSS
    CHECK_NEAR(losses, capped ? 2e-6 : 1e-6);
    CHECK_NEAR(logits, (capped ? 2 : 1) * rounded_once);
    pair_close();
}

void operation_add_gradients(size_t count) {
    pair_open((Shape){1, 64, 64, 8, ANY, ANY, 1});
    Array *sums = array_normal(GRADS, count, 1, 0), *part = array_normal(GRADS, count, 1, 0);
    ON_BOTH(on->add_gradients(AT(sums), AT(part), count));
    CHECK_NEAR(sums, 1e-7);
    pair_close();
}

// Besides normal numbers: ties, subnormal numbers, and what ends at infinity or is not a number.
void operation_round_to_bf16(size_t count) {
    const double special[] = {0x1.01p0, 0x1.03p0,   -0x1.01p0,      0x1.00fffep0, 0x1.010002p0,
                              -0.0,     0x1.8p-134, 0x1p-134,       0x1.2p-127,   0x1p-149,
                              FLT_MAX,  0x1.fep127, 0x1.fefffep127, -INFINITY,    (double)bits_float(0x7fffffff)};
    pair_open((Shape){1, 64, 64, 8, ANY, ANY, 1});
    Array *values = array_normal(GRADS, count, 1e-3, 0);
    memcpy(values->start, special, sizeof special);
    ON_BOTH(on->round_to_bf16(AT(values), count));
    CHECK_NEAR(values, 0);
    pair_close();
}

void operation_gradient_norm(size_t count) {
    pair_open((Shape){1, 64, 64, 8, ANY, ANY, 1});
    Array *grads = array_normal(GRADS, count, 1e-3, 0), *norm = array_filled(FLOATS, 1, NAN);
    Array *sums = array_filled(DOUBLES, norm_pieces(count), NAN), *scale = array_filled(FLOATS, 1, 1);
    for (size_t i = count / 2; i < count; i++) grads->start[i] *= 3; // so that a half that is not read shows
    ON_BOTH(NORM(count, AT(scale)));
    CHECK_NEAR(sums, 1e-6);
    CHECK_NEAR(norm, 1e-6);
    pair_close();
}

void operation_norm_of_sums(size_t count) {
    pair_open((Shape){1, 64, 64, 8, ANY, ANY, 1});
    Array *sums = array_normal(DOUBLES, count, 0.1, 1), *norm = array_filled(FLOATS, 1, NAN),
          *scale = array_filled(FLOATS, 1, 4);
    ON_BOTH(on->gradient_norm(AT(norm), AT(sums), count, AT(scale)));
    CHECK_NEAR(norm, 1e-6);
    pair_close();
}

// Parameters after an update. master NULL: the tested backend has none.
static void check_params(const Array *params, Array *master) {
    CHECK_NEAR(params, rounded_once);
    if (!master) return;
    for (size_t i = 0; i < params->count; i++) master->result[REFERENCE][i] = params->result[REFERENCE][i];
    CHECK_NEAR(master, 1e-6);
}

void operation_adamw(size_t count, size_t decay_count) {
    pair_open((Shape){1, 64, 64, 64 / 8, ANY, ANY, 1});
    const bool has_master = pair_backend(TESTED)->master_bytes > 0;
    Array *params = array_normal(PARS, count, 0.02, 0), *master = array_normal(FLOATS, count, 0, 0);
    Array *grads = array_normal(GRADS, count, 1e-3, 0), *m = array_normal(MOMENTS, count, 1e-4, 0);
    Array *v = array_filled(MOMENTS, count, 1e-7), *norm = array_filled(FLOATS, 1, NAN);
    memcpy(master->start, params->start, count * sizeof(double));
    Array *sums = array_filled(DOUBLES, norm_pieces(count), NAN);
    Array *scale = array_filled(FLOATS, 1, 0.5), *steps[2];
    for (int clipped = 0; clipped < 2; clipped++) {
        const AdamW step = adamw_init(&(AdamWSettings){1e-3, 0.9, 0.95, 1e-8, 0.1, clipped ? 0.05 : 0, 5, 1});
        steps[clipped] = array_bytes(&step, sizeof step);
    }
#define UPDATE(adamw_step)                                                                                             \
    NORM(count, AT(scale));                                                                                            \
    on->adamw(AT(m), AT(v),                                                                                            \
              &(Update){.count = count,                                                                                \
                        .decay_count = decay_count,                                                                    \
                        .params = AT(params),                                                                          \
                        .master = run && has_master ? AT(master) : AT(params),                                         \
                        .gradients = AT(grads),                                                                        \
                        .norm = AT(norm),                                                                              \
                        .divisor = AT(scale)},                                                                         \
              AT(adamw_step))
    for (int clipped = 0; clipped < 2; clipped++) {
        ON_BOTH(UPDATE(steps[clipped]));
        CHECK_NEAR(norm, 1e-6);
        CHECK_NEAR(m, 1e-6);
        CHECK_NEAR(v, 1e-6);
        check_params(params, has_master ? master : NULL);
    }
    grads->start[17] = INFINITY;
    ON_BOTH(UPDATE(steps[1]));
#undef UPDATE
    CHECK(!isfinite(norm->result[TESTED][0]));
    CHECK_NEAR(params, 0); // nothing was written
    for (size_t i = 0; i < count; i++) CHECK(m->result[TESTED][i] == (double)(float)m->start[i]);
    pair_close();
}

// Of a finite norm, and of one that is not; then a swap.
void operation_average(size_t count) {
    pair_open((Shape){1, 64, 64, 8, ANY, ANY, 1});
    const bool has_master = pair_backend(TESTED)->master_bytes > 0;
    Array *params = array_normal(PARS, count, 0.02, 0), *master = array_normal(FLOATS, count, 0, 0);
    Array *average = array_normal(FLOATS, count, 0.02, 0), *take = array_filled(FLOATS, 1, 0.001);
    Array *norms[] = {array_filled(FLOATS, 1, 0.5), array_filled(FLOATS, 1, NAN)};
    memcpy(master->start, params->start, count * sizeof(double));
#define OF(of_norm)                                                                                                    \
    Update update = {                                                                                                  \
        .count = count,                                                                                                \
        .params = AT(params),                                                                                          \
        .master = run && has_master ? AT(master) : AT(params),                                                         \
        .norm = AT(of_norm)                                                                                            \
    }
    for (int i = 0; i < 2; i++) {
        ON_BOTH(OF(norms[i]); on->average(AT(average), &update, AT(take)));
        CHECK_NEAR(average, 1e-7);
    }
    ON_BOTH(OF(norms[1]); on->average_swap(AT(average), &update));
#undef OF
    CHECK_NEAR(average, 0);
    check_params(params, has_master ? master : NULL);
    pair_close();
}

void operation_symmetric(int M, int n) {
    pair_open((Shape){1, 64, 64, 64 / 8, ANY, ANY, 1});
    Array *whole[3], *beside[2], *x = array_normal(ACTS, (size_t)(M * n), 1, 0);
    for (int i = 0; i < 3; i++) whole[i] = array_normal(GRADS, (size_t)(n * n), 0.1, 0);
    for (int i = 0; i < 2; i++) beside[i] = array_normal(ACTS, (size_t)(n * n), 0.1, 0);
    ON_BOTH(const Symmetric out = {AT(whole[2]), AT(beside[0])}; on->matmul_symmetric(out.whole, AT(x), AT(x), M, n);
            on->muon_symmetric(&out, NULL, NULL, n, false));
    CHECK_NEAR(whole[2], 1e-5);
    CHECK_NEAR(beside[0], rounded_once);
    for (int polynomial = 0; polynomial < 2; polynomial++) { // into the first operand, whose product is computed
        ON_BOTH(const Symmetric out = {AT(whole[2]), AT(beside[0])}; const Symmetric a = {AT(whole[0]), AT(beside[0])};
                const Symmetric b = {AT(whole[1]), AT(beside[1])};
                on->matmul_symmetric(out.whole, a.beside, b.beside, n, n);
                on->muon_symmetric(&out, &a, &b, n, polynomial));
        CHECK_NEAR(whole[2], 1e-5);
        CHECK_NEAR(beside[0], rounded_once);
    }
    pair_close();
}

void operation_muon(int rows, int cols) {
    pair_open((Shape){1, 64, 64, 64 / 8, ANY, ANY, 1});
    const size_t count = (size_t)rows * (size_t)cols, square_count = (size_t)cols * (size_t)cols;
    const bool has_master = pair_backend(TESTED)->master_bytes > 0;
    Array *params = array_normal(PARS, count, 0.02, 0), *master = array_normal(FLOATS, count, 0, 0);
    Array *grads = array_normal(GRADS, count, 1e-3, 0), *momentum = array_normal(FLOATS, count, 1e-4, 0);
    Array *direction = array_filled(GRADS, count, NAN), *matrix = array_filled(ACTS, count, NAN);
    Array *transposed = array_filled(ACTS, count, NAN), *norm = array_filled(FLOATS, 1, NAN);
    Array *whole = array_normal(GRADS, square_count, 1, 0), *scale = array_filled(FLOATS, 1, 0.5);
    Array *sums = array_filled(DOUBLES, norm_pieces(count), NAN);
    memcpy(master->start, params->start, count * sizeof(double));
    Array *steps[2];
    for (int clipped = 0; clipped < 2; clipped++) {
        const Muon step = {.adamw = {.max_norm = clipped ? 0.05f : 0, .step = 5, .seed = {1, 0}},
                           .rate = 1e-3f,
                           .shrink = 1 - 1e-3f * 0.1f,
                           .momentum = 0.95f,
                           .one = 1};
        steps[clipped] = array_bytes(&step, sizeof step);
    }
#define UPDATE(muon_step)                                                                                              \
    NORM(count, AT(scale));                                                                                            \
    Update update = {.count = count,                                                                                   \
                     .params = AT(params),                                                                             \
                     .master = run && has_master ? AT(master) : AT(params),                                            \
                     .gradients = AT(grads),                                                                           \
                     .norm = AT(norm),                                                                                 \
                     .divisor = AT(scale)};                                                                            \
    on->muon_momentum(AT(direction), AT(momentum), &update, AT(muon_step));                                            \
    update.gradients = AT(direction);                                                                                  \
    on->muon_update(&update, 4, AT(muon_step))
    for (int clipped = 0; clipped < 2; clipped++) {
        ON_BOTH(UPDATE(steps[clipped]));
        CHECK_NEAR(momentum, 1e-6);
        CHECK_NEAR(direction, 1e-6);
        check_params(params, has_master ? master : NULL);
    }
    ON_BOTH(NORM(count, &((const Muon *)AT(steps[0]))->one);
            on->muon_operand(AT(matrix), AT(transposed), AT(grads), rows, cols, AT(norm)));
    CHECK_NEAR(matrix, rounded_once);
    CHECK_NEAR(transposed, rounded_once);
    ON_BOTH(on->muon_operand(AT(matrix), AT(transposed), AT(grads), rows, cols, NULL));
    CHECK_NEAR(matrix, 1.1 * rounded_once); // small numbers of fp16
    ON_BOTH(NORM(count, &((const Muon *)AT(steps[0]))->one);
            on->muon_diagonal(AT(grads), AT(whole), rows, cols, AT(norm)));
    CHECK_NEAR(grads, 1e-6);
    grads->start[17] = INFINITY;
    ON_BOTH(UPDATE(steps[1]));
#undef UPDATE
    CHECK(!isfinite(norm->result[TESTED][0]));
    CHECK_NEAR(params, 0); // nothing was written
    for (size_t i = 0; i < count; i++)
        CHECK(momentum->result[TESTED][i] == (double)(float)momentum->start[i] && direction->result[TESTED][i] == 0);
    pair_close();
}
