// Chooses a backend: the requested one, or the best that this machine has.
#include "kernels/backend.h"
#include "common/err.h"
#include "common/log.h"
#include <stdio.h>
#include <unistd.h>

#if HAVE_CUDA
// NULL when a GPU may be there, else why not.
static const char *no_gpu(void) {
    return access("/dev/nvidiactl", F_OK) && access("/dev/dxg", F_OK) ? "no NVIDIA driver found" : NULL;
}
#else
const Backend *backend_cuda(const BackendChoice *choice, char why[256]) {
    (void)choice, (void)why;
    fail(EX_USAGE, "this program was built without CUDA: build it where nvcc is installed, or take --device=cpu");
    return NULL;
}
bool backend_cuda_libraries(char *text, size_t size) {
    snprintf(text, size, "built without CUDA");
    return true;
}
static const char *no_gpu(void) { return "built without CUDA"; }
#endif

void backend_warn_of_change(const char *was, const char *now) {
    log_warn(
        "the run was computed with %s, and goes on with %s: its bits are not those of a run that stayed with one of "
        "them",
        was, now);
}

static const Backend *open_gpu(const BackendChoice *choice, char why[256]) {
    return choice->planned ? backend_planned(choice, why) : backend_cuda(choice, why);
}

const Backend *backend_open(const BackendChoice *choice, char why[256]) {
    char reason[128] = "as requested";
    if (choice->device >= DEVICE_CUDA) return open_gpu(choice, why);
    if (choice->device == DEVICE_AUTO) {
        const char *missing = no_gpu();
        if (!missing) {
            const Backend *found = open_gpu(choice, why);
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
