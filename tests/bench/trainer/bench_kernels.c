// Times a whole GPT training step out of the CPU backend's operations, and what each kind of operation takes of it:
// bench_kernels [L=12 C=768 H=12 T=256 B=4 V=50304 chunk=1024 steps=5 threads=0 dtype=auto dropout=0 cpu=0]. Random
// weights and tokens. cpu=1: CPU time instead of wall time, for one thread on a machine that runs other programs too.
#include "common/err.h"
#include "common/log.h"
#include "kernels/adamw_scalars.h"
#include "kernels/backend.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum {
    FWD,
    DX,
    DW,
    HEAD_FWD,
    HEAD_DX,
    HEAD_DW,
    ATTENTION_FWD,
    ATTENTION_BWD,
    LAYERNORM,
    GELU,
    LOSS,
    EMBED,
    NORM,
    ADAMW,
    DROPOUT,
    BETWEEN,
    KINDS
} Kind;
static const char *const kind_names[] = {
    "matmul forward",    "matmul dX",          "matmul dW", "head forward", "head dX", "head dW",
    "attention forward", "attention backward", "layernorm", "GELU",         "loss",    "embed",
    "gradient norm",     "AdamW and pack",     "dropout",   "between"};
static double seconds[KINDS];

static const Backend *ops;
static Shape s = {.B = 4, .T = 256, .C = 768, .H = 12, .V = 50304, .chunk_rows = 1024};
static int layers = 12, N, cpu_time;
static Dropout masks, *dropout; // NULL: none
static char *arena;
static size_t arena_used, arena_size;

// A first pass without memory counts the bytes; the second one assigns addresses.
static void *take(size_t bytes) {
    void *at = arena ? arena + arena_used : NULL;
    arena_used += (bytes + 63) / 64 * 64;
    return at;
}

enum { MATRICES = 4, MOST_LAYERS = 64 };
typedef struct {
    Par *bias[MATRICES], *ln[2];
    Grad *dbias[MATRICES], *dw[MATRICES], *dln[2];
    Weight w[MATRICES];
    Res *sum[2];
    float *mean[2], *rstd[2], *lse;
    Act *normed[2], *qkv, *attended, *fc, *gelu;
} Layer;

static struct {
    Par *params, *wte, *wpe, *ln;
    Grad *grads, *dwte, *dwpe, *dln;
    Moment *m, *v;
    Res *sum, *dsum;
    float *mean, *rstd, *losses, *norm;
    double *sums;
    size_t count, decayed;
    Weight head;
    Act *normed, *branch, *dsum_act, *dwide, *d, *logits;
    uint16_t *rows;
    double *loss;
    Layer layer[MOST_LAYERS];
} g;

static void *offset(const void *tensor, size_t bytes) { return (char *)(uintptr_t)tensor + bytes; }
#define HALF(ln) offset(ln, 4 * (size_t)C) // the bias of a norm lies after its weight

static Par *take_params(Grad **gradient, size_t n) {
    Par *at = g.params ? offset(g.params, 4 * g.count) : NULL;
    *gradient = g.grads ? offset(g.grads, 4 * g.count) : NULL;
    g.count += n;
    return at;
}

static void lay_out_params(void) {
    const size_t C = (size_t)s.C;
    const int shapes[MATRICES][2] = {{3 * s.C, s.C}, {s.C, s.C}, {4 * s.C, s.C}, {s.C, 4 * s.C}};
    g.count = 0;
    g.wte = take_params(&g.dwte, (size_t)s.V * C), g.wpe = take_params(&g.dwpe, (size_t)s.T * C);
    for (int l = 0; l < layers; l++)
        for (int i = 0; i < MATRICES; i++) {
            Weight *w = &g.layer[l].w[i];
            w->rows = shapes[i][0], w->cols = shapes[i][1];
            w->param = take_params(&g.layer[l].dw[i], (size_t)w->rows * (size_t)w->cols);
        }
    g.decayed = g.count;
    for (int l = 0; l < layers; l++) {
        for (int i = 0; i < MATRICES; i++) g.layer[l].bias[i] = take_params(&g.layer[l].dbias[i], (size_t)shapes[i][0]);
        for (int i = 0; i < 2; i++) g.layer[l].ln[i] = take_params(&g.layer[l].dln[i], 2 * C);
    }
    g.ln = take_params(&g.dln, 2 * C);
}

