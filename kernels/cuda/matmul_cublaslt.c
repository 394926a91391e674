// Matrix products by cuBLASLt. The plan of a shape (descriptor, layouts, algorithm) is created at its first use and
// kept; a call sets its pointers and launches. cuBLASLt is column-major, so every product is computed transposed.
//
// The algorithms that the heuristic suggests are timed on the real operands, which no cache holds, and the fastest is
// taken. A product and its GELU are made in the fastest of three ways (product_choices.h): one after the other, by
// cuBLASLt's epilogue (whose GELU is of numbers that are not rounded yet: the numbers of the backward pass may differ
// in the last bit), or by a kernel for both. The choice is kept, so that a run repeats its bits, on this card and from
// its checkpoint. deterministic=False times at every start. If nothing can be kept, a deterministic run takes the first
// suggestion, a function of shape and card alone. All of this happens in the warm-up run of a graph (graph.c): never
// during a capture, never for a shape that is used once.
#include "common/err.h"
#include "common/log.h"
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/libraries/cublaslt.h"
#include "kernels/cuda/libraries/product_choices.h"
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WORKSPACE_MOST = 128 << 20, // the sums of a weight gradient that is split seven times need 50 MiB
    PLANS = 256,                // a step needs about 20; sampling and items some per length, and the oldest is replaced
    CANDIDATES = 16,
    REPEATS = 5, // timed runs of a candidate, after one that warms up
};

// The operations here read the activation type from the open device: one function has the names of all types.
#define OP(name, scratch, arguments) void cuda_##name arguments;
#include "kernels/ops.def"
#undef OP

// D (m,n) = epilogue(op(A) op(B) [+ D]), all column-major, k the shared dimension.
typedef struct {
    int m, n, k;
    bool transposed_a, transposed_b, fp32_result;
    cublasLtEpilogue_t epilogue;
    Activation form;    // of the epilogue; cuBLASLt's is GELU's tanh form
    unsigned alignment; // the least of all pointers, up to 256: vectorized kernels depend on it
} Gemm;

// aux (m,n): the input of the GELU. Nullable: bias, aux.
typedef struct {
    void *d;
    const void *a, *b, *bias, *aux;
} GemmOperands;

typedef struct {
    Gemm product;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
    ProductWay way;
    bool chosen;   // by timing, or as a run before did
    float ms;      // then: of the fastest candidate
    unsigned kept; // the number of the choice (product_choices.h)
} GemmPlan;

static cublasLtHandle_t handle;
static cudaEvent_t started, stopped;
static GemmPlan gemm_plans[PLANS];
static unsigned gemm_plan_count, gemm_plan_oldest;

static void check(cublasStatus_t status, const Gemm *p) {
    if (status != CUBLAS_STATUS_SUCCESS)
        die(EX_GPU, "matrix product %d x %d x %d: cuBLASLt reports: %s", p->m, p->n, p->k,
            blas.GetStatusString(status));
}

void cuda_matmul_open(const char *cache_dir) {
    char card[sizeof cuda.card + 64];
    cublasStatus_t status = blas.Create(&handle);
    if (status != CUBLAS_STATUS_SUCCESS) die(EX_GPU, "cannot start cuBLASLt: %s", blas.GetStatusString(status));
    cuda_check(cudaEventCreateWithFlags(&started, cudaEventDefault), "creating an event");
    cuda_check(cudaEventCreateWithFlags(&stopped, cudaEventDefault), "creating an event");
    snprintf(card, sizeof card, "cuBLASLt %zu on %s", blas.GetVersion(), cuda.card);
    product_choices_open(cache_dir, card);
}

static void gemm_plan_free(GemmPlan *plan) {
    blas.MatmulDescDestroy(plan->operation);
    blas.MatrixLayoutDestroy(plan->a);
    blas.MatrixLayoutDestroy(plan->b);
    blas.MatrixLayoutDestroy(plan->d);
}

void cuda_matmul_close(void) {
    while (gemm_plan_count) gemm_plan_free(&gemm_plans[--gemm_plan_count]);
    memset(gemm_plans, 0, sizeof gemm_plans);
    gemm_plan_oldest = 0;
    (void)cudaEventDestroy(started);
    (void)cudaEventDestroy(stopped);
    blas.Destroy(handle);
    handle = NULL;
    product_choices_close();
}

