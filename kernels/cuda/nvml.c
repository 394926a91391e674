// NVML through dlopen: the library comes with the driver, not with the toolkit, so it is not linked, and no header of
// it is used.
#include "kernels/cuda/nvml.h"
#include "common/log.h"
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

typedef void *Device;

// nvmlProcessInfo_t since driver 510
typedef struct {
    unsigned pid;
    unsigned long long bytes; // all bits set: not known
    unsigned gpu_instance, compute_instance;
} Process;

enum { PROCESSES = 64 };

typedef int (*Init)(void);
typedef int (*ByBus)(const char *bus, Device *device);
typedef int (*Processes)(Device device, unsigned *count, Process *processes);

static void append(char *text, size_t size, size_t *used, const Process *processes, unsigned count) {
    for (unsigned i = 0; i < count && *used < size; i++) {
        if (processes[i].pid == (unsigned)getpid()) continue;
        char bytes[16] = "some";
        if (processes[i].bytes != ~0ull) human_bytes(bytes, (double)processes[i].bytes);
        int wrote =
            snprintf(text + *used, size - *used, "%spid %u holds %s", *used ? ", " : "", processes[i].pid, bytes);
        if (wrote > 0) *used += (size_t)wrote;
    }
}

void nvml_other_processes(char *text, size_t size) {
    *text = 0;
    char bus[32];
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, 0) != cudaSuccess) return;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) return;
    Init init = (Init)dlsym(library, "nvmlInit_v2"), end = (Init)dlsym(library, "nvmlShutdown");
    ByBus by_bus = (ByBus)dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    Processes lists[] = {(Processes)dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"),
                         (Processes)dlsym(library, "nvmlDeviceGetGraphicsRunningProcesses_v3")};
    Device device;
    if (init && end && by_bus && init() == 0) {
        size_t used = 0;
        for (int i = 0; i < 2 && by_bus(bus, &device) == 0; i++) {
            static Process processes[PROCESSES];
            unsigned count = PROCESSES;
            if (lists[i] && lists[i](device, &count, processes) == 0) append(text, size, &used, processes, count);
        }
        end();
    }
    dlclose(library);
}
