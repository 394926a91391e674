// The CUDA backend: which device, its memory and streams, and the sentences when there is none.
#include "common/err.h"
#include "common/log.h"
#include "kernels/cuda/cublaslt.h"
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/nvml.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Cuda cuda;

enum {
    STAGES = 2,             // batches on their way while an earlier one is computed with
    STAGE_BYTES = 1 << 20,  // 524,288 token ids
    PINNED_MAX = 16,        // ranges
    CAPABILITY_NEEDED = 75, // what the fp16 kernels are built for; those of bf16 need 8.0
    RESERVED = 64 << 20,    // of the device's memory: recordings, and what the driver takes for kernels late
};

// A batch goes from the pinned ring to a stage over the copy stream, and from there into place between operations:
// the host may reuse its bytes as soon as `arrived`, however far behind the operations are.
typedef struct {
    void *bytes;
    cudaEvent_t arrived, taken;
} Stage;
static Stage stages[STAGES];
static unsigned uploads;
static cudaStream_t copy_stream;

static struct {
    const char *start;
    size_t bytes;
} pinned[PINNED_MAX];
static int pinned_count;

static Backend backend;

void cuda_check(cudaError_t error, const char *what) {
    if (error != cudaSuccess) die(EX_GPU, "%s: the GPU says: %s", what, cudaGetErrorString(error));
}

static int check(int channels, int heads) {
    int width = channels / heads;
    if (width % 8 || width > HEAD_MAX)
        return fail(EX_USAGE, "device=cuda does heads of up to %d channels, a multiple of 8, not n_embd / n_head = %d",
                    HEAD_MAX, width);
    if (channels > CHANNELS_MAX)
        return fail(EX_USAGE, "device=cuda does n_embd up to %d, not %d", CHANNELS_MAX, channels);
    return 0;
}

static size_t packed_bytes(int rows, int cols) {
    (void)rows, (void)cols;
    return 0; // cuBLASLt reads the parameters as they are
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static size_t scratch_bytes(const Shape *shape) {
    size_t bytes = cuda_matmul_scratch();
    bytes = larger(bytes, attention_scratch(shape));
    bytes = larger(bytes, layernorm_scratch(shape));
    bytes = larger(bytes, embed_scratch(shape));
    bytes = larger(bytes, column_sums_scratch(4 * shape->C));
    bytes = larger(bytes, norm_scratch());
    return (bytes + 255) / 256 * 256 + (size_t)STAGES * STAGE_BYTES;
}

static void *alloc(size_t bytes) {
    void *arena = NULL;
    cudaError_t error = cudaMalloc(&arena, bytes);
    if (error == cudaSuccess) return arena;
    (void)cudaGetLastError(); // it is told here, and must not be told again by the next launch
    if (error != cudaErrorMemoryAllocation) {
        fail(EX_GPU, "cannot take device memory: the GPU says: %s", cudaGetErrorString(error));
        return NULL;
    }
    size_t free_bytes = 0, total = 0;
    char wanted[16], left[16], all[16], others[256];
    (void)cudaMemGetInfo(&free_bytes, &total);
    nvml_other_processes(others, sizeof others);
    fail(EX_VRAM, "the plan needs %s of device memory, %s of %s are free%s%s", human_bytes(wanted, (double)bytes),
         human_bytes(left, (double)free_bytes), human_bytes(all, (double)total), *others ? ": " : "", others);
    return NULL;
}

static void release(void *arena) {
    cuda_check(cudaStreamSynchronize(cuda.stream), "the last operations");
    graph_clear();
    cuda_check(cudaFree(arena), "cudaFree");
}

static void bind_scratch(void *scratch, size_t bytes) {
    assert(bytes >= (size_t)STAGES * STAGE_BYTES);
    cuda.scratch = scratch;
    cuda.scratch_bytes = bytes - (size_t)STAGES * STAGE_BYTES;
    for (int i = 0; i < STAGES; i++) stages[i].bytes = (char *)scratch + cuda.scratch_bytes + (size_t)i * STAGE_BYTES;
}

static void pin(void *host, size_t bytes) {
    assert(pinned_count < PINNED_MAX);
    cuda_check(cudaHostRegister(host, bytes, cudaHostRegisterDefault), "pinning host memory");
    pinned[pinned_count].start = host;
    pinned[pinned_count++].bytes = bytes;
}

static void unpin(void *host) {
    int i = 0;
    while (i < pinned_count && pinned[i].start != host) i++;
    assert(i < pinned_count);
    cuda_check(cudaHostUnregister(host), "unpinning host memory");
    pinned[i] = pinned[--pinned_count];
}

static bool is_pinned(const char *host, size_t bytes) {
    for (int i = 0; i < pinned_count; i++)
        if (host >= pinned[i].start && host + bytes <= pinned[i].start + pinned[i].bytes) return true;
    return false;
}

static void upload(void *device, const void *host, size_t bytes) {
    const char *what = "copying to the GPU";
    if (!cuda.scratch || bytes > STAGE_BYTES || !is_pinned(host, bytes)) {
        cuda_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cuda.stream), what);
        cuda_check(cudaStreamSynchronize(cuda.stream), what);
        return;
    }
    Stage *stage = &stages[uploads++ % STAGES];
    cuda_check(cudaStreamWaitEvent(copy_stream, stage->taken, 0), what);
    cuda_check(cudaMemcpyAsync(stage->bytes, host, bytes, cudaMemcpyHostToDevice, copy_stream), what);
    cuda_check(cudaEventRecord(stage->arrived, copy_stream), what);
    cuda_check(cudaStreamWaitEvent(cuda.stream, stage->arrived, 0), what);
    cuda_check(cudaMemcpyAsync(device, stage->bytes, bytes, cudaMemcpyDeviceToDevice, cuda.stream), what);
    cuda_check(cudaEventRecord(stage->taken, cuda.stream), what);
    cuda_check(cudaEventSynchronize(stage->arrived), what);
}

