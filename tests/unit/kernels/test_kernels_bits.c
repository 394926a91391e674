// A one-layer GPT out of the operations: the same bits at any number of threads.
#include "tests/unit/kernels/fixture_kernels.h"
#include <xxhash.h>

typedef struct {
    int B, T, C, H, V, vocab, chunk;
} Size;

enum { WTE, WPE, QKV, PROJ, FC, OUT, BIAS_QKV, BIAS_PROJ, BIAS_FC, BIAS_OUT, LN1, LN2, LN3, TENSORS };

typedef struct {
    Kernels *k;
    Size size;
    size_t at[TENSORS + 1]; // in parameters and gradients
    Par *params;
    Grad *grads;
    Moment *m, *v;
    float *norm, *losses;
    double *loss;
    Weight weights[4], head;
    uint16_t *rows;
    Res *sum[3], *dsum;
    float *mean[3], *rstd[3], *lse;
    Act *normed[3], *qkv, *attended, *branch, *fc, *gelu, *logits, *d, *dwide, *dsum_act;
} Model;

static size_t tensor_size(const Size *s, int tensor) {
    const size_t C = (size_t)s->C;
    switch (tensor) {
    case WTE:
        return (size_t)s->V * C;
    case WPE:
        return (size_t)s->T * C;
    case QKV:
        return 3 * C * C;
    case PROJ:
        return C * C;
    case FC:
    case OUT:
        return 4 * C * C;
    case BIAS_QKV:
        return 3 * C;
    case BIAS_FC:
        return 4 * C;
    case LN1:
    case LN2:
    case LN3:
        return 2 * C; // weight, bias
    default:
        return C;
    }
}

// Element `skip` of a tensor.
static Par *param(const Model *m, int tensor, size_t skip) { return offset(m->params, 4 * (m->at[tensor] + skip)); }
static Grad *grad(const Model *m, int tensor, size_t skip) { return offset(m->grads, 4 * (m->at[tensor] + skip)); }

static void model_pack(Model *m) {
    for (int i = 0; i < 4; i++) m->k->ops->pack(&m->weights[i]);
    m->k->ops->pack(&m->head);
}

static void model_open(Model *m, Kernels *k, Size s) {
    *m = (Model){.k = k, .size = s};
    for (int i = 0; i < TENSORS; i++) m->at[i + 1] = m->at[i] + tensor_size(&s, i);
    const size_t count = m->at[TENSORS], C = (size_t)s.C, N = (size_t)(s.B * s.T), act = k->ops->act_bytes;
    float *values = numbers(1, count, 0.1f);
    for (int i = LN1; i <= LN3; i++)
        for (size_t c = 0; c < C; c++) values[m->at[i] + c] += 1;
    m->params = put(k, values, count, 4), m->grads = take(k, 4 * count);
    m->m = take(k, 4 * count), m->v = take(k, 4 * count);
    k->ops->zero(m->m, 4 * count), k->ops->zero(m->v, 4 * count);
    m->norm = take(k, 4), m->losses = take(k, 4 * N), m->loss = take(k, 8);
    const int shapes[4][2] = {{3 * s.C, s.C}, {s.C, s.C}, {4 * s.C, s.C}, {s.C, 4 * s.C}};
    for (int i = 0; i < 4; i++) {
        m->weights[i] = (Weight){param(m, QKV + i, 0), NULL, shapes[i][0], shapes[i][1]};
        m->weights[i].packed = take(k, k->ops->packed_bytes(shapes[i][0], shapes[i][1]));
    }
    m->head = (Weight){m->params, take(k, k->ops->packed_bytes(s.V, s.C)), s.V, s.C};
    const size_t ids = (size_t)(s.B * (s.T + 1));
    m->rows = put(k, (float *)token_ids(2, ids + 1, s.vocab), (ids + 1) / 2, 4);
    for (int i = 0; i < 3; i++) {
        m->sum[i] = take(k, 4 * N * C), m->normed[i] = take(k, act * N * C);
        m->mean[i] = take(k, 4 * N), m->rstd[i] = take(k, 4 * N);
    }
    m->lse = take(k, 4 * N * (size_t)s.H), m->dsum = take(k, 4 * N * C), m->dsum_act = take(k, act * N * C);
    m->qkv = take(k, act * 3 * N * C), m->attended = take(k, act * N * C), m->branch = take(k, act * N * C);
    m->fc = take(k, act * 4 * N * C), m->gelu = take(k, act * 4 * N * C), m->d = take(k, act * N * C);
    m->dwide = take(k, act * 4 * N * C), m->logits = take(k, act * (size_t)s.chunk * (size_t)s.V);
    model_pack(m);
}

