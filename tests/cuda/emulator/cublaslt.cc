// A stand-in for cuBLASLt: keeps what the setters are told, checks what the library accepts blindly (it takes an
// epilogue 12345 and a leading dimension below the rows), and multiplies in fp32 with the result rounded once.
#include "kernels/cuda/libraries/cublaslt.h"
#include "tests/cuda/emulator/device.h"
#include "tests/cuda/emulator/emu.h"
#include "tests/cuda/emulator/exchange.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

struct Matrix {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t stride;
};

struct Operation {
    cublasOperation_t transposed_a = CUBLAS_OP_N, transposed_b = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    bool tf32 = false;
    const void *bias = nullptr, *aux = nullptr;
    int64_t aux_stride = 0;
};

struct Preference {
    uint64_t workspace = 0;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK, alignment[4] = {256, 256, 256, 256};
};

// An algorithm holds what the heuristic was asked about, so that a product can tell whether it is its own. As with the
// library, its bytes may be kept in a file and used by another process.
struct Algorithm {
    uint64_t product; // hash of the layouts and the operation
    uint16_t alignment[4], bias, aux;
    uint8_t candidate, reduction;
    uint16_t workspace; // in MiB, that it was allowed
    uint32_t magic;
};
const uint32_t MAGIC = 0x416c676f;
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t), "as the library's");

void need(bool condition, const char *what) {
    if (!condition) emu::die("wrong use of cuBLASLt: ", what);
}

