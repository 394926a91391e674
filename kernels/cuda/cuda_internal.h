// Shared by the files of the CUDA backend: the open device, and the functions that launch the operations. C and C++.
#pragma once

#include "kernels/gpu_facts.h"
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

// Every .cu is compiled once for each activation type (CUDA_ACTS in dtypes.def), and its external functions have the
// type in their names. DECLARE_ACT declares one for each, OF_DEVICE is the one of the open device. The Makefile defines
// ACT, bf16 say, and ACT_BF16.
#define FOR_ACT__(name, act)                                        name##_##act
#define FOR_ACT_(name, act)                                         FOR_ACT__(name, act)
#define FOR_ACT(name)                                               FOR_ACT_(name, ACT)
#define DECLARE_ACT_(NAME, act, word, result, name, arguments, ...) result name##_##act arguments;
#define DECLARE_ACT(result, name, arguments)                        CUDA_ACTS(DECLARE_ACT_, result, name, arguments)
#define IF_DEVICE_(NAME, act, word, name, ...)                      cuda.act_type == DTYPE_##NAME ? name##_##act:
#define OF_DEVICE(name)                                             (CUDA_ACTS(IF_DEVICE_, name) NULL)

typedef struct {
    cudaStream_t stream; // every operation runs here, in order
    void *scratch;       // shared by all operations, one after another
    size_t scratch_bytes;
    char card[320]; // its name and other facts on which the times of products depend, one line
    int capability; // 80: compute capability 8.0
    int multiprocessors;
    size_t shared_bytes; // shared memory that a block may have
    size_t cache_bytes;  // of the second level
    bool wgmma;          // compute capability 9.0, and the program has code for it, not only PTX for older cards
    Dtype act_type;
    bool tf32; // float32 operands of matrix products are rounded to 10 bits
    bool deterministic;
    bool wide_moments, no_master; // of optimizer_state
    int timeout_s;                // of a wait of the host; 0: none
} Cuda;
extern Cuda cuda;

// How attention runs with heads of 64 channels: chosen by the grid and the card, or forced by a test. TMA only if
// cuda.wgmma is set.
typedef enum { ATTENTION_AUTO, ATTENTION_SPLIT, ATTENTION_FUSED_2, ATTENTION_FUSED_3, ATTENTION_TMA } AttentionForm;
extern AttentionForm cuda_attention_form;

// Measures again the memory that an arena can have, after NCCL has allocated its buffers.
void backend_cuda_measure(void);
extern const struct DeviceCollectiveRow collective_nccl; // collective_nccl.c

// device.c: opens the device that `choice` names and fills `cuda`, except the fields of backend_cuda. -1 after fail().
int device_open(const BackendChoice *choice, char why[256]);
// Exits (80) with the runtime's message when `error` is an error; `what` names the call or the kernel.
void cuda_check(cudaError_t error, const char *what);

// Was the code for this device compiled for it, and not from the PTX for older cards?
DECLARE_ACT(bool, attention_has_wgmma, (void))

// Waits of the host, for all operations of a stream or for an event. They poll and sleep, and exit (80) after
// cuda.timeout_s: cudaStreamSynchronize would wait for ever for a GPU that hangs, and so would a copy between the
// device and pageable memory. A launch into a full queue (some 1,000 launches) also waits inside the driver, unnoticed.
void cuda_wait(cudaStream_t stream, const char *what);
void cuda_wait_event(cudaEvent_t event, const char *what);

// The same for a caller that polls by itself: device_wait_count after each poll that found the GPU busy; it warns, and
// exits at the end of the time. device_wait_fail exits at once. A zeroed struct but for `what` begins a wait.
typedef struct {
    const char *what;
    uint64_t polled_ns, waited_ns; // waited_ns: a long gap between two polls counts as one second
    bool warned;                   // a tenth of the time has passed
} DeviceWait;
void device_wait_count(DeviceWait *wait);
__attribute__((noreturn)) void device_wait_fail(const DeviceWait *wait);

