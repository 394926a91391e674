// bench_gpu_trace.h: a wrapper for each row of ops.def.
#include "tests/bench/gpu/bench_gpu_trace.h"
#include "common/err.h"
#include "common/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 1 << 14 };

typedef struct {
    char name[64];
    double flops;
    uint64_t begin_ns, end_ns;
} Call;

static const Backend *real;
static Backend traced;
static int head_rows, count;
static Call calls[CALLS + 1]; // calls[0] is the step

#if HAVE_CUDA
#include "kernels/cuda/cuda_internal.h"
static cudaEvent_t events[CALLS + 1][2];
static bool on_device(void) { return cuda.stream; }
static void stamp(int call, int end) {
    if (!events[call][end])
        cuda_check(cudaEventCreateWithFlags(&events[call][end], cudaEventDefault), "creating an event");
    cuda_check(cudaEventRecord(events[call][end], cuda.stream), "timing");
}
static double elapsed_ms(int call) {
    float ms = 0;
    cuda_check(cudaEventSynchronize(events[call][1]), "timing");
    cuda_check(cudaEventElapsedTime(&ms, events[call][0], events[call][1]), "timing");
    return (double)ms;
}
static void free_events(void) {
    for (int i = 0; i < CALLS + 1; i++)
        for (int end = 0; end < 2; end++)
            if (events[i][end]) (void)cudaEventDestroy(events[i][end]), events[i][end] = NULL;
}
#else
static bool on_device(void) { return false; }
static void stamp(int call, int end) { (void)call, (void)end; }
static double elapsed_ms(int call) { return (double)call; }
static void free_events(void) {}
#endif

static void mark(int call, int end) {
    if (on_device())
        stamp(call, end);
    else
        *(end ? &calls[call].end_ns : &calls[call].begin_ns) = clock_ns();
}

static double ms_of(int call) {
    return on_device() ? elapsed_ms(call) : (double)(calls[call].end_ns - calls[call].begin_ns) * 1e-6;
}

static void start(const char *name, double flops) {
    if (++count > CALLS) die(EX_USAGE, "a trace holds %d operations, this step has more: take fewer layers", CALLS);
    snprintf(calls[count].name, sizeof calls[count].name, "%s", name);
    calls[count].flops = flops;
    mark(count, 0);
}
static void stop(void) { mark(count, 1); }

static void start_product(const char *name, int M, int rows, int cols) {
    char text[64];
    snprintf(text, sizeof text, "%s%s %d x %d x %d", rows == head_rows ? "head, " : "", name, M, rows, cols);
    start(text, 2.0 * M * rows * cols);
}

// ---- the operations

#define TIMED(name, arguments, call)                                                                                   \
    static void timed_##name arguments {                                                                               \
        start(#name, 0);                                                                                               \
        real->name call;                                                                                               \
        stop();                                                                                                        \
    }
#define TIMED_PRODUCT(name, M, rows, cols, arguments, call)                                                            \
    static void timed_##name arguments {                                                                               \
        start_product(#name, M, rows, cols);                                                                           \
        real->name call;                                                                                               \
        stop();                                                                                                        \
    }
#define TIMED_ATTENTION(name, products, arguments, call)                                                               \
    static void timed_##name arguments {                                                                               \
        start(#name, (products)*1.0 * a->B * a->T * a->T * a->H * a->D); /* causal, counted once */                    \
        real->name call;                                                                                               \
        stop();                                                                                                        \
    }

TIMED(embed_forward,
      (Res * out, const void *rows, const int32_t *positions, const Par *wte, const Par *wpe, int B, int T, int C,
       int vocab),
      (out, rows, positions, wte, wpe, B, T, C, vocab))
TIMED(embed_backward,
      (Grad * dwte, Grad *dwpe, const Res *dout, const void *rows, int B, int T, int C, int vocab, bool add),
      (dwte, dwpe, dout, rows, B, T, C, vocab, add))
TIMED(layernorm_forward, (Res * sum, Act *out, const Res *in, const Act *branch, const Norm *norm),
      (sum, out, in, branch, norm))
TIMED(layernorm_backward,
      (Res * dsum, Act *dsum_act, const NormGradients *gradients, const Act *dout, const Res *sum, const Norm *norm,
       bool first, bool add),
      (dsum, dsum_act, gradients, dout, sum, norm, first, add))
TIMED_PRODUCT(matmul_forward, M, w->rows, w->cols, (Act * out, const Act *in, const Weight *w, const Par *bias, int M),
              (out, in, w, bias, M))
TIMED_PRODUCT(matmul_backward_input, M, w->rows, w->cols, (Act * din, const Act *dout, const Weight *w, int M),
              (din, dout, w, M))
TIMED_PRODUCT(matmul_backward_weight, M, rows, cols,
              (Grad * dw, const Act *dout, const Act *in, int M, int rows, int cols, bool add),
              (dw, dout, in, M, rows, cols, add))
TIMED_PRODUCT(matmul_symmetric, M, n, n, (Grad * out, const Act *a, const Act *b, int M, int n), (out, a, b, M, n))
TIMED_PRODUCT(matmul_gelu_forward, M, w->rows, w->cols,
              (Act * out, Act *pre, const Act *in, const Weight *w, const Par *bias, int M, Activation form),
              (out, pre, in, w, bias, M, form))