// One micro-batch: the mean loss, and its gradient when wanted.
static double model_step(Model *m, bool gradient, bool add) {
    const Size *s = &m->size;
    const Backend *f = m->k->ops;
    const int N = s->B * s->T, C = s->C;
    const Attention attention = {.B = s->B, .T = s->T, .H = s->H, .D = C / s->H};
#define P(tensor)      param(m, tensor, 0)
#define G(tensor)      grad(m, tensor, 0)
#define BETA(tensor)   param(m, tensor, (size_t)C) // the second half of a norm's tensor
#define G_BETA(tensor) grad(m, tensor, (size_t)C)
    f->embed_forward(m->sum[0], m->rows, P(WTE), P(WPE), s->B, s->T, C);
    f->layernorm_forward(m->sum[0], m->normed[0], m->mean[0], m->rstd[0], m->sum[0], NULL, P(LN1), BETA(LN1), N, C);
    f->matmul_forward(m->qkv, m->normed[0], &m->weights[0], P(BIAS_QKV), N);
    f->attention_forward(m->attended, m->lse, m->qkv, &attention);
    f->matmul_forward(m->branch, m->attended, &m->weights[1], P(BIAS_PROJ), N);
    f->layernorm_forward(m->sum[1], m->normed[1], m->mean[1], m->rstd[1], m->sum[0], m->branch, P(LN2), BETA(LN2), N,
                         C);
    f->matmul_forward(m->fc, m->normed[1], &m->weights[2], P(BIAS_FC), N);
    f->gelu_forward(m->gelu, m->fc, (size_t)N * 4 * (size_t)C, true);
    f->matmul_forward(m->branch, m->gelu, &m->weights[3], P(BIAS_OUT), N);
    f->layernorm_forward(m->sum[2], m->normed[2], m->mean[2], m->rstd[2], m->sum[1], m->branch, P(LN3), BETA(LN3), N,
                         C);
    for (int first = 0; first < N; first += s->chunk) {
        const int M = N - first < s->chunk ? N - first : s->chunk;
        const size_t at = (size_t)first * (size_t)C * f->act_bytes;
        f->matmul_forward(m->logits, offset(m->normed[2], at), &m->head, NULL, M);
        f->cross_entropy(m->logits, m->losses, m->rows, first, M, s->T, s->vocab, s->V, 0, 0, 1 / (float)N, m->k->one,
                         gradient);
        if (!gradient) continue;
        f->matmul_backward_input(offset(m->d, at), m->logits, &m->head, M);
        f->matmul_backward_weight(G(WTE), m->logits, offset(m->normed[2], at), M, s->V, C, add || first);
    }
    f->zero(m->loss, 8);
    f->sum_losses(m->loss, m->losses, N);
    double loss;
    f->download(&loss, m->loss, 8);
    if (!gradient) return loss / N;
    f->layernorm_backward(m->dsum, m->dsum_act, G(LN3), G_BETA(LN3), G(BIAS_OUT), m->d, m->sum[2], m->mean[2],
                          m->rstd[2], P(LN3), N, C, true, add);
    f->matmul_backward_input(m->dwide, m->dsum_act, &m->weights[3], N);
    f->matmul_backward_weight(G(OUT), m->dsum_act, m->gelu, N, C, 4 * C, add);
    f->gelu_backward(m->dwide, G(BIAS_FC), m->fc, N, 4 * C, true, add);
    f->matmul_backward_input(m->d, m->dwide, &m->weights[2], N);
    f->matmul_backward_weight(G(FC), m->dwide, m->normed[1], N, 4 * C, C, add);
    f->layernorm_backward(m->dsum, m->dsum_act, G(LN2), G_BETA(LN2), G(BIAS_PROJ), m->d, m->sum[1], m->mean[1],
                          m->rstd[1], P(LN2), N, C, false, add);
    f->matmul_backward_input(m->d, m->dsum_act, &m->weights[1], N);
    f->matmul_backward_weight(G(PROJ), m->dsum_act, m->attended, N, C, C, add);
    f->attention_backward(m->dwide, G(BIAS_QKV), m->d, m->attended, m->lse, m->qkv, &attention, add);
    f->matmul_backward_input(m->d, m->dwide, &m->weights[0], N);
    f->matmul_backward_weight(G(QKV), m->dwide, m->normed[0], N, 3 * C, C, add);
    f->layernorm_backward(m->dsum, m->dsum_act, G(LN1), G_BETA(LN1), NULL, m->d, m->sum[0], m->mean[0], m->rstd[0],
                          P(LN1), N, C, false, add);
    f->embed_backward(G(WTE), G(WPE), m->dsum, m->rows, s->B, s->T, C, add);
    return loss / N;
}