static void lay_out(void) {
    const size_t n = (size_t)N, C = (size_t)s.C, act = ops->act_bytes;
    arena_used = 0;
    ops->bind_scratch(take(ops->scratch_bytes(&s)), ops->scratch_bytes(&s));
    lay_out_params(); // counts
    g.params = take(4 * g.count), g.grads = take(4 * g.count), g.m = take(4 * g.count), g.v = take(4 * g.count);
    lay_out_params();
    for (int l = 0; l < layers; l++) {
        Layer *a = &g.layer[l];
        for (int i = 0; i < MATRICES; i++) a->w[i].packed = take(ops->packed_bytes(a->w[i].rows, a->w[i].cols));
        for (int i = 0; i < 2; i++) {
            a->sum[i] = take(4 * n * C), a->mean[i] = take(4 * n), a->rstd[i] = take(4 * n);
            a->normed[i] = take(act * n * C);
        }
        a->lse = take(4 * n * (size_t)s.H), a->qkv = take(act * 3 * n * C), a->attended = take(act * n * C);
        a->fc = take(act * 4 * n * C), a->gelu = take(act * 4 * n * C);
    }
    g.head = (Weight){g.wte, take(ops->packed_bytes(s.V, s.C)), s.V, s.C};
    g.sum = take(4 * n * C), g.mean = take(4 * n), g.rstd = take(4 * n), g.dsum = take(4 * n * C);
    g.losses = take(4 * n), g.norm = take(4), g.sums = take(8 * norm_pieces(g.count)), g.loss = take(8),
    g.normed = take(act * n * C);
    g.branch = take(act * n * C), g.dsum_act = take(act * n * C), g.d = take(act * n * C);
    g.dwide = take(act * 4 * n * C), g.logits = take(act * (size_t)s.chunk_rows * (size_t)s.V);
    g.rows = take(2 * (n + (size_t)s.B));
}