static void download(void *host, const void *device, size_t bytes) {
    cuda_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda.stream), "copying from the GPU");
    cuda_check(cudaStreamSynchronize(cuda.stream), "copying from the GPU");
}

static void zero(void *device, size_t bytes) {
    cuda_check(cudaMemsetAsync(device, 0, bytes, cuda.stream), "clearing device memory");
}

static void close_device(void) {
    if (!cuda.stream) return;
    cuda_check(cudaStreamSynchronize(cuda.stream), "the last operations");
    while (pinned_count) (void)cudaHostUnregister((void *)(uintptr_t)pinned[--pinned_count].start);
    cuda_matmul_close();
    cuda_slots_close();
    for (int i = 0; i < STAGES; i++) {
        (void)cudaEventDestroy(stages[i].arrived);
        (void)cudaEventDestroy(stages[i].taken);
    }
    (void)cudaStreamDestroy(copy_stream);
    (void)cudaStreamDestroy(cuda.stream);
    memset(&cuda, 0, sizeof cuda);
    memset(stages, 0, sizeof stages);
    uploads = 0;
}

// Without a driver the runtime says that it is too old; version 0 tells the two apart.
static int no_device(cudaError_t error) {
    int driver = 0, runtime = 0;
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorInsufficientDriver && driver == 0)
        return fail(EX_GPU, "no NVIDIA driver on this machine: install it, or say device=cpu");
    if (error == cudaErrorInsufficientDriver)
        return fail(
            EX_GPU,
            "the NVIDIA driver knows CUDA %d.%d, this program needs %d.%d: update the driver, or say device=cpu",
            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (error == cudaErrorNoDevice) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        return fail(EX_GPU, "the NVIDIA driver shows no GPU%s%s: say device=cpu to do without",
                    visible ? "; CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "");
    }
    return fail(EX_GPU, "cannot use the GPU: %s", cudaGetErrorString(error));
}