template <class T> cublasStatus_t take(T *field, const void *value, size_t size) {
    need(size == sizeof(T), "size of an attribute");
    memcpy(field, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

template <class H, class T> cublasStatus_t create(H *handle, T *object) {
    *handle = (H)object;
    emu_counts.live++;
    return CUBLAS_STATUS_SUCCESS;
}
template <class T> cublasStatus_t destroy(void *handle) {
    delete (T *)handle;
    emu_counts.live--;
    return CUBLAS_STATUS_SUCCESS;
}

bool same(const Matrix &a, const Matrix &b) {
    return a.type == b.type && a.rows == b.rows && a.cols == b.cols && a.stride == b.stride;
}

float at(const void *data, cudaDataType type, int64_t i) {
    if (type == CUDA_R_32F) return ((const float *)data)[i];
    return type == CUDA_R_16F ? __half2float(((const __half *)data)[i])
                              : __bfloat162float(((const __nv_bfloat16 *)data)[i]);
}

void put(void *data, cudaDataType type, int64_t i, float value) {
    if (type == CUDA_R_32F)
        ((float *)data)[i] = value;
    else if (type == CUDA_R_16F)
        ((__half *)data)[i] = __float2half(value);
    else
        ((__nv_bfloat16 *)data)[i] = __float2bfloat16(value);
}

void check_matrix(const Matrix &m, const void *data, uint32_t alignment) {
    size_t bytes = m.type == CUDA_R_32F ? 4 : 2;
    need(m.stride >= (int64_t)m.rows, "leading dimension below the rows");
    need((size_t)m.stride * bytes % 16 == 0, "leading dimension of whole 16 bytes");
    need((uintptr_t)data % alignment == 0, "a pointer less aligned than the heuristic was told");
    need(alignment >= 16, "pointers to 16 bytes");
}

bool does_gelu(const Operation &o) {
    return o.epilogue == CUBLASLT_EPILOGUE_GELU_AUX || o.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           o.epilogue == CUBLASLT_EPILOGUE_DGELU;
}
bool has_bias(const Operation &o) {
    return o.epilogue == CUBLASLT_EPILOGUE_BIAS || o.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

// What the documentation asks of an epilogue; its pointers are looked at by the heuristic, too.
void check_epilogue(const Operation &o, const Matrix &a, const Matrix &d) {
    need(o.epilogue == CUBLASLT_EPILOGUE_DEFAULT || has_bias(o) || does_gelu(o), "an epilogue this stand-in does not know");
    need(!o.tf32 || a.type == CUDA_R_32F, "TF32 of fp32 operands");
    need(o.epilogue == CUBLASLT_EPILOGUE_DEFAULT || d.type == a.type, "an epilogue's result, bias and aux in the operands' type");
    need(!has_bias(o) || (o.bias && (uintptr_t)o.bias % 16 == 0), "a bias");
    if (!does_gelu(o)) return;
    need(o.aux && (uintptr_t)o.aux % 16 == 0, "aux, to 16 bytes");
    need(o.aux_stride % 8 == 0 && o.aux_stride >= (int64_t)d.rows, "aux's leading dimension: rows or more, of whole 8");
}

bool as_aligned(const void *now, unsigned then) { // as the pointer that the heuristic saw, up to 256
    unsigned bits = then | 256;
    return (uintptr_t)now % (bits & -bits) == 0;
}

uint64_t product_of(const Operation &o, const Matrix &a, const Matrix &b, const Matrix &d) {
    uint64_t hash = 14695981039346656037u;
    for (const Matrix *m : {&a, &b, &d})
        for (uint64_t word : {(uint64_t)m->type, m->rows, m->cols, (uint64_t)m->stride})
            hash = (hash ^ word) * 1099511628211u;
    for (int word : {(int)o.transposed_a, (int)o.transposed_b, (int)o.epilogue, (int)o.tf32})
        hash = (hash ^ (uint64_t)word) * 1099511628211u;
    return hash;
}

Algorithm algorithm_of(const cublasLtMatmulAlgo_t *bytes) {
    Algorithm algorithm;
    need(bytes, "an algorithm");
    memcpy(&algorithm, bytes, sizeof algorithm);
    return algorithm;
}

size_t bytes_of(const Matrix &m) { return m.cols * (size_t)m.stride * (m.type == CUDA_R_32F ? 4 : 2); }
bool apart(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    return (const char *)a + a_bytes <= (const char *)b || (const char *)b + b_bytes <= (const char *)a;
}

const float SLOPE = 0.7978845608f; // sqrt(2 / pi)
float gelu(float x) { return 0.5f * x * (1 + tanhf(SLOPE * (x + 0.044715f * x * x * x))); }
float gelu_slope(float x) {
    float t = tanhf(SLOPE * (x + 0.044715f * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * SLOPE * (1 + 3 * 0.044715f * x * x);
}

} // namespace

#define AS(type, handle) ((type *)(handle))

template <int STRANDS> static float dot_product(const float *x, const float *y, int64_t k) {
    float sum[STRANDS] = {}, total = 0;
    int64_t l = 0;
    for (; l + STRANDS <= k; l += STRANDS)
        for (int strand = 0; strand < STRANDS; strand++) sum[strand] += x[l + strand] * y[l + strand];
    for (; l < k; l++) sum[l % STRANDS] += x[l] * y[l];
    for (float one : sum) total += one;
    return total;
}

extern "C" {

const char *cublasLtGetStatusString(cublasStatus_t status) { return status ? "an emulated failure" : "success"; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) { return create(handle, new char); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    need(handle != nullptr, "a handle");
    return destroy<char>(handle);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t stride) {
    return create(layout, new Matrix{type, rows, cols, stride});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(const cublasLtMatrixLayout_t layout) { return destroy<Matrix>(layout); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *operation, cublasComputeType_t compute,
                                        cudaDataType scale) {
    need((compute == CUBLAS_COMPUTE_32F || compute == CUBLAS_COMPUTE_32F_FAST_TF32) && scale == CUDA_R_32F,
         "sums in fp32");
    Operation *made = new Operation;
    made->tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return create(operation, made);
}
cublasStatus_t cublasLtMatmulDescDestroy(const cublasLtMatmulDesc_t operation) { return destroy<Operation>(operation); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t size) {
    Operation *operation = AS(Operation, handle);
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(&operation->transposed_a, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(&operation->transposed_b, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(&operation->epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(&operation->bias, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return take(&operation->aux, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return take(&operation->aux_stride, value, size);
    default: emu::die("wrong use of cuBLASLt: ", "an attribute this stand-in does not know");
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    return create(preference, new Preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(const cublasLtMatmulPreference_t preference) {
    return destroy<Preference>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t size) {
    Preference *preference = AS(Preference, handle);
    const int operand = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; // of A, B, C, D
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return take(&preference->workspace, value, size);
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) return take(&preference->reductions, value, size);
    need(operand >= 0 && operand < 4, "a preference this stand-in does not know");
    return take(&preference->alignment[operand], value, size);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t handle_of_preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found) {
    const Preference *preference = AS(Preference, handle_of_preference);
    need(handle && wanted >= 1, "a handle, and room for a result");
    need(same(*AS(Matrix, c), *AS(Matrix, d)), "C and D of one layout");
    need(!(preference->reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE), "a repeatable reduction");
    need(preference->workspace >= 1 << 20, "a workspace");
    const Operation &o = *AS(Operation, operation);
    check_epilogue(o, *AS(Matrix, a), *AS(Matrix, d));
    Algorithm algorithm = {};
    algorithm.product = product_of(o, *AS(Matrix, a), *AS(Matrix, b), *AS(Matrix, d)), algorithm.magic = MAGIC;
    for (int i = 0; i < 4; i++) algorithm.alignment[i] = (uint16_t)preference->alignment[i];
    algorithm.bias = (uint16_t)((uintptr_t)o.bias & 255), algorithm.aux = (uint16_t)((uintptr_t)o.aux & 255);
    algorithm.workspace = (uint16_t)(preference->workspace >> 20);
    emu_counts.heuristics++;
    *found = 0;
    if (does_gelu(o) && !emu_device.has_epilogues) return CUBLAS_STATUS_NOT_SUPPORTED;
    const int count = std::min(wanted, emu_device.candidates);
    for (int i = 0; i < count; i++) {
        memset(&results[i], 0, sizeof *results);
        results[i].state = i == emu_device.candidates - 1 && i ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
        algorithm.candidate = (uint8_t)i, algorithm.reduction = i ? (uint8_t)emu_device.reduction : 0;
        memcpy(&results[i].algo, &algorithm, sizeof algorithm);
    }
    *found = count;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *bytes,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void *value,
                                                    size_t size, size_t *written) {
    need(attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME && size == 4, "the reduction of an algorithm");
    const uint32_t reduction = algorithm_of(bytes).reduction;
    memcpy(value, &reduction, size), *written = size;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *bytes,
                                       cublasLtMatmulHeuristicResult_t *result) {
    const Algorithm algorithm = algorithm_of(bytes);
    need(handle, "a handle");
    memset(result, 0, sizeof *result);
    result->workspaceSize = emu_device.workspace;
    return algorithm.magic == MAGIC && algorithm.candidate < emu_device.candidates &&
                   algorithm.product == product_of(*AS(Operation, operation), *AS(Matrix, a), *AS(Matrix, b), *AS(Matrix, d))
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}
size_t cublasLtGetVersion(void) { return emu_device.cublaslt; }

struct Memory {
    const void *data;
    size_t bytes;
};
static void check_aux(const Operation &operation, Memory a, Memory b, Memory d, int64_t n, float keep) {
    const size_t bytes = (size_t)(operation.aux_stride * n) * 2; // at least
    need(keep == 0, "no sum into what went through a GELU");
    need(apart(operation.aux, bytes, d.data, d.bytes), "an aux beside the result");
    need(apart(operation.aux, bytes, a.data, a.bytes) && apart(operation.aux, bytes, b.data, b.bytes),
         "an aux beside the factors");
}

// The time of a product whose first operand is A.
static double us_of(int candidate, bool gelu, const void *A) {
    const bool fast = emu::cached == A && candidate == emu_device.fast_when_cached;
    emu::cached = A, emu_counts.epilogues += gelu;
    return (fast ? 1 : candidate == emu_device.fastest ? 5 : 10) + (gelu ? emu_device.epilogue_us : 0);
}

// To 10 bits of fraction, ties away from zero.
static float tf32_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7f800000) != 0x7f800000) bits = (bits + 0x1000) & ~0x1fffu;
    memcpy(&value, &bits, 4);
    return value;
}

// The rows of A or the columns of B, each of k numbers. stored: their numbers are neighbours in memory.
static std::vector<float> vectors_of(const void *data, const Matrix &matrix, int64_t count, int64_t k, bool stored,
                                     bool tf32) {
    std::vector<float> numbers((size_t)(count * k));
    for (int64_t i = 0; i < count; i++)
        for (int64_t l = 0; l < k; l++)
            numbers[(size_t)(i * k + l)] = at(data, matrix.type, stored ? l + i * matrix.stride : i + l * matrix.stride);
    for (float &number : numbers)
        if (tf32) number = tf32_of(number);
    return numbers;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t layout_a, const void *B,
                              cublasLtMatrixLayout_t layout_b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t layout_c, void *D, cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t *chosen, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
    const Operation operation = *AS(Operation, descriptor);
    const Matrix a = *AS(Matrix, layout_a), b = *AS(Matrix, layout_b), d = *AS(Matrix, layout_d);
    need(handle && workspace && (uintptr_t)workspace % 16 == 0 && workspace_bytes, "a workspace");
    const Algorithm algorithm = algorithm_of(chosen);
    need(algorithm.magic == MAGIC, "an algorithm from the heuristic");
    need(algorithm.product == product_of(operation, a, b, d), "the algorithm of another product");
    need(C == D && layout_c == layout_d, "sums in place");
    need(a.type == b.type && (d.type == a.type || d.type == CUDA_R_32F), "operands of one type");
    check_epilogue(operation, a, d);
    need(!has_bias(operation) || as_aligned(operation.bias, algorithm.bias), "a bias as the heuristic saw it");
    need(!does_gelu(operation) || as_aligned(operation.aux, algorithm.aux), "an aux as the heuristic saw it");
    check_matrix(a, A, algorithm.alignment[0]);
    check_matrix(b, B, algorithm.alignment[1]);
    check_matrix(d, D, algorithm.alignment[3]);
    const bool ta = operation.transposed_a == CUBLAS_OP_T, tb = operation.transposed_b == CUBLAS_OP_T;
    const int64_t m = (int64_t)(ta ? a.cols : a.rows), k = (int64_t)(ta ? a.rows : a.cols);
    const int64_t n = (int64_t)(tb ? b.rows : b.cols);
    need(k == (int64_t)(tb ? b.cols : b.rows) && m == (int64_t)d.rows && n == (int64_t)d.cols, "shapes that fit");
    const float scale = *(const float *)alpha, keep = *(const float *)beta;
    need(apart(D, bytes_of(d), A, bytes_of(a)) && apart(D, bytes_of(d), B, bytes_of(b)), "a result beside its factors");
    if (does_gelu(operation)) check_aux(operation, {A, bytes_of(a)}, {B, bytes_of(b)}, {D, bytes_of(d)}, n, keep);
    const int candidate = algorithm.candidate, broken = emu_device.candidates - 1;
    need(candidate == 0 || candidate != broken, "a candidate that works");
    if (candidate && candidate == broken - 1) return CUBLAS_STATUS_NOT_SUPPORTED;
    const auto dot = candidate ? dot_product<4> : dot_product<8>; // other bits, so that it shows
    need(workspace_bytes >> 20 >= algorithm.workspace || emu_device.workspace <= workspace_bytes,
         "a workspace as the heuristic was told");
    const double us = us_of(candidate, does_gelu(operation), A);
    emu_counts.workspace = workspace_bytes;
    emu_counts.products++, emu_counts.flops += (uint64_t)(2 * m * n * k), emu_counts.candidate = candidate;
    auto work = [=] {
        emu::touch(A, bytes_of(a)), emu::touch(B, bytes_of(b)), emu::touch(D, bytes_of(d));
        memset((char *)workspace + workspace_bytes - 16, 0xff, 16); // partial sums
        const std::vector<float> x = vectors_of(A, a, m, k, ta, operation.tf32),
                                 y = vectors_of(B, b, n, k, !tb, operation.tf32);
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++) {
                float total = dot(&x[(size_t)(i * k)], &y[(size_t)(j * k)], k) * scale;
                if (has_bias(operation)) total += at(operation.bias, d.type, i);
                int64_t to = i + j * d.stride;
                if (keep != 0) total += keep * at(D, d.type, to);
                void *aux = (void *)operation.aux;
                int64_t at_aux = i + j * operation.aux_stride;
                if (operation.epilogue == CUBLASLT_EPILOGUE_DGELU)
                    total *= gelu_slope(at(aux, d.type, at_aux));
                else if (does_gelu(operation))
                    put(aux, d.type, at_aux, total), total = gelu(total);
                put(D, d.type, to, total);
            }
    };
    emu::note("product", m, n, k, A, B, D, operation.bias, operation.aux, operation.epilogue, keep, candidate);
    emu::enqueue(stream, work, us);
    return CUBLAS_STATUS_SUCCESS;
}

static char library; // its address is the handle of the library

// The program finds this stand-in where it would find the library (linked with --wrap).
void *__real_dlopen(const char *file, int flags);
void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlopen(const char *file, int flags) {
    if (file && strstr(file, "libnccl.so"))
        return emu::nccl_library() ? emu::nccl_library() : __real_dlopen("libnccl.so.missing", flags);
    if (file && strstr(file, "libnvidia-ml.so"))
        return emu::nvml_library() ? emu::nvml_library() : __real_dlopen("libnvidia-ml.so.missing", flags);
    if (file && strstr(file, "libcuda.so")) return emu::driver_library();
    if (!file || !strstr(file, "libcublasLt.so")) return __real_dlopen(file, flags);
    return emu_device.cublaslt ? &library : __real_dlopen("libcublasLt.so.missing", flags);
}
void *__wrap_dlsym(void *handle, const char *name) {
    if (handle && handle == emu::nccl_library()) return emu::nccl_function(name);
    if (handle && handle == emu::nvml_library()) return emu::nvml_function(name);
    if (handle == emu::driver_library()) return emu::driver_function(name);
    if (handle != &library) return __real_dlsym(handle, name);
#define FUNCTION(function)                                                                                             \
    if (!strcmp(name, "cublasLt" #function)) return (void *)cublasLt##function;
    CUBLASLT_FUNCTIONS(FUNCTION)
#undef FUNCTION
    return nullptr;
}

} // extern "C"
