// Chooses a backend: the one that is asked for, or what this machine has.
#include "kernels/backend.h"
#include "common/err.h"
#include "kernels/cpu/cpu_internal.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if HAVE_CUDA_BACKEND
const Backend *backend_cuda(const BackendChoice *choice, char why[256]); // kernels/cuda/backend_cuda.c

// NULL when a GPU may be there, else why not.
static const char *no_gpu(void) {
    return access("/dev/nvidiactl", F_OK) && access("/dev/dxg", F_OK) ? "no NVIDIA driver found" : NULL;
}
#else
static const Backend *backend_cuda(const BackendChoice *choice, char why[256]) {
    (void)choice, (void)why;
    fail(EX_USAGE, "built without CUDA");
    return NULL;
}
static const char *no_gpu(void) { return "built without CUDA"; }
#endif

const char *dtype_name(Dtype type) {
    static const char *const names[] = {[DTYPE_FP32] = "float32", [DTYPE_BF16] = "bfloat16", [DTYPE_FP16] = "float16"};
    return names[type];
}

const Backend *backend_open(const BackendChoice *choice, char why[256]) {
    static const char *const devices[] = {"auto", "cpu", "cuda"};
    size_t device = 0;
    Dtype type = DTYPE_FP32;
    while (device < 3 && strcmp(choice->device, devices[device])) device++;
    while (type <= DTYPE_FP16 && strcmp(choice->dtype, dtype_name(type))) type++;
    if (device == 3) return fail(EX_USAGE, "device '%s' is none of auto, cpu, cuda", choice->device), NULL;
    if (type > DTYPE_FP16 && strcmp(choice->dtype, "auto"))
        return fail(EX_USAGE, "dtype '%s' is none of auto, float32, bfloat16, float16", choice->dtype), NULL;
    char reason[128] = "as asked";
    if (device == 2) return backend_cuda(choice, why);
    if (device == 0) {
        const char *missing = no_gpu();
        if (!missing) {
            const Backend *found = backend_cuda(choice, why);
            if (found) return found;
            missing = err_text();
        }
        snprintf(reason, sizeof reason, "%s", missing);
        err_clear();
    }
    char how[96];
    const Backend *cpu = backend_cpu(choice, how);
    if (cpu) snprintf(why, 256, "cpu: %s; %s", reason, how);
    return cpu;
}