// A card without bf16 has fp16, unless bf16 was asked for.
static int open_device(const BackendChoice *choice, char why[256], size_t *free_bytes) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 0); // all code is on the device before free memory is asked for
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) return no_device(error);
    const int card = choice->device > DEVICE_CUDA ? (int)(choice->device - DEVICE_CUDA) : 0;
    if (card >= count)
        return fail(EX_GPU, "there is no GPU %d: the NVIDIA driver shows %d, numbered from 0", card, count);
    struct cudaDeviceProp device;
    error = cudaGetDeviceProperties(&device, card);
    if (error != cudaSuccess) return no_device(error);
    if (device.major * 10 + device.minor < CAPABILITY_NEEDED)
        return fail(EX_GPU, "the GPU '%s' has compute capability %d.%d, 7.5 is needed: say device=cpu", device.name,
                    device.major, device.minor);
    if (device.major < 8 && choice->dtype == DTYPE_BF16)
        return fail(EX_USAGE, "the GPU '%s' has compute capability %d.%d, bfloat16 needs 8.0: say dtype=float16",
                    device.name, device.major, device.minor);
    if (cublaslt_load() < 0) return -1;
    error = cudaSetDevice(card);
    if (error != cudaSuccess) return no_device(error);
    cuda.multiprocessors = device.multiProcessorCount;
    cuda.shared_bytes = device.sharedMemPerBlockOptin;
    cuda.fp16 = device.major < 8 || choice->dtype == DTYPE_FP16;
    cuda_check(cudaStreamCreateWithFlags(&cuda.stream, cudaStreamNonBlocking), "making a stream");
    cuda_check(cudaStreamCreateWithFlags(&copy_stream, cudaStreamNonBlocking), "making a stream");
    for (int i = 0; i < STAGES; i++) {
        cuda_check(cudaEventCreateWithFlags(&stages[i].arrived, cudaEventDisableTiming), "making an event");
        cuda_check(cudaEventCreateWithFlags(&stages[i].taken, cudaEventDisableTiming), "making an event");
    }
    cuda_slots_open();
    cuda_matmul_open();
    size_t total;
    cuda_check(cudaMemGetInfo(free_bytes, &total), "asking for free memory");
    *free_bytes = *free_bytes > RESERVED ? *free_bytes - RESERVED : 1; // 0 says that it is not known
    char memory[16];
    snprintf(why, 256, "cuda: %.200s, compute capability %d.%d, %s, %s", device.name, device.major, device.minor,
             human_bytes(memory, (double)device.totalGlobalMem), cuda.fp16 ? "float16" : "bfloat16");
    return 0;
}

const Backend *backend_cuda(const BackendChoice *choice, char why[256]) {
    if (choice->dtype == DTYPE_FP32) {
        fail(EX_USAGE, "dtype=float32 is not for device=cuda: say bfloat16 or float16, or device=cpu");
        return NULL;
    }
    const bool full = choice->optimizer_state == STATE_FP32, stochastic = choice->optimizer_state == STATE_BF16_SR;
    cuda.wide_moments = full, cuda.no_master = stochastic, cuda.fp16 = choice->dtype == DTYPE_FP16;
    snprintf(why, 256, "cuda: planned for, not opened; %s", cuda.fp16 ? "float16" : "bfloat16");
    size_t free_bytes = 0;
    if (!choice->facts_only && open_device(choice, why, &free_bytes) < 0) return NULL;
    cuda.deterministic = choice->deterministic;
    backend = (Backend){
        .name = "cuda",
        .act_type = cuda.fp16 ? DTYPE_FP16 : DTYPE_BF16,
        .free_bytes = free_bytes,
        .act_bytes = 2,
        .par_bytes = 2,
        .grad_bytes = 4,
        .res_bytes = 2,
        .master_bytes = stochastic ? 0 : 4,
        .moment_bytes = full ? 4 : 2,
        .needs_warm_up = true,
        .check = check,
        .holders = nvml_other_processes,
        .packed_bytes = packed_bytes,
        .scratch_bytes = scratch_bytes,
        .alloc = alloc,
        .release = release,
        .bind_scratch = bind_scratch,
        .pin = pin,
        .unpin = unpin,
        .upload = upload,
        .download = download,
        .zero = zero,
        .close = close_device,
        .fetch = cuda_fetch,
        .fetched = cuda_fetched,
        .store = cuda_store,
        .stored = cuda_stored,
        .begin = graph_begin,
        .end = graph_end,
    };
#define OP(name, arguments) backend.name = OF_DEVICE(cuda_##name);
#include "kernels/ops.def"
#undef OP
    return &backend;
}
