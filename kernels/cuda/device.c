// The open device: its facts, its stream, and the messages without a device.
#include "common/err.h"
#include "common/log.h"
#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/libraries/cublaslt.h"
#include "kernels/cuda/libraries/nccl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

Cuda cuda;
AttentionForm cuda_attention_form;

void cuda_check(cudaError_t error, const char *what) {
    if (error == cudaErrorNoKernelImageForDevice)
        die(EX_GPU,
            "%s: this program has no code for a GPU of compute capability %d.%d: build it with make NVARCH=%d%d", what,
            cuda.capability / 10, cuda.capability % 10, cuda.capability / 10, cuda.capability % 10);
    if (error != cudaSuccess) die(EX_GPU, "%s: CUDA reports: %s", what, cudaGetErrorString(error));
}

// ---- waits

enum {
    SPIN_NS = 2000000, // a wait that is shorter ends without a sleep
    SLEEP_US = 20,
    GAP_NS_MAX = 1000000000 // between two polls; the rest of a longer one: the process was stopped
};

void device_wait_fail(const DeviceWait *wait) {
    die(EX_GPU,
        "%s: the GPU has not finished for %.0f s: a kernel hangs, or the GPU has lost power or left the bus (then "
        "dmesg has lines with Xid); saved checkpoints are whole: run the same command again, after a reset of the GPU "
        "if it stays so; --device_timeout=N waits N seconds, 0 for ever",
        wait->what, (double)wait->waited_ns * 1e-9);
}

void device_wait_count(DeviceWait *wait) {
    const uint64_t now = clock_ns(), gap_ns = wait->polled_ns ? now - wait->polled_ns : 0;
    const uint64_t limit_ns = (uint64_t)cuda.timeout_s * 1000000000;
    wait->polled_ns = now;
    wait->waited_ns += gap_ns < GAP_NS_MAX ? gap_ns : GAP_NS_MAX;
    if (!limit_ns) return;
    if (wait->waited_ns >= limit_ns) device_wait_fail(wait);
    if (wait->warned || wait->waited_ns < limit_ns / 10) return;
    wait->warned = true;
    log_warn("%s: waiting for the GPU for %.3g s; after %d s (device_timeout) it counts as hung", wait->what,
             (double)wait->waited_ns * 1e-9, cuda.timeout_s);
}

// After a poll that has returned `error`: true when the wait is over.
static bool is_over(DeviceWait *wait, cudaError_t error) {
    if (error != cudaErrorNotReady) return cuda_check(error, wait->what), true;
    device_wait_count(wait);
    if (wait->waited_ns > SPIN_NS) usleep(SLEEP_US);
    return false;
}

void cuda_wait(cudaStream_t stream, const char *what) {
    for (DeviceWait wait = {.what = what}; !is_over(&wait, cudaStreamQuery(stream));) {
    }
}

void cuda_wait_event(cudaEvent_t event, const char *what) {
    for (DeviceWait wait = {.what = what}; !is_over(&wait, cudaEventQuery(event));) {
    }
}

// ---- opening

// Without a driver the runtime reports a driver that is too old; then the driver version is 0.
static int fail_without_device(cudaError_t error) {
    int driver = 0, runtime = 0;
    (void)cudaGetLastError(); // else the next launch would report it again
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorInsufficientDriver && driver == 0)
        return fail(EX_GPU, "no NVIDIA driver on this machine: install it, or use device=cpu");
    if (error == cudaErrorInsufficientDriver)
        return fail(EX_GPU,
                    "the NVIDIA driver supports CUDA %d.%d, this program needs %d.%d: update the driver, or use "
                    "device=cpu",
                    driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (error == cudaErrorNoDevice) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        return fail(EX_GPU, "the NVIDIA driver finds no GPU%s%s: use device=cpu to run without one",
                    visible ? "; CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "");
    }
    return fail(EX_GPU, "cannot use the GPU: %s (CUDA error %d)", cudaGetErrorString(error), (int)error);
}

int device_open(const BackendChoice *choice, char why[256]) {
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) return fail_without_device(error);
    const int card = choice->device > DEVICE_CUDA ? (int)(choice->device - DEVICE_CUDA) : 0;
    if (card >= count)
        return fail(EX_GPU, "there is no GPU %d: the NVIDIA driver shows %d, numbered from 0", card, count);
    struct cudaDeviceProp device;
    error = cudaGetDeviceProperties(&device, card);
    if (error != cudaSuccess) return fail_without_device(error);
    if (gpu_check_capability(choice, device.name, device.major * 10 + device.minor) < 0) return -1;
    if (cublaslt_load() < 0) return -1;
    error = cudaSetDevice(card);
    if (error != cudaSuccess) return fail_without_device(error);
    cuda.capability = device.major * 10 + device.minor;
    cuda.multiprocessors = device.multiProcessorCount;
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    snprintf(cuda.card, sizeof cuda.card, "%s, compute capability %d.%d, %d multiprocessors, driver %d", device.name,
             device.major, device.minor, device.multiProcessorCount, driver);
    cuda.shared_bytes = device.sharedMemPerBlockOptin;
    cuda.cache_bytes = (size_t)device.l2CacheSize;
    cuda.act_type = gpu_act_type(choice, cuda.capability);
    cuda.tf32 = choice->matmul_precision == PRECISION_HIGH && cuda.act_type == DTYPE_FP32;
    (void)prctl(PR_SET_TIMERSLACK, 1UL); // else a sleep of SLEEP_US takes 50 us longer
    cuda.wgmma = cuda.capability == 90 && OF_DEVICE(attention_has_wgmma)();
    cuda_check(cudaStreamCreateWithFlags(&cuda.stream, cudaStreamNonBlocking), "creating a stream");
    char memory[16];
    snprintf(why, 256, "cuda: %.200s, compute capability %d.%d, %s, %s", device.name, device.major, device.minor,
             human_bytes(memory, (double)device.totalGlobalMem), dtype_name(cuda.act_type));
    return 0;
}

bool backend_cuda_libraries(char *text, size_t size) {
    FoundLibrary found[2];
    cublaslt_find(&found[0]), nccl_find(&found[1]);
    *text = 0;
    for (int i = 0; i < 2; i++) {
        const int version = found[i].version;
        char number[40] = "";
        if (version) snprintf(number, sizeof number, "%d.%d.%d, ", version / 10000, version / 100 % 100, version % 100);
        snprintf(text + strlen(text), size - strlen(text), "%s %s%s", i ? "; NCCL" : "cuBLASLt", number,
                 found[i].handle ? found[i].path : found[i].why);
    }
    return found[0].handle;
}