static double now(void) {
    struct timespec t;
    clock_gettime(cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#define TIME(kind, call)                                                                                               \
    do {                                                                                                               \
        const double start_ = now();                                                                                   \
        ops->call;                                                                                                     \
        seconds[kind] += now() - start_;                                                                               \
    } while (0)

static Attention attention_of(int l) {
    return (Attention){.B = s.B, .T = s.T, .H = s.H, .D = s.C / s.H, .dropout = dropout, .layer = l};
}

// The mask of a branch; in the backward pass with the gradient of its bias, which the norm computes without dropout.
static void drop(Act *x, Grad *dbias, int l, DropoutSite site) {
    if (dropout) TIME(DROPOUT, dropout(x, dbias, x, dropout, l, site, s.B, s.T, s.C, false));
}

static Norm norm_of(const Par *ln, float *mean, float *rstd) {
    const int C = s.C;
    return (Norm){N, C, ln, HALF(ln), mean, rstd};
}

static void forward(void) {
    const int C = s.C;
    const Act *branch = NULL;
    const Res *below = g.sum;
    TIME(EMBED, embed_forward(g.sum, g.rows, g.wte, g.wpe, s.B, s.T, C, s.V));
    if (dropout) TIME(DROPOUT, dropout_residual(g.sum, dropout, s.B, s.T, C));
    for (int l = 0; l < layers; l++) {
        Layer *a = &g.layer[l];
        const Norm first = norm_of(a->ln[0], a->mean[0], a->rstd[0]),
                   second = norm_of(a->ln[1], a->mean[1], a->rstd[1]);
        TIME(LAYERNORM, layernorm_forward(a->sum[0], a->normed[0], below, branch, &first));
        TIME(FWD, matmul_forward(a->qkv, a->normed[0], &a->w[0], a->bias[0], N));
        const Attention attention = attention_of(l);
        TIME(ATTENTION_FWD, attention_forward(a->attended, a->lse, a->qkv, &attention));
        TIME(FWD, matmul_forward(g.branch, a->attended, &a->w[1], a->bias[1], N));
        drop(g.branch, NULL, l, DROPOUT_ATTENTION_OUT);
        TIME(LAYERNORM, layernorm_forward(a->sum[1], a->normed[1], a->sum[0], g.branch, &second));
        TIME(FWD, matmul_forward(a->fc, a->normed[1], &a->w[2], a->bias[2], N));
        TIME(GELU, gelu_forward(a->gelu, a->fc, (size_t)N * 4 * (size_t)C, true));
        TIME(FWD, matmul_forward(g.branch, a->gelu, &a->w[3], a->bias[3], N));
        drop(g.branch, NULL, l, DROPOUT_MLP_OUT);
        branch = g.branch, below = a->sum[1];
    }
    const Norm last = norm_of(g.ln, g.mean, g.rstd);
    TIME(LAYERNORM, layernorm_forward(g.sum, g.normed, below, branch, &last));
}

static const float one = 1;

static double head(void) {
    for (int first = 0; first < N; first += s.chunk_rows) {
        const int M = N - first < s.chunk_rows ? N - first : s.chunk_rows;
        const size_t at = (size_t)first * (size_t)s.C * ops->act_bytes;
        TIME(HEAD_FWD, matmul_forward(g.logits, offset(g.normed, at), &g.head, NULL, M));
        const CrossEntropy loss = {first, M, s.T, s.V - 47, s.V, 0, 0, true, 1 / (float)N, &one};
        TIME(LOSS, cross_entropy(g.logits, g.losses, g.rows, &loss));
        TIME(HEAD_DX, matmul_backward_input(offset(g.d, at), g.logits, &g.head, M));
        TIME(HEAD_DW, matmul_backward_weight(g.dwte, g.logits, offset(g.normed, at), M, s.V, s.C, first > 0));
    }
    ops->zero(g.loss, 8);
    ops->sum_losses(g.loss, g.losses, N);
    return *g.loss / N;
}

static void backward(void) {
    const int C = s.C;
    const Norm last = norm_of(g.ln, g.mean, g.rstd);
    const NormGradients of_last = {g.dln, HALF(g.dln), dropout ? NULL : g.layer[layers - 1].dbias[3]};
    TIME(LAYERNORM, layernorm_backward(g.dsum, g.dsum_act, &of_last, g.d, g.sum, &last, true, false));
    for (int l = layers - 1; l >= 0; l--) {
        Layer *a = &g.layer[l];
        drop(g.dsum_act, a->dbias[3], l, DROPOUT_MLP_OUT);
        TIME(DX, matmul_backward_input(g.dwide, g.dsum_act, &a->w[3], N));
        TIME(DW, matmul_backward_weight(a->dw[3], g.dsum_act, a->gelu, N, C, 4 * C, false));
        TIME(GELU, gelu_backward(g.dwide, a->dbias[2], a->fc, N, 4 * C, true, false));
        TIME(DX, matmul_backward_input(g.d, g.dwide, &a->w[2], N));
        TIME(DW, matmul_backward_weight(a->dw[2], g.dwide, a->normed[1], N, 4 * C, C, false));
        const Norm first = norm_of(a->ln[0], a->mean[0], a->rstd[0]),
                   second = norm_of(a->ln[1], a->mean[1], a->rstd[1]);
        const NormGradients of_first = {a->dln[0], HALF(a->dln[0]), l && !dropout ? g.layer[l - 1].dbias[3] : NULL};
        const NormGradients of_second = {a->dln[1], HALF(a->dln[1]), dropout ? NULL : a->dbias[1]};
        TIME(LAYERNORM, layernorm_backward(g.dsum, g.dsum_act, &of_second, g.d, a->sum[1], &second, false, false));
        drop(g.dsum_act, a->dbias[1], l, DROPOUT_ATTENTION_OUT);
        TIME(DX, matmul_backward_input(g.d, g.dsum_act, &a->w[1], N));
        TIME(DW, matmul_backward_weight(a->dw[1], g.dsum_act, a->attended, N, C, C, false));
        const Attention attention = attention_of(l);
        TIME(ATTENTION_BWD,
             attention_backward(g.dwide, a->dbias[0], g.d, a->attended, a->lse, a->qkv, &attention, false));
        TIME(DX, matmul_backward_input(g.d, g.dwide, &a->w[0], N));
        TIME(DW, matmul_backward_weight(a->dw[0], g.dwide, a->normed[0], N, 3 * C, C, false));
        TIME(LAYERNORM, layernorm_backward(g.dsum, g.dsum_act, &of_first, g.d, a->sum[0], &first, false, false));
    }
    if (dropout) TIME(DROPOUT, dropout_residual(g.dsum, dropout, s.B, s.T, C));
    TIME(EMBED, embed_backward(g.dwte, g.dwpe, g.dsum, g.rows, s.B, s.T, C, s.V, false));
}

static void pack(void) {
    for (int l = 0; l < layers; l++)
        for (int i = 0; i < MATRICES; i++) ops->pack(&g.layer[l].w[i]);
    ops->pack(&g.head);
}

static void update_range(const AdamW *step, size_t first, size_t count, const Weight *weight) {
    const size_t at = 4 * first;
    Par *params = offset(g.params, at);
    const Update of = {first, count, g.decayed, params, (float *)params, offset(g.grads, at), g.norm, &one, weight};
    TIME(ADAMW, adamw(offset(g.m, at), offset(g.v, at), &of, step));
}

// One call for each weight, which packs it, and one for the parameters between two weights (trainer/optim/offload.c).
static void update(const AdamW *step) {
    size_t done = 0;
    for (int i = -1; i < layers * MATRICES; i++) {
        const Weight *w = i < 0 ? &g.head : &g.layer[i / MATRICES].w[i % MATRICES];
        const size_t at = (size_t)((const float *)w->param - (float *)g.params),
                     count = (size_t)w->rows * (size_t)w->cols;
        if (at > done) update_range(step, done, at - done, NULL);
        update_range(step, at, count, ops->packed_bytes(w->rows, w->cols) ? w : NULL);
        done = at + count;
    }
    update_range(step, done, g.count - done, NULL);
}

static void fill(void) {
    uint64_t random = 1;
    float *params = (float *)g.params;
    for (size_t i = 0; i < g.count; i++) {
        random = random * 6364136223846793005 + 1442695040888963407;
        params[i] = ((float)(random >> 40) / 8388608.0f - 1) * 0.03f;
    }
    for (int l = 0; l < layers; l++)
        for (int i = 0; i < s.C; i++) ((float *)g.layer[l].ln[0])[i] += 1, ((float *)g.layer[l].ln[1])[i] += 1;
    for (int i = 0; i < s.C; i++) ((float *)g.ln)[i] += 1;
    for (int i = 0; i < N + s.B; i++) {
        random = random * 6364136223846793005 + 1442695040888963407;
        g.rows[i] = (uint16_t)((random >> 33) % (uint64_t)(s.V - 47));
    }
    ops->zero(g.m, 4 * g.count), ops->zero(g.v, 4 * g.count), ops->zero(g.grads, 4 * g.count);
}

static double flops(Kind kind) {
    const double n = N, C = s.C, body = 24 * layers * C * C * n, classes = 2.0 * s.V * C * n;
    const double scores = 2.0 * layers * C * s.T * n;
    switch (kind) {
    case FWD:
    case DX:
    case DW:
        return body;
    case HEAD_FWD:
    case HEAD_DX:
    case HEAD_DW:
        return classes;
    case ATTENTION_FWD:
        return scores;
    case ATTENTION_BWD:
        return 2.5 * scores;
    default:
        return 0;
    }
}

static int steps = 5, threads;
static double dropout_rate;
static char dtype[16] = "auto";

static void read_keys(int count, char **arguments) {
    const struct {
        const char *format;
        void *value;
    } keys[] = {{"L=%d", &layers},
                {"C=%d", &s.C},
                {"H=%d", &s.H},
                {"T=%d", &s.T},
                {"B=%d", &s.B},
                {"V=%d", &s.V},
                {"chunk=%d", &s.chunk_rows},
                {"steps=%d", &steps},
                {"threads=%d", &threads},
                {"dropout=%lf", &dropout_rate},
                {"cpu=%d", &cpu_time},
                {"dtype=%15s", dtype}};
    for (int i = 1; i < count; i++) {
        bool known = false;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            known = known || sscanf(arguments[i], keys[k].format, keys[k].value) == 1;
        if (!known || layers > MOST_LAYERS) die(EX_USAGE, "not '%s'", arguments[i]);
    }
}

int main(int count, char **arguments) {
    char why[256];
    read_keys(count, arguments);
    N = s.B * s.T;
    if (s.chunk_rows > N) s.chunk_rows = N;
    masks = (Dropout){
        .seed = {1, 2}, .threshold = (uint32_t)(dropout_rate * 65536), .scale = 1 / (1 - (float)dropout_rate)};
    if (dropout_rate > 0) dropout = &masks;
    Dtype type;
    if (!dtype_parse(dtype, &type)) return fprintf(stderr, "bench_kernels: dtype '%s' is not known\n", dtype), EX_USAGE;
    ops = backend_open(&(BackendChoice){.device = DEVICE_CPU, .dtype = type, .threads = threads, .deterministic = true},
                       why);
    if (!ops) die(err_code(), "%s", err_text());
    lay_out();
    arena = ops->alloc(arena_size = arena_used);
    if (!arena) die(err_code(), "%s", err_text());
    lay_out();
    fill();
    pack();
    AdamWSettings settings = {6e-4, 0.9, 0.95, 1e-8, 0.1, 1, 0, 0};
    double best = 1e9, best_seconds[KINDS], load = 0, loss = 0;
    for (int i = 0; i < KINDS; i++) best_seconds[i] = 1e9;
    for (settings.step = 1; settings.step <= (uint64_t)steps + 1; settings.step++) { // the first one makes primitives
        const AdamW step = adamw_init(&settings);
        memset(seconds, 0, sizeof seconds);
        const double start = now();
        forward();
        loss = head();
        backward();
        TIME(NORM, square_sums(g.sums, g.grads, g.count));
        TIME(NORM, gradient_norm(g.norm, g.sums, norm_pieces(g.count), &one));
        update(&step);
        const double took = seconds[BETWEEN] = now() - start;
        for (int i = 0; i < BETWEEN; i++) seconds[BETWEEN] -= seconds[i];
        if (settings.step == 1) continue;
        if (took < best) best = took;
        for (int i = 0; i < KINDS; i++)
            if (seconds[i] < best_seconds[i]) best_seconds[i] = seconds[i];
    }
    double work = 0;
    for (int i = 0; i < KINDS; i++) work += flops((Kind)i);
    if (getloadavg(&load, 1) < 1) load = 0;
    printf("%s\n%.1fM parameters, L%d C%d H%d T%d B%d V%d, %.2f GiB, loss %.4f, load average %.1f\n", why,
           (double)g.count * 1e-6, layers, s.C, s.H, s.T, s.B, s.V, (double)arena_size / (1 << 30), loss, load);
    printf("best of %d steps: %.1f ms of %s time, %.0f tok/s, %.0f GFLOP/s; the best of each operation:\n", steps,
           best * 1e3, cpu_time ? "CPU" : "wall", N / best, work / best * 1e-9);
    for (int i = 0; i < KINDS; i++) {
        const double t = best_seconds[i], f = flops((Kind)i);
        printf("  %-18s %7.1f ms %5.1f %%", kind_names[i], t * 1e3, 100 * t / best);
        printf(f > 0 ? "  %.0f GFLOP/s\n" : "\n", f / t * 1e-9);
    }
    return 0;
}