static Shape model_shape(Size s) {
    return (Shape){.B = s.B, .T = s.T, .C = s.C, .H = s.H, .V = s.V, .chunk_rows = s.chunk, .threads = 16};
}

static uint64_t hash_after_steps(Dtype dtype, int threads, Size size, uint64_t steps) {
    const Shape shape = model_shape(size);
    Kernels k = kernels_open(dtype, threads, &shape);
    Model m;
    model_open(&m, &k, size);
    const size_t count = m.at[TENSORS];
    uint64_t hash = 0;
    AdamWSettings settings = {1e-2, 0.9, 0.95, 1e-8, 0.1, 1, 0, 0};
    for (settings.step = 1; settings.step <= steps; settings.step++) {
        double loss = model_step(&m, true, false);
        loss += model_step(&m, true, true);
        kernels_norm(&k, m.norm, m.grads, count, k.one);
        k.ops->adamw(m.params, (float *)m.params, m.grads, m.m, m.v, 0, count, m.at[BIAS_QKV], put_adamw(&k, &settings),
                     m.norm, k.one, NULL);
        model_pack(&m);
        CHECK(isfinite(loss));
        hash = hash * 31 + XXH3_64bits(m.grads, 4 * count) + XXH3_64bits(&loss, sizeof loss);
    }
    hash = hash * 31 + XXH3_64bits(m.params, 4 * count);
    kernels_close(&k);
    return hash;
}

// Under MILLRACE_ISA, which has the slower instructions, less of each.
static bool is_capped(void) { return getenv("MILLRACE_ISA") != NULL; }

TEST(kernels_bits_do_not_depend_on_threads) {
    const uint64_t steps = is_capped() ? 1 : 3;
    static const Size sizes[] = {
        {2, 70, 96, 2, 192, 150, 64},
        {1, 192, 256, 4, 640, 600, 192},
        {2, 70, 64, 2, 640, 600, 140} // a head with long sums
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int type = 0; type < 3; type++) {
            const Dtype dtype = (Dtype)type;
            const uint64_t one = hash_after_steps(dtype, 1, sizes[i], steps);
            CHECK(one == hash_after_steps(dtype, 2, sizes[i], steps));
            CHECK(one == hash_after_steps(dtype, 4, sizes[i], steps));
        }
}

// The shapes of real models, where a library divides a sum among its threads: C = 768 in bf16, C = 384 in every type.
TEST(kernels_bits_do_not_depend_on_threads_at_the_widths_of_gpt2) {
    static const int threads[] = {3, 8, 2, 4, 6, 16};
    const size_t counts = is_capped() ? 2 : 6;
    for (int run = 0; run < 4; run++) {
        Size size = run ? (Size){2, 256, 384, 6, 640, 600, 512} : (Size){4, 256, 768, 12, 640, 600, 1024};
        if (is_capped()) size.B = 1, size.chunk = size.T;
        const Dtype dtype = run ? (Dtype)(run - 1) : DTYPE_BF16;
        const uint64_t one = hash_after_steps(dtype, 1, size, 1);
        for (size_t i = 0; i < counts; i++) CHECK(one == hash_after_steps(dtype, threads[i], size, 1));
    }
}