// The scratch memory of other operations is a workspace, too. Powers of two: a choice holds for one size of workspace.
static size_t workspace_bytes(void) {
    size_t bytes = WORKSPACE_MOST;
    while (bytes > cuda.scratch_bytes && bytes > WORKSPACE_LEAST) bytes /= 2;
    assert(cuda.scratch_bytes >= bytes);
    return bytes;
}

// ---- plans

// A stored matrix of `rows` contiguous numbers in `cols` columns.
static cublasLtMatrixLayout_t layout(const Gemm *p, cudaDataType type, int rows, int cols) {
    cublasLtMatrixLayout_t made;
    check(blas.MatrixLayoutCreate(&made, type, (uint64_t)rows, (uint64_t)cols, rows), p);
    return made;
}

#define DESCRIBE(name, value)                                                                                          \
    check(blas.MatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_##name, &(value), sizeof(value)), p)

static void describe_pointers(const GemmPlan *plan, const void *bias, const void *aux) {
    const Gemm *p = &plan->product;
    const int64_t stride = p->m;
    if (bias) DESCRIBE(BIAS_POINTER, bias);
    if (aux) DESCRIBE(EPILOGUE_AUX_POINTER, aux), DESCRIBE(EPILOGUE_AUX_LD, stride);
}

// The algorithms that the heuristic suggests, the best first; 0 when cuBLASLt has no kernel. It does not see the
// pointers, only the alignment of the product: a choice is kept for every product with that alignment.
static int query_heuristic(const GemmPlan *plan, const GemmOperands *o, cublasLtMatmulHeuristicResult_t *results,
                           int wanted) {
    const Gemm *p = &plan->product;
    cublasLtMatmulPreference_t preference;
    check(blas.MatmulPreferenceCreate(&preference), p);
    const uint64_t workspace = workspace_bytes();
    const uint32_t alignment = p->alignment;
    // A sum split over blocks is reduced through the workspace, in order, never by atomics; and in fp32, since partial
    // sums in the output type would make the error depend on the card's choice of split.
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
#define PREFER(name, value)                                                                                            \
    check(blas.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_##name, &(value), sizeof(value)), p)
    PREFER(MAX_WORKSPACE_BYTES, workspace);
    PREFER(REDUCTION_SCHEME_MASK, reductions);
    PREFER(MIN_ALIGNMENT_A_BYTES, alignment);
    PREFER(MIN_ALIGNMENT_B_BYTES, alignment);
    PREFER(MIN_ALIGNMENT_C_BYTES, alignment);
    PREFER(MIN_ALIGNMENT_D_BYTES, alignment);
    int found = 0;
    const void *aligned = (const void *)(uintptr_t)(256 + alignment);
    describe_pointers(plan, o->bias ? aligned : NULL, o->aux ? aligned : NULL);
    cublasStatus_t status = blas.MatmulAlgoGetHeuristic(handle, plan->operation, plan->a, plan->b, plan->d, plan->d,
                                                        preference, wanted, results, &found);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, p);
    describe_pointers(plan, o->bias, o->aux);
    blas.MatmulPreferenceDestroy(preference);
    return status == CUBLAS_STATUS_SUCCESS ? found : 0;
}

static bool gemm_is_same(const Gemm *a, const Gemm *b) {
    return a->m == b->m && a->n == b->n && a->k == b->k && a->transposed_a == b->transposed_a &&
           a->transposed_b == b->transposed_b && a->fp32_result == b->fp32_result && a->epilogue == b->epilogue &&
           a->form == b->form && a->alignment == b->alignment;
}

// A free plan, or the oldest one. A choice is made in a warm-up alone, and later steps need it: it stays.
static GemmPlan *gemm_plan_replaced(void) {
    if (gemm_plan_count < PLANS) return &gemm_plans[gemm_plan_count++];
    for (int tried = 0; tried < PLANS && gemm_plans[gemm_plan_oldest % PLANS].chosen; tried++) gemm_plan_oldest++;
    return &gemm_plans[gemm_plan_oldest++ % PLANS];
}

static GemmPlan *gemm_plan_new(const Gemm *product) {
    GemmPlan *plan = gemm_plan_replaced();
    if (plan->operation) gemm_plan_free(plan);
    *plan = (GemmPlan){.product = *product};
    const Gemm *p = &plan->product;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check(blas.MatmulDescCreate(&plan->operation, cuda.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                CUDA_R_32F),
          p);
    if (p->transposed_a) DESCRIBE(TRANSA, transposed);
    if (p->transposed_b) DESCRIBE(TRANSB, transposed);
    DESCRIBE(EPILOGUE, p->epilogue);
#define BLAS_TYPE(NAME, name, number, word, file, range, on, card, blas, ...) [DTYPE_##NAME] = blas,
    static const cudaDataType blas_types[] = {DTYPES(BLAS_TYPE, )};
    const cudaDataType act = blas_types[cuda.act_type];
    plan->a = layout(p, act, p->transposed_a ? p->k : p->m, p->transposed_a ? p->m : p->k);
    plan->b = layout(p, act, p->transposed_b ? p->n : p->k, p->transposed_b ? p->k : p->n);
    plan->d = layout(p, p->fp32_result ? CUDA_R_32F : act, p->m, p->n);
    return plan;
}

// The pointer is valid until the next call for another product.
static GemmPlan *gemm_plan_for(Gemm product, const GemmOperands *o) {
    uintptr_t pointers = (uintptr_t)o->d | (uintptr_t)o->a | (uintptr_t)o->b | (uintptr_t)o->bias | (uintptr_t)o->aux;
    product.alignment = (unsigned)((pointers | 256) & -(pointers | 256));
    GemmPlan *plan = gemm_plans, *end = gemm_plans + gemm_plan_count;
    while (plan < end && !gemm_is_same(&plan->product, &product)) plan++;
    bool known = plan < end;
    if (!known) plan = gemm_plan_new(&product);
    describe_pointers(plan, o->bias, o->aux);
    if (known) return plan;
    cublasLtMatmulHeuristicResult_t first;
    if (query_heuristic(plan, o, &first, 1))
        plan->algorithm = first.algo, plan->way = o->aux ? PRODUCT_APART : PRODUCT_BY_ALGORITHM;
    return plan;
}

static cublasStatus_t launch(const GemmPlan *plan, const cublasLtMatmulAlgo_t *algorithm, const GemmOperands *o,
                             bool add) {
    const float one = 1, beta = add ? 1 : 0;
    return blas.Matmul(handle, plan->operation, &one, o->a, plan->a, o->b, plan->b, &beta, o->d, plan->d, o->d, plan->d,
                       algorithm, cuda.scratch, workspace_bytes(), cuda.stream);
}

// ---- the choice of an algorithm

// A timed call is repeated: only possible when it overwrites its result.
static bool may_choose(const GemmPlan *plan, bool add) { return !plan->chosen && !add && graph_is_warmup_run(); }

static void gemm_name(const Gemm *p, size_t workspace, char name[PRODUCT_NAME_BYTES]) {
    static const char *const forms[] = {
        [ACTIVATION_GELU] = " gelu", [ACTIVATION_RELU2] = " relu2", [ACTIVATION_GELU_TANH] = ""};
    snprintf(name, PRODUCT_NAME_BYTES, "%s %dx%dx%d %c%c %s epilogue %d alignment %u workspace %zu%s",
             cuda.tf32 ? "tf32" : dtype_name(cuda.act_type), p->m, p->n, p->k, p->transposed_a ? 'T' : 'N',
             p->transposed_b ? 'T' : 'N', p->fp32_result ? "fp32" : "act", (int)p->epilogue, p->alignment,
             workspace >> 20, forms[p->form]);
}

// Is it an algorithm for this product that fits the workspace and has a repeatable reduction? It comes from a file.
static bool is_usable(const GemmPlan *plan, const cublasLtMatmulAlgo_t *algorithm) {
    uint32_t reduction = 0;
    size_t written;
    cublasLtMatmulHeuristicResult_t result;
    return blas.MatmulAlgoConfigGetAttribute(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &reduction,
                                             sizeof reduction, &written) == CUBLAS_STATUS_SUCCESS &&
           (reduction == CUBLASLT_REDUCTION_SCHEME_NONE || reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) &&
           blas.MatmulAlgoCheck(handle, plan->operation, plan->a, plan->b, plan->d, plan->d, algorithm, &result) ==
               CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= workspace_bytes();
}

// The choice of a checkpoint holds for every workspace: a run that continues with a larger evaluation may have another.
static unsigned find_choice(const Gemm *p, char name[PRODUCT_NAME_BYTES], ProductChoice *choice) {
    for (size_t bytes = WORKSPACE_MOST; bytes >= WORKSPACE_LEAST; bytes /= 2) {
        gemm_name(p, bytes, name);
        const unsigned found = product_choice_find(name, true, choice);
        if (found) return found;
    }
    gemm_name(p, workspace_bytes(), name);
    return product_choice_find(name, false, choice);
}

// Takes the choice of an earlier run. Without one, false when it shall be made now, under product_choices_lock.
static bool recall(GemmPlan *plan, bool wgmma) {
    char name[PRODUCT_NAME_BYTES];
    ProductChoice choice;
    cublasLtMatmulAlgo_t algorithm;
    _Static_assert(sizeof algorithm == ALGORITHM_BYTES, "a line of the file holds one");
    if (cuda.deterministic) {
        const unsigned found = find_choice(&plan->product, name, &choice);
        memcpy(&algorithm, choice.algorithm, sizeof algorithm);
        if (found && choice.way == PRODUCT_BY_ALGORITHM && !is_usable(plan, &algorithm)) {
            log_warn("cuBLASLt refuses the algorithm that was kept for the product %s: it is timed again", name);
        } else if (found && choice.way == PRODUCT_BY_WGMMA && !wgmma) {
            log_warn("the kernel that was kept for the product %s is not for it: it is timed again", name);
        } else if (found) {
            plan->chosen = true, plan->kept = found, plan->ms = choice.us * 1e-3f, plan->way = choice.way;
            if (plan->way == PRODUCT_BY_ALGORITHM) plan->algorithm = algorithm;
        } else if (!product_choices_may_be_made()) {
            plan->chosen = true;
        }
    }
    return plan->chosen;
}

static void keep(GemmPlan *plan) {
    char name[PRODUCT_NAME_BYTES];
    ProductChoice choice = {.way = plan->way, .us = plan->ms * 1e3f};
    plan->chosen = true;
    if (!cuda.deterministic || !isfinite(choice.us)) return;
    memcpy(choice.algorithm, &plan->algorithm, sizeof choice.algorithm);
    gemm_name(&plan->product, workspace_bytes(), name);
    plan->kept = product_choice_add(name, &choice);
}

static void clock_start(void) { cuda_check(cudaEventRecord(started, cuda.stream), "timing"); }

static float clock_ms(void) {
    float ms = 0;
    cuda_check(cudaEventRecord(stopped, cuda.stream), "timing");
    cuda_wait_event(stopped, "timing");
    cuda_check(cudaEventElapsedTime(&ms, started, stopped), "timing");
    return ms;
}

// For a call whose operands have left the cache, as in a step, in which other operations come before it.
static float time_cold(void (*run)(const void *call), const void *call) {
    const size_t bytes = cuda.scratch_bytes < cuda.cache_bytes ? cuda.scratch_bytes : cuda.cache_bytes;
    float ms = 0;
    for (int k = 0; k < REPEATS; k++) {
        cuda_check(cudaMemsetAsync(cuda.scratch, 0, bytes, cuda.stream), "timing");
        clock_start();
        run(call);
        ms += clock_ms();
    }
    return ms / REPEATS;
}

typedef struct {
    const GemmPlan *plan;
    const cublasLtMatmulAlgo_t *algorithm;
    const GemmOperands *operands;
} ProductCall;
static void run_candidate(const void *call) {
    const ProductCall *c = call;
    check(launch(c->plan, c->algorithm, c->operands, false), &c->plan->product);
}

// Keeps the fastest candidate, if it is faster than `limit`. Some fail although the heuristic suggests them.
static void time_candidates(GemmPlan *plan, const GemmOperands *o, float limit) {
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    int found = query_heuristic(plan, o, results, CANDIDATES);
    plan->ms = limit;
    for (int i = 0; i < found; i++) {
        const cublasLtMatmulAlgo_t *algorithm = &results[i].algo;
        if (results[i].state != CUBLAS_STATUS_SUCCESS || launch(plan, algorithm, o, false) != CUBLAS_STATUS_SUCCESS)
            continue;
        const float ms = time_cold(run_candidate, &(ProductCall){plan, algorithm, o});
        if (ms < plan->ms) plan->ms = ms, plan->algorithm = *algorithm, plan->way = PRODUCT_BY_ALGORITHM;
    }
}

static GemmPlan *gemm_plan_chosen(Gemm product, const GemmOperands *o, bool add) {
    GemmPlan *plan = gemm_plan_for(product, o);
    if (!may_choose(plan, add)) return plan;
    product_choices_lock();
    if (!recall(plan, false)) time_candidates(plan, o, INFINITY), keep(plan);
    product_choices_unlock();
    return plan;
}

// ---- the products

static void multiply(Gemm product, const GemmOperands *o, bool add) {
    const GemmPlan *plan = gemm_plan_chosen(product, o, add);
    product_choice_use(plan->kept);
    if (plan->way != PRODUCT_BY_ALGORITHM)
        die(EX_GPU, "cuBLASLt has no kernel for a product of %d x %d x %d", product.m, product.n, product.k);
    check(launch(plan, &plan->algorithm, o, add), &plan->product);
}

static Gemm gemm_of(int m, int n, int k) {
    return (Gemm){.m = m, .n = n, .k = k, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
}

static Gemm forward(const Weight *w, const Par *bias, int M) {
    Gemm product = gemm_of(w->rows, M, w->cols);
    product.transposed_a = true;
    if (bias) product.epilogue = CUBLASLT_EPILOGUE_BIAS;
    return product;
}

static Gemm backward_input(const Weight *w, int M) { return gemm_of(w->cols, M, w->rows); }

void cuda_matmul_forward(Act *out, const Act *in, const Weight *w, const Par *bias, int M) {
    multiply(forward(w, bias, M), &(GemmOperands){out, w->param, in, bias, NULL}, false);
}

void cuda_matmul_backward_input(Act *din, const Act *dout, const Weight *w, int M) {
    multiply(backward_input(w, M), &(GemmOperands){din, w->param, dout, NULL, NULL}, false);
}

void cuda_matmul_backward_weight(Grad *dw, const Act *dout, const Act *in, int M, int rows, int cols, bool add) {
    Gemm product = gemm_of(cols, rows, M);
    product.transposed_b = product.fp32_result = true;
    multiply(product, &(GemmOperands){dw, in, dout, NULL, NULL}, add);
}

// cuBLASLt has no product that computes half.
void cuda_matmul_symmetric(Grad *out, const Act *a, const Act *b, int M, int n) {
    cuda_matmul_backward_weight(out, a, b, M, n, n, false);
}

// ---- a product and a GELU

GeluForm cuda_gelu_form;

static void gelu(const MatmulGelu *g) {
    if (g->backward)
        OF_DEVICE(cuda_gelu_backward)(g->out, g->dbias, g->pre, g->M, g->N, g->form, g->add);
    else
        OF_DEVICE(cuda_gelu_forward)(g->out, g->pre, (size_t)g->M * (size_t)g->N, g->form);
}
static void sum_bias(const MatmulGelu *g) {
    if (g->dbias) OF_DEVICE(column_sums)(g->dbias, g->out, g->M, g->N, g->add);
}

// Does matmul_gelu.cu have it?
static bool wgmma_has(const MatmulGelu *g) {
    const uintptr_t pointers = (uintptr_t)g->out | (uintptr_t)g->pre | (uintptr_t)g->in | (uintptr_t)g->w;
    return cuda_gelu_form != GELU_NOT_BY_WGMMA && cuda.wgmma && cuda.act_type != DTYPE_FP32 && g->M >= 64 &&
           !(g->N % 64) && !(g->K % 64) && !(pointers % 16) && matmul_gelu_scratch(g) <= cuda.scratch_bytes;
}
static void run_wgmma(const void *g) { OF_DEVICE(matmul_gelu_by_wgmma)(g); }

static float time_of(void (*run)(const MatmulGelu *), const MatmulGelu *g) {
    run(g);
    clock_start();
    for (int k = 0; k < REPEATS; k++) run(g);
    return clock_ms() / REPEATS;
}

// The product alone, which the GELU's kernel follows, and the one whose epilogue is the GELU.
typedef struct {
    Gemm apart, both;
    GemmOperands of_apart, of_both;
    const MatmulGelu *g;
} GeluWays;

// Times the three ways (ProductWay) and returns the plan of both, by the fastest.
static GemmPlan *time_ways(const GeluWays *ways) {
    const MatmulGelu *g = ways->g;
    // never below the product's time: if another program uses the card, the sums may seem to take longer
    const float sums_ms = time_of(sum_bias, g), gelu_ms = fmaxf(time_of(gelu, g) - sums_ms, 0);
    const float apart_ms = gemm_plan_chosen(ways->apart, &ways->of_apart, g->add)->ms + gelu_ms;
    GemmPlan *plan = gemm_plan_for(ways->both, &ways->of_both); // the product's plan may have replaced it
    plan->ms = apart_ms;
    if (g->form == ACTIVATION_GELU_TANH) time_candidates(plan, &ways->of_both, apart_ms);
    if (!wgmma_has(g)) return plan;
    run_wgmma(g);                                   // loads its code
    const float wgmma_ms = time_cold(run_wgmma, g); // the sums are a part of it
    if (wgmma_ms < plan->ms + sums_ms) plan->ms = wgmma_ms, plan->way = PRODUCT_BY_WGMMA;
    return plan;
}

static GemmPlan *gelu_plan_chosen(const GeluWays *ways) {
    GemmPlan *plan = gemm_plan_for(ways->both, &ways->of_both);
    if (!may_choose(plan, ways->g->add)) return plan;
    product_choices_lock();
    if (!recall(plan, wgmma_has(ways->g))) plan = time_ways(ways), keep(plan);
    product_choices_unlock();
    return plan;
}

static void multiply_and_gelu(Gemm product, GemmOperands o, cublasLtEpilogue_t epilogue, const MatmulGelu *g) {
    static const GemmPlan only_apart = {.way = PRODUCT_APART};
    GeluWays ways = {product, product, o, o, g};
    ways.both.epilogue = epilogue, ways.both.form = g->form, ways.of_both.d = g->out, ways.of_both.aux = g->pre;
    if (cuda_gelu_form == GELU_BY_WGMMA && wgmma_has(g)) return run_wgmma(g);
    const bool has_ways = g->form == ACTIVATION_GELU_TANH || wgmma_has(g);
    const GemmPlan *plan = has_ways ? gelu_plan_chosen(&ways) : &only_apart;
    product_choice_use(plan->kept);
    if (plan->way == PRODUCT_BY_WGMMA && wgmma_has(g)) {
        run_wgmma(g);
    } else if (plan->way == PRODUCT_BY_ALGORITHM) {
        check(launch(plan, &plan->algorithm, &ways.of_both, false), &plan->product);
        sum_bias(g);
    } else {
        multiply(product, &o, false);
        gelu(g);
    }
}

void cuda_matmul_gelu_forward(Act *out, Act *pre, const Act *in, const Weight *w, const Par *bias, int M,
                              Activation form) {
    multiply_and_gelu(forward(w, bias, M), (GemmOperands){pre, w->param, in, bias, NULL},
                      bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX,
                      &(MatmulGelu){.form = form,
                                    .M = M,
                                    .N = w->rows,
                                    .K = w->cols,
                                    .out = out,
                                    .pre = pre,
                                    .in = in,
                                    .w = w->param,
                                    .bias = bias});
}

void cuda_matmul_gelu_backward(Act *d, Grad *dbias, const Act *dout, const Act *pre, const Weight *w, int M,
                               Activation form, bool add) {
    multiply_and_gelu(backward_input(w, M), (GemmOperands){d, w->param, dout, NULL, NULL}, CUBLASLT_EPILOGUE_DGELU,
                      &(MatmulGelu){.backward = true,
                                    .add = add,
                                    .form = form,
                                    .M = M,
                                    .N = w->cols,
                                    .K = w->rows,
                                    .out = d,
                                    .pre = (Act *)(uintptr_t)pre,
                                    .in = dout,
                                    .w = w->param,
                                    .dbias = dbias});
}

void cuda_pack(const Weight *w) { (void)w; } // packed_bytes is 0

#define SAME_(NAME, act, word, name, ...) extern __typeof__(name) name##_##act __attribute__((alias(#name)));
#define SAME(name)                        CUDA_ACTS(SAME_, name)
SAME(cuda_matmul_forward)
SAME(cuda_matmul_backward_input)
SAME(cuda_matmul_backward_weight)
SAME(cuda_matmul_symmetric)
SAME(cuda_matmul_gelu_forward)
SAME(cuda_matmul_gelu_backward)
SAME(cuda_pack)
