// The CUDA backend: its facts, its memory, and the table of its operations.
#include "common/err.h"
#include "common/log.h"
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/libraries/nvml.h"
#include "kernels/cuda/libraries/product_choices.h"
#include "kernels/cuda/libraries/wddm.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Backend backend;

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
    const size_t bytes = free_bytes > GPU_RESERVED ? free_bytes - GPU_RESERVED : 1; // not 0, which means unknown
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
             human_bytes(libraries, (double)with_context - (double)free_bytes), GPU_RESERVED >> 20,
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
    cuda.wide_moments = choice->optimizer_state == STATE_FP32;
    cuda.no_master = choice->optimizer_state == STATE_BF16_SR;
    cuda.deterministic = choice->deterministic, cuda.timeout_s = choice->timeout_s;
    // Kernels are loaded at their first use: cuBLASLt alone has some 0.3 GiB of code, of which a run needs little.
    // GPU_RESERVED is for kernels that are loaded after free memory has been measured. CUDA reads it once.
    setenv("CUDA_MODULE_LOADING", "LAZY", 0);
    const double used_before = nvml_used_bytes(choice->device > DEVICE_CUDA ? (int)(choice->device - DEVICE_CUDA) : 0);
    if (device_open(choice, why) < 0) return NULL;
    GpuProperties gpu = {.card = cuda.card, .capability = cuda.capability};
    gpu.free_bytes = open_rest(used_before, choice->cache_dir, &gpu.memory_bytes);
    backend = gpu_facts(choice, &gpu);
    backend.other_processes = nvml_other_processes;
    backend.usage = device_usage;
    backend.collective = &collective_nccl;
    backend.alloc = alloc, backend.release = release, backend.bind_scratch = bind_scratch;
    backend.pin = cuda_pin, backend.unpin = cuda_unpin;
    backend.upload = cuda_upload, backend.download = cuda_download, backend.zero = cuda_zero;
    backend.close = close_device;
    backend.copy_in_async = cuda_copy_in_async, backend.copy_in_wait = cuda_copy_in_wait;
    backend.copy_out_async = cuda_copy_out_async, backend.copy_out_wait = cuda_copy_out_wait;
    backend.choices_set = choices_set, backend.choices_get = product_choices_get;
    backend.graph_begin = graph_begin, backend.graph_end = graph_end;
#define OP(name, scratch, arguments) backend.name = OF_DEVICE(cuda_##name);
#include "kernels/ops.def"
#undef OP
    return &backend;
}
