// Copies beside the operations (backend.h: copy_in_async, copy_out_async): one stream for each direction, so that both
// directions of the bus and the kernels are busy at once. Events order them; the host waits for none,
// but before a copy of memory that is not page-locked.
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/pageable.h"

static cudaStream_t in, out;
static struct {
    cudaEvent_t vacated, arrived; // copy in: the operations that used the slot are done; the copy is done
    cudaEvent_t written, left;    // copy out: the operations have written the slot; the copy is done
} slots[BACKEND_SLOTS];

static void order(cudaStream_t first, cudaEvent_t event, cudaStream_t second) {
    cuda_check(cudaEventRecord(event, first), "ordering copies");
    cuda_check(cudaStreamWaitEvent(second, event, 0), "ordering copies");
}

void cuda_copy_in_async(int slot, void *device, const void *host, size_t bytes) {
    order(cuda.stream, slots[slot].vacated, in);
    cuda_check(cudaStreamWaitEvent(in, slots[slot].left, 0), "ordering copies");
    cuda_wait_before_pageable(in, host, bytes, "copying from host memory");
    cuda_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, in), "copying from host memory");
    cuda_check(cudaEventRecord(slots[slot].arrived, in), "ordering copies");
}

void cuda_copy_in_wait(int slot) {
    cuda_check(cudaStreamWaitEvent(cuda.stream, slots[slot].arrived, 0), "waiting for host memory");
}

void cuda_copy_out_async(int slot, void *host, const void *device, size_t bytes) {
    order(cuda.stream, slots[slot].written, out);
    cuda_wait_before_pageable(out, host, bytes, "copying to host memory");
    cuda_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, out), "copying to host memory");
    cuda_check(cudaEventRecord(slots[slot].left, out), "ordering copies");
}

void cuda_copy_out_wait(void) {
    for (int i = 0; i < BACKEND_SLOTS; i++)
        cuda_check(cudaStreamWaitEvent(cuda.stream, slots[i].left, 0), "waiting for copies to host memory");
}

void cuda_slots_open(void) {
    cuda_check(cudaStreamCreateWithFlags(&in, cudaStreamNonBlocking), "creating a stream");
    cuda_check(cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking), "creating a stream");
    for (int i = 0; i < BACKEND_SLOTS; i++) {
        cudaEvent_t *events[] = {&slots[i].vacated, &slots[i].arrived, &slots[i].written, &slots[i].left};
        for (int k = 0; k < 4; k++)
            cuda_check(cudaEventCreateWithFlags(events[k], cudaEventDisableTiming), "creating an event");
    }
}

void cuda_slots_close(void) {
    cuda_wait(in, "waiting for the last copies");
    cuda_wait(out, "waiting for the last copies");
    for (int i = 0; i < BACKEND_SLOTS; i++) {
        cudaEvent_t events[] = {slots[i].vacated, slots[i].arrived, slots[i].written, slots[i].left};
        for (int k = 0; k < 4; k++) (void)cudaEventDestroy(events[k]);
    }
    (void)cudaStreamDestroy(in);
    (void)cudaStreamDestroy(out);
}
