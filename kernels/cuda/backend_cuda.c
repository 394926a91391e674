// The CUDA backend: its facts, its memory, and the table of its operations.
#include "common/err.h"
#include "common/log.h"
#include "common/sizes.h"
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/libraries/nvml.h"
#include "kernels/cuda/libraries/product_choices.h"
#include "kernels/cuda/libraries/wddm.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Left free on the device: for the code of kernels, which is loaded at their first launch, for graphs, and for the page
// tables of pinned host memory. An H200 took up to 50 MiB of it, with 17 GiB of pinned memory.
enum { RESERVED = 256 << 20 };

static Backend backend;

static int check_shape(int channels, int heads) {
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

#define NO_SCRATCH(NAME, act, ...)                                                                                     \
    size_t cuda_no_scratch_##act(const Shape *shape) { return (void)shape, 0; }
CUDA_ACTS(NO_SCRATCH, )

static size_t scratch_bytes(const Shape *shape) {
    size_t bytes = 0;
#define OP(name, scratch, arguments) bytes = size_larger(bytes, OF_DEVICE(cuda_##scratch##_scratch)(shape));
#include "kernels/ops.def"
#undef OP
    return round_up(bytes, 256) + UPLOAD_BYTES;
}

static void *alloc(size_t bytes) {
    void *arena = NULL;
    cudaError_t error = cudaMalloc(&arena, bytes);
    if (error == cudaSuccess) return arena;
    (void)cudaGetLastError(); // else the next launch would report it again
    if (error != cudaErrorMemoryAllocation) {
        fail(EX_GPU, "cannot allocate device memory: CUDA reports: %s", cudaGetErrorString(error));
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
    cuda_wait(cuda.stream, "waiting for the last operations");
    graph_clear();
    cuda_check(cudaFree(arena), "cudaFree");
}

static void bind_scratch(void *scratch, size_t bytes) {
    assert(bytes >= UPLOAD_BYTES);
    cuda.scratch = scratch;
    cuda.scratch_bytes = bytes - UPLOAD_BYTES;
    upload_bind((char *)scratch + cuda.scratch_bytes);
}

static size_t query_free_bytes(size_t *total) {
    size_t free_bytes = 0;
    cuda_check(cudaMemGetInfo(&free_bytes, total), "querying free memory");
    return free_bytes;
}

static size_t arena_bytes(size_t free_bytes, size_t total) {
    const size_t bytes = free_bytes > RESERVED ? free_bytes - RESERVED : 1; // not 0, which means unknown
    return wddm_is_there() && bytes > wddm_limit(total) ? wddm_limit(total) : bytes;
}

void backend_cuda_measure(void) {
    size_t total;
    const size_t free_bytes = query_free_bytes(&total);
    backend.free_bytes = arena_bytes(free_bytes, total);
}

// Opens the rest of the device and prints where its memory is. Returns the bytes that an arena can have. used_before:
// by other processes, before this one had a context; -1: not known. total_bytes receives the card's memory.
static size_t open_rest(double used_before, const char *cache_dir, size_t *total_bytes) {
    size_t total, with_context = query_free_bytes(total_bytes);
    upload_open();
    cuda_slots_open();
    cuda_matmul_open(cache_dir);
    const size_t free_bytes = query_free_bytes(&total), arena = arena_bytes(free_bytes, total);
    char context[16], libraries[16], left[16], all[16];
    const bool known = used_before >= 0 && (double)(total - with_context) > used_before;
    log_line("GPU memory of %s: %s %s, libraries %s, reserved for code that is loaded later %d MiB, for the arena %s%s",
             human_bytes(all, (double)total), known ? "context" : "context and other processes",
             human_bytes(context, (double)(total - with_context) - (known ? used_before : 0)),
             human_bytes(libraries, (double)with_context - (double)free_bytes), RESERVED >> 20,
             human_bytes(left, (double)arena),
             wddm_is_there() ? " (0.80 of the card at most: Windows moves what is more to system memory)" : "");
    return arena;
}

static bool device_usage(DeviceUsage *usage) { return nvml_usage(&usage->used, &usage->free, &usage->busy); }

static void close_device(void) {
    if (!cuda.stream) return;
    cuda_wait(cuda.stream, "waiting for the last operations");
    upload_close();
    cuda_matmul_close();
    cuda_slots_close();
    (void)cudaStreamDestroy(cuda.stream);
    memset(&cuda, 0, sizeof cuda);
}

static void choices_set(const char *text) {
    if (!strncmp(text, "cpu: ", 5))
        backend_warn_of_change(text + 5, "a GPU");
    else
        product_choices_set(text);
}

const Backend *backend_cuda(const BackendChoice *choice, char why[256]) {
    const bool full = choice->optimizer_state == STATE_FP32, stochastic = choice->optimizer_state == STATE_BF16_SR;
    cuda.wide_moments = full, cuda.no_master = stochastic,
    cuda.act_type = choice->dtype == DTYPE_AUTO ? DTYPE_BF16 : choice->dtype;
    cuda.tf32 = choice->matmul_precision == PRECISION_HIGH && cuda.act_type == DTYPE_FP32;
    cuda.timeout_s = choice->timeout_s;
    snprintf(why, 256, "cuda: planned for, not opened; %s", dtype_name(cuda.act_type));
    size_t free_bytes = 0, total = 0;
    if (!choice->without_device) {
        // Kernels are loaded at their first use: cuBLASLt alone has some 0.3 GiB of code, of which a run needs little.
        // RESERVED is for kernels that are loaded after free memory has been measured. CUDA reads it once.
        setenv("CUDA_MODULE_LOADING", "LAZY", 0);
        const double used_before =
            nvml_used_bytes(choice->device > DEVICE_CUDA ? (int)(choice->device - DEVICE_CUDA) : 0);
        if (device_open(choice, why) < 0) return NULL;
        free_bytes = open_rest(used_before, choice->cache_dir, &total);
    }
    cuda.deterministic = choice->deterministic;
    backend = (Backend){
        .name = "cuda",
        .card = *cuda.card ? cuda.card : NULL,
        .act_type = cuda.act_type,
        .free_bytes = free_bytes,
        .memory_bytes = total,
        .act_bytes = dtype_bytes(cuda.act_type),
        .par_bytes = dtype_bytes(cuda.act_type),
        .grad_bytes = 4,
        .res_bytes = dtype_bytes(cuda.act_type),
        .master_bytes = stochastic || cuda.act_type == DTYPE_FP32 ? 0 : 4, // float32 parameters are their own master
        .moment_bytes = full ? 4 : 2,
        .needs_warm_up = true,
        .check_shape = check_shape,
        .other_processes = nvml_other_processes,
        .usage = device_usage,
        .collective = &collective_nccl,
        .packed_bytes = packed_bytes,
        .scratch_bytes = scratch_bytes,
        .alloc = alloc,
        .release = release,
        .bind_scratch = bind_scratch,
        .pin = cuda_pin,
        .unpin = cuda_unpin,
        .upload = cuda_upload,
        .download = cuda_download,
        .zero = cuda_zero,
        .close = close_device,
        .copy_in_async = cuda_copy_in_async,
        .copy_in_wait = cuda_copy_in_wait,
        .copy_out_async = cuda_copy_out_async,
        .copy_out_wait = cuda_copy_out_wait,
        .choices_set = choices_set,
        .choices_get = product_choices_get,
        .graph_begin = graph_begin,
        .graph_end = graph_end,
    };
#define OP(name, scratch, arguments) backend.name = OF_DEVICE(cuda_##name);
#include "kernels/ops.def"
#undef OP
    return &backend;
}