// after = before (NULL: nothing), then the operands of ranks 0 to ranks - 1, added one after another: `own` is the
// operand of this rank. `received` has the operands of the other ranks, `stride` elements apart. Operands are floats or
// bf16. count is a multiple of 8.
typedef struct {
    float *after;
    const float *before;
    const void *own, *received;
    size_t stride;
    unsigned rank, ranks;
    bool bf16;
} RankSums;
DECLARE_ACT(void, sum_ranks, (cudaStream_t stream, const RankSums *sums, size_t count))
// to (bf16) = the nearest of values. count is a multiple of 8
DECLARE_ACT(void, write_bf16, (cudaStream_t stream, void *to, const float *values, size_t count))

// A product and a GELU. Forward: pre = in w^T + bias and out = gelu(pre). Backward: out = in w * gelu'(pre), and dbias
// by `add` the column sums of it. in (M,K); out, pre (M,N); w (N,K), backward (K,N). bias, dbias: may be NULL.
typedef struct {
    bool backward, add;
    Activation form;
    int M, N, K;
    Act *out, *pre;
    const Act *in;
    const Par *w, *bias;
    Grad *dbias;
} MatmulGelu;
// Both in one kernel (matmul_gelu.cu): if cuda.wgmma is set, not in float32, M at least 64, N and K multiples of 64,
// arrays at multiples of 16 bytes. Needs matmul_gelu_scratch bytes of scratch memory.
DECLARE_ACT(void, matmul_gelu_by_wgmma, (const MatmulGelu *of))
enum { MATMUL_GELU_ROWS = 128 }; // of a tile, which has a row of column sums
static inline size_t matmul_gelu_scratch(const MatmulGelu *of) {
    return of->dbias ? (size_t)((of->M - 1) / MATMUL_GELU_ROWS + 1) * (size_t)of->N * sizeof(float) : 0;
}
// Whether it is one of the ways (product_choices.h) that are timed, or forced by a test.
typedef enum { GELU_AUTO, GELU_NOT_BY_WGMMA, GELU_BY_WGMMA } GeluForm;
extern GeluForm cuda_gelu_form;

// out (C) by `add` the column sums of x (N,C), in an order that depends on nothing but N
DECLARE_ACT(void, column_sums, (Grad * out, const Act *x, int N, int C, bool add))
// a (split) and b (columns - split) by `add` the sums of parts (blocks, columns), in order; NULL is skipped
DECLARE_ACT(void, add_parts, (Grad * a, Grad *b, const float *parts, int blocks, int split, int columns, bool add))
// The number of parts that column_sums and gelu_backward divide N rows into. It depends on N alone, so that the sums do
// not depend on the card.
enum { ROWS_AT_ONCE = 8 };
static inline int row_blocks(int N) {
    int blocks = (N + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
    return blocks < ROW_BLOCKS ? blocks : ROW_BLOCKS;
}

// graph.c: CUDA graphs.
bool graph_begin(int key, bool captured);
void graph_end(int key);
bool graph_is_warmup_run(void); // during the uncaptured first run of a graph: autotuning is allowed only here
void graph_clear(void);

// upload.c: copies ordered with the operations, and pinned host memory.
void upload_open(void);
void upload_close(void);
void upload_bind(void *memory); // UPLOAD_BYTES of the device for the stages
void cuda_pin(void *host, size_t bytes);
void cuda_unpin(void *host);
void cuda_upload(void *device, const void *host, size_t bytes);
void cuda_download(void *host, const void *device, size_t bytes);
void cuda_zero(void *device, size_t bytes);

// copy_streams.c: copies that run beside the operations.
void cuda_copy_in_async(int slot, void *device, const void *host, size_t bytes);
void cuda_copy_in_wait(int slot);
void cuda_copy_out_async(int slot, void *host, const void *device, size_t bytes);
void cuda_copy_out_wait(void);
void cuda_slots_open(void);
void cuda_slots_close(void);

// matmul_cublaslt.c: the handle, and a plan for each shape so far.
void cuda_matmul_open(const char *cache_dir); // NULL: choices are not kept for later runs
void cuda_matmul_close(void);

#define OP(name, scratch, arguments) DECLARE_ACT(void, cuda_##name, arguments)
#include "kernels/ops.def"
#undef OP

#ifdef __cplusplus
}
#endif
