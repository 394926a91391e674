// Matrix products by cuBLASLt. What a shape needs (descriptor, layouts, algorithm) is made when it is met first and
// kept; a call only sets its bias and launches. cuBLASLt is column-major, so every product is asked for transposed.
#include "common/err.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cuda.h"
#include <assert.h>
#include <string.h>

enum {
    WORKSPACE = 32 << 20, // what Hopper's kernels ask for; the rest is content with 4 MiB
    PLANS = 256, // a step needs about 20; a sample's growing text a new one each length, and the oldest makes room
};

// D (m,n) = op(A) op(B) [+ D] [+ bias], all column-major, k the shared dimension.
typedef struct {
    int m, n, k;
    bool transposed_a, transposed_b, fp32_result, bias;
    unsigned alignment; // of the worst of the pointers, up to 256: a vectorised kernel needs it
} Product;

typedef struct {
    Product product;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algorithm;
} Plan;

static cublasLtHandle_t handle;
static Plan plans[PLANS];
static unsigned plan_count, plan_oldest;

static void check(cublasStatus_t status, const Product *p) {
    if (status != CUBLAS_STATUS_SUCCESS)
        die(EX_GPU, "matrix product %d x %d x %d: cuBLASLt says: %s", p->m, p->n, p->k, blas.GetStatusString(status));
}

void cuda_matmul_open(void) {
    cublasStatus_t status = blas.Create(&handle);
    if (status != CUBLAS_STATUS_SUCCESS) die(EX_GPU, "cannot start cuBLASLt: %s", blas.GetStatusString(status));
}

static void forget(Plan *plan) {
    blas.MatmulDescDestroy(plan->operation);
    blas.MatrixLayoutDestroy(plan->a);
    blas.MatrixLayoutDestroy(plan->b);
    blas.MatrixLayoutDestroy(plan->d);
}

void cuda_matmul_close(void) {
    while (plan_count) forget(&plans[--plan_count]);
    memset(plans, 0, sizeof plans);
    plan_oldest = 0;
    blas.Destroy(handle);
    handle = NULL;
}

size_t cuda_matmul_scratch(void) { return WORKSPACE; }

// A stored matrix of `rows` contiguous numbers in `cols` columns.
static cublasLtMatrixLayout_t layout(const Product *p, cudaDataType type, int rows, int cols) {
    cublasLtMatrixLayout_t made;
    check(blas.MatrixLayoutCreate(&made, type, (uint64_t)rows, (uint64_t)cols, rows), p);
    return made;
}

// The first answer of the heuristic is a pure function of shape and card, which is what makes a run repeat.
static void choose(Plan *plan) {
    const Product *p = &plan->product;
    cublasLtMatmulPreference_t preference;
    check(blas.MatmulPreferenceCreate(&preference), p);
    const uint64_t workspace = WORKSPACE;
    const uint32_t alignment = p->alignment;
    // sums split over blocks go through the workspace, in order, never through atomics
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
#define PREFER(name, value)                                                                                            \
    check(blas.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_##name, &(value), sizeof(value)), p)
    PREFER(MAX_WORKSPACE_BYTES, workspace);
    PREFER(REDUCTION_SCHEME_MASK, reductions);
    PREFER(MIN_ALIGNMENT_A_BYTES, alignment);
    PREFER(MIN_ALIGNMENT_B_BYTES, alignment);
    PREFER(MIN_ALIGNMENT_C_BYTES, alignment);
    PREFER(MIN_ALIGNMENT_D_BYTES, alignment);
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    check(blas.MatmulAlgoGetHeuristic(handle, plan->operation, plan->a, plan->b, plan->d, plan->d, preference, 1,
                                      &result, &found),
          p);
    if (!found) die(EX_GPU, "cuBLASLt has no kernel for a product of %d x %d x %d", p->m, p->n, p->k);
    plan->algorithm = result.algo;
    blas.MatmulPreferenceDestroy(preference);
}

static Plan *plan_for(const Product *product) {
    for (unsigned i = 0; i < plan_count; i++)
        if (!memcmp(&plans[i].product, product, sizeof *product)) return &plans[i];
    Plan *plan = &plans[plan_count < PLANS ? plan_count++ : plan_oldest++ % PLANS];
    if (plan->operation) forget(plan);
    memcpy(&plan->product, product, sizeof *product);
    const Product *p = &plan->product;
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    check(blas.MatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), p);
#define DESCRIBE(name, value)                                                                                          \
    check(blas.MatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_##name, &(value), sizeof(value)), p)
    if (p->transposed_a) DESCRIBE(TRANSA, transposed);
    if (p->transposed_b) DESCRIBE(TRANSB, transposed);
    if (p->bias) DESCRIBE(EPILOGUE, epilogue);
    plan->a = layout(p, CUDA_R_16BF, p->transposed_a ? p->k : p->m, p->transposed_a ? p->m : p->k);
    plan->b = layout(p, CUDA_R_16BF, p->transposed_b ? p->n : p->k, p->transposed_b ? p->k : p->n);
    plan->d = layout(p, p->fp32_result ? CUDA_R_32F : CUDA_R_16BF, p->m, p->n);
    choose(plan);
    return plan;
}

static void multiply(Product product, void *d, const void *a, const void *b, const void *bias, bool add) {
    uintptr_t pointers = (uintptr_t)d | (uintptr_t)a | (uintptr_t)b | (uintptr_t)bias | 256;
    product.alignment = (unsigned)(pointers & -pointers);
    product.bias = bias != NULL;
    const Plan *plan = plan_for(&product);
    const Product *p = &plan->product;
    if (bias) DESCRIBE(BIAS_POINTER, bias);
    const float one = 1, beta = add ? 1 : 0;
    assert(cuda.scratch_bytes >= WORKSPACE);
    check(blas.Matmul(handle, plan->operation, &one, a, plan->a, b, plan->b, &beta, d, plan->d, d, plan->d,
                      &plan->algorithm, cuda.scratch, WORKSPACE, cuda.stream),
          p);
}

// Products are compared as bytes, so their padding must be zero.
static Product product_of(int m, int n, int k) {
    Product product;
    memset(&product, 0, sizeof product);
    product.m = m, product.n = n, product.k = k;
    return product;
}

void cuda_matmul_forward(Act *out, const Act *in, const Weight *w, const Par *bias, int M) {
    Product product = product_of(w->rows, M, w->cols);
    product.transposed_a = true;
    multiply(product, out, w->param, in, bias, false);
}

void cuda_matmul_backward_input(Act *din, const Act *dout, const Weight *w, int M) {
    multiply(product_of(w->cols, M, w->rows), din, w->param, dout, NULL, false);
}

void cuda_matmul_backward_weight(Grad *dw, const Act *dout, const Act *in, int M, int rows, int cols, bool add) {
    Product product = product_of(cols, rows, M);
    product.transposed_b = product.fp32_result = true;
    multiply(product, dw, in, dout, NULL, add);
}