TIMED_PRODUCT(matmul_gelu_backward, M, w->rows, w->cols,
              (Act * d, Grad *dbias, const Act *dout, const Act *pre, const Weight *w, int M, Activation form,
               bool add),
              (d, dbias, dout, pre, w, M, form, add))
TIMED(gelu_forward, (Act * out, const Act *in, size_t n, Activation form), (out, in, n, form))
TIMED(gelu_backward, (Act * d, Grad *dbias, const Act *in, int N, int C, Activation form, bool add),
      (d, dbias, in, N, C, form, add))
TIMED(swiglu_forward, (Act * out, const Act *in, int N, int F), (out, in, N, F))
TIMED(swiglu_backward, (Act * in, Grad *dbias, const Act *dout, int N, int F, bool add), (in, dbias, dout, N, F, add))
TIMED(heads_forward, (Act * qkv, const Act *in, const Heads *heads), (qkv, in, heads))
TIMED(heads_backward,
      (Act * din, Grad *dq_gain, Grad *dk_gain, Grad *dbias, const Act *dqkv, const Act *in, const Heads *heads,
       bool add),
      (din, dq_gain, dk_gain, dbias, dqkv, in, heads, add))
TIMED_ATTENTION(attention_forward, 2, (Act * out, float *lse, const Act *qkv, const Attention *a), (out, lse, qkv, a))
TIMED_ATTENTION(attention_backward, 5,
                (Act * dqkv, Grad *dbias, const Act *dout, const Act *out, const float *lse, const Act *qkv,
                 const Attention *a, bool add),
                (dqkv, dbias, dout, out, lse, qkv, a, add))
TIMED(dropout,
      (Act * out, Grad *dbias, const Act *in, const Dropout *dropout, int layer, DropoutSite site, int B, int T, int C,
       bool add),
      (out, dbias, in, dropout, layer, site, B, T, C, add))
TIMED(dropout_residual, (Res * x, const Dropout *dropout, int B, int T, int C), (x, dropout, B, T, C))
TIMED(cross_entropy, (Act * logits, float *losses, const void *rows, const CrossEntropy *loss),
      (logits, losses, rows, loss))
TIMED(sum_losses, (double *total, const float *losses, int n), (total, losses, n))
TIMED(add_gradients, (Grad * sums, const Grad *part, size_t n), (sums, part, n))
TIMED(round_to_bf16, (Grad * values, size_t n), (values, n))
TIMED(square_sums, (double *sums, const Grad *gradients, size_t n), (sums, gradients, n))
TIMED(gradient_norm, (float *norm, const double *sums, size_t n, const float *loss_scale), (norm, sums, n, loss_scale))
TIMED(adamw, (Moment * m, Moment *v, const Update *update, const AdamW *adamw), (m, v, update, adamw))
TIMED(muon_momentum, (Grad * direction, float *momentum, const Update *update, const Muon *muon),
      (direction, momentum, update, muon))
TIMED(muon_operand, (Act * out, Act *transposed, const Grad *in, int rows, int cols, const float *norm),
      (out, transposed, in, rows, cols, norm))
TIMED(muon_symmetric, (const Symmetric *out, const Symmetric *a, const Symmetric *b, int n, bool polynomial),
      (out, a, b, n, polynomial))
TIMED(muon_diagonal, (Grad * x, const Grad *whole, int rows, int cols, const float *norm), (x, whole, rows, cols, norm))
TIMED(muon_update, (const Update *update, float scale, const Muon *muon), (update, scale, muon))
TIMED(average, (float *average, const Update *update, const float *take), (average, update, take))
TIMED(average_swap, (float *average, const Update *update), (average, update))
TIMED(pack, (const Weight *w), (w))

static bool run_graph(int key, bool captured) { return (void)key, (void)captured, true; }
static void end_graph(int key) { (void)key; }

// ---- the trace

const Backend *trace_open(const Backend *backend, int head) {
    real = backend, head_rows = head, traced = *backend;
#define OP(name, scratch, arguments) traced.name = timed_##name;
#include "kernels/ops.def"
#undef OP
    traced.graph_begin = run_graph, traced.graph_end = end_graph;
    return &traced;
}

void trace_start(void) {
    count = 0;
    mark(0, 0);
}

void trace_print(int B, double peak) {
    mark(0, 1);
    const double step = ms_of(0);
    double rest = step;
    for (int i = 1; i <= count; i++) {
        if (!*calls[i].name) continue; // counted with an earlier one
        double ms = 0, flops = 0;
        int same = 0;
        for (int k = count; k >= i; k--) {
            if (strcmp(calls[k].name, calls[i].name)) continue;
            ms += ms_of(k), flops += calls[k].flops, same++;
            if (k > i) *calls[k].name = 0;
        }
        rest -= ms;
        printf(
            "{\"what\": \"trace\", \"name\": \"%s\", \"B\": %d, \"calls\": %d, \"ms\": %.4f, \"tflops\": %.2f, \"of_peak\": "
            "%.3f}\n",
            calls[i].name, B, same, ms, flops / ms * 1e-9, flops / ms * 1e3 / peak);
    }
    printf("{\"what\": \"trace\", \"name\": \"between operations\", \"B\": %d, \"ms\": %.4f}\n", B, rest);
    printf("{\"what\": \"trace\", \"name\": \"step\", \"B\": %d, \"ms\": %.4f}\n", B, step);
}

void trace_close(void) { free_events(); }
