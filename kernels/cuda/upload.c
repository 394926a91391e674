// Copies between host and device that are ordered with the operations, and page-locked (pinned) host memory.
//
// A batch in pinned memory is copied to a stage buffer over the copy stream, and from there into place between two
// operations. The host may reuse its bytes after `arrived`, however far behind the operations are.
#include "common/log.h"
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/pageable.h"
#include <assert.h>
#include <string.h>

enum { PINNED_MAX = 16 }; // ranges

typedef struct {
    void *bytes;
    cudaEvent_t arrived, taken; // the stage holds the batch; the operations have copied it from there
} Stage;
static Stage stages[UPLOAD_STAGES];
static unsigned uploads;
static cudaStream_t copy_stream;

static struct {
    const char *start;
    size_t bytes;
} pinned[PINNED_MAX];
static int pinned_count;

void upload_open(void) {
    cuda_check(cudaStreamCreateWithFlags(&copy_stream, cudaStreamNonBlocking), "creating a stream");
    for (int i = 0; i < UPLOAD_STAGES; i++) {
        cuda_check(cudaEventCreateWithFlags(&stages[i].arrived, cudaEventDisableTiming), "creating an event");
        cuda_check(cudaEventCreateWithFlags(&stages[i].taken, cudaEventDisableTiming), "creating an event");
    }
}

void upload_close(void) {
    while (pinned_count) (void)cudaHostUnregister((void *)(uintptr_t)pinned[--pinned_count].start);
    for (int i = 0; i < UPLOAD_STAGES; i++) {
        (void)cudaEventDestroy(stages[i].arrived);
        (void)cudaEventDestroy(stages[i].taken);
    }
    (void)cudaStreamDestroy(copy_stream);
    memset(stages, 0, sizeof stages);
    uploads = 0;
}

void upload_bind(void *memory) {
    for (int i = 0; i < UPLOAD_STAGES; i++) stages[i].bytes = (char *)memory + (size_t)i * STAGE_BYTES;
}

void cuda_pin(void *host, size_t bytes) {
    assert(pinned_count < PINNED_MAX);
    const cudaError_t error = cudaHostRegister(host, bytes, cudaHostRegisterDefault);
    if (error != cudaSuccess) { // WSL2 and some containers limit pinned memory; copies from other memory work too
        (void)cudaGetLastError();
        static bool warned;
        char size[16];
        if (!warned)
            log_warn("cannot pin %s of host memory (%s): copies to and from the GPU will be slower",
                     human_bytes(size, (double)bytes), cudaGetErrorString(error));
        warned = true;
        return;
    }
    pinned[pinned_count].start = host;
    pinned[pinned_count++].bytes = bytes;
}

void cuda_unpin(void *host) {
    int i = 0;
    while (i < pinned_count && pinned[i].start != host) i++;
    if (i == pinned_count) return; // pinning had failed
    cuda_check(cudaHostUnregister(host), "unpinning host memory");
    pinned[i] = pinned[--pinned_count];
}

static bool is_pinned(const char *host, size_t bytes) {
    for (int i = 0; i < pinned_count; i++)
        if (host >= pinned[i].start && host + bytes <= pinned[i].start + pinned[i].bytes) return true;
    return false;
}

void cuda_wait_before_pageable(cudaStream_t stream, const void *host, size_t bytes, const char *what) {
    if (!is_pinned(host, bytes)) cuda_wait(stream, what);
}

void cuda_upload(void *device, const void *host, size_t bytes) {
    const char *what = "copying to the GPU";
    if (!cuda.scratch || bytes > STAGE_BYTES || !is_pinned(host, bytes)) {
        cuda_wait_before_pageable(cuda.stream, host, bytes, what);
        cuda_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, cuda.stream), what);
        cuda_wait(cuda.stream, what);
        return;
    }
    Stage *stage = &stages[uploads++ % UPLOAD_STAGES];
    cuda_check(cudaStreamWaitEvent(copy_stream, stage->taken, 0), what);
    cuda_check(cudaMemcpyAsync(stage->bytes, host, bytes, cudaMemcpyHostToDevice, copy_stream), what);
    cuda_check(cudaEventRecord(stage->arrived, copy_stream), what);
    cuda_check(cudaStreamWaitEvent(cuda.stream, stage->arrived, 0), what);
    cuda_check(cudaMemcpyAsync(device, stage->bytes, bytes, cudaMemcpyDeviceToDevice, cuda.stream), what);
    cuda_check(cudaEventRecord(stage->taken, cuda.stream), what);
    cuda_wait_event(stage->arrived, what);
}

void cuda_download(void *host, const void *device, size_t bytes) {
    const char *what = "copying from the GPU";
    cuda_wait_before_pageable(cuda.stream, host, bytes, what);
    cuda_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, cuda.stream), what);
    cuda_wait(cuda.stream, what);
}

void cuda_zero(void *device, size_t bytes) {
    cuda_check(cudaMemsetAsync(device, 0, bytes, cuda.stream), "clearing device memory");
}
