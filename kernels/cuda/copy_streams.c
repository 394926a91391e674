// Copies beside the operations (backend.h: fetch, store): a stream each way, so that both directions of the bus and the
// kernels are busy at once. Events order them; the host waits for none.
#include "kernels/cuda/cuda_internal.h"

static cudaStream_t in, out;
static struct {
    cudaEvent_t room, arrived; // fetch: operations that used the slot's place are done; its bytes are there
    cudaEvent_t made, left;    // store: operations have written it; its bytes are in host memory
} slots[BACKEND_SLOTS];

static void then(cudaStream_t first, cudaEvent_t event, cudaStream_t second) {
    cuda_check(cudaEventRecord(event, first), "ordering copies");
    cuda_check(cudaStreamWaitEvent(second, event, 0), "ordering copies");
}

void cuda_fetch(int slot, void *device, const void *host, size_t bytes) {
    then(cuda.stream, slots[slot].room, in);
    cuda_check(cudaStreamWaitEvent(in, slots[slot].left, 0), "ordering copies");
    cuda_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, in), "fetching from host memory");
    cuda_check(cudaEventRecord(slots[slot].arrived, in), "ordering copies");
}

void cuda_fetched(int slot) {
    cuda_check(cudaStreamWaitEvent(cuda.stream, slots[slot].arrived, 0), "waiting for host memory");
}

void cuda_store(int slot, void *host, const void *device, size_t bytes) {
    then(cuda.stream, slots[slot].made, out);
    cuda_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, out), "storing to host memory");
    cuda_check(cudaEventRecord(slots[slot].left, out), "ordering copies");
}

void cuda_stored(void) {
    for (int i = 0; i < BACKEND_SLOTS; i++)
        cuda_check(cudaStreamWaitEvent(cuda.stream, slots[i].left, 0), "waiting for stores");
}

void cuda_slots_open(void) {
    cuda_check(cudaStreamCreateWithFlags(&in, cudaStreamNonBlocking), "making a stream");
    cuda_check(cudaStreamCreateWithFlags(&out, cudaStreamNonBlocking), "making a stream");
    for (int i = 0; i < BACKEND_SLOTS; i++) {
        cudaEvent_t *events[] = {&slots[i].room, &slots[i].arrived, &slots[i].made, &slots[i].left};
        for (int k = 0; k < 4; k++)
            cuda_check(cudaEventCreateWithFlags(events[k], cudaEventDisableTiming), "making an event");
    }
}

void cuda_slots_close(void) {
    cuda_check(cudaStreamSynchronize(in), "the last copies");
    cuda_check(cudaStreamSynchronize(out), "the last copies");
    for (int i = 0; i < BACKEND_SLOTS; i++) {
        cudaEvent_t events[] = {slots[i].room, slots[i].arrived, slots[i].made, slots[i].left};
        for (int k = 0; k < 4; k++) (void)cudaEventDestroy(events[k]);
    }
    (void)cudaStreamDestroy(in);
    (void)cudaStreamDestroy(out);
}
