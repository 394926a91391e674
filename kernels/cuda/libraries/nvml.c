// NVML through dlopen: the library comes with the driver, not with the toolkit, so it is not linked, and no header of
// it is used.
#include "kernels/cuda/libraries/nvml.h"
#include "common/log.h"
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

typedef void *NvmlDevice;

// nvmlProcessInfo_t since driver 510
typedef struct {
    unsigned pid;
    unsigned long long bytes; // all bits set: not known
    unsigned gpu_instance, compute_instance;
} NvmlProcess;

enum { PROCESSES = 64 };

typedef int (*Init)(void);
typedef int (*ByBus)(const char *bus, NvmlDevice *device);
typedef int (*Processes)(NvmlDevice device, unsigned *count, NvmlProcess *processes);

static void append(char *text, size_t size, size_t *used, const NvmlProcess *processes, unsigned count) {
    for (unsigned i = 0; i < count && *used < size; i++) {
        if (processes[i].pid == (unsigned)getpid()) continue;
        char bytes[16] = "some";
        if (processes[i].bytes != ~0ull) human_bytes(bytes, (double)processes[i].bytes);
        int wrote =
            snprintf(text + *used, size - *used, "%spid %u holds %s", *used ? ", " : "", processes[i].pid, bytes);
        if (wrote > 0) *used += (size_t)wrote;
    }
}

// The library and its handle of a card, or NULL. The caller ends both.
static void *open_nvml(int card, NvmlDevice *device) {
    char bus[32];
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, card) != cudaSuccess) return NULL;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library) return NULL;
    Init init = (Init)dlsym(library, "nvmlInit_v2"), end = (Init)dlsym(library, "nvmlShutdown");
    ByBus by_bus = (ByBus)dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    if (init && end && by_bus && init() == 0) {
        if (by_bus(bus, device) == 0) return library;
        end();
    }
    dlclose(library);
    return NULL;
}

static void close_nvml(void *library) {
    ((Init)dlsym(library, "nvmlShutdown"))();
    dlclose(library);
}

void nvml_other_processes(char *text, size_t size) {
    *text = 0;
    NvmlDevice device;
    int card = 0;
    void *library = cudaGetDevice(&card) == cudaSuccess ? open_nvml(card, &device) : NULL;
    if (!library) return;
    Processes lists[] = {(Processes)dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"),
                         (Processes)dlsym(library, "nvmlDeviceGetGraphicsRunningProcesses_v3")};
    size_t used = 0;
    for (int i = 0; i < 2; i++) {
        static NvmlProcess processes[PROCESSES];
        unsigned count = PROCESSES;
        if (lists[i] && lists[i](device, &count, processes) == 0) append(text, size, &used, processes, count);
    }
    close_nvml(library);
}

// nvmlMemory_v2_t, since driver 510. The first version counts the driver's reserve (615 MiB of an H200) as used.
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} NvmlMemory;

static bool read_memory(void *library, NvmlDevice device, NvmlMemory *memory) {
    int (*info)(NvmlDevice, void *) = (int (*)(NvmlDevice, void *))dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    *memory = (NvmlMemory){.version = sizeof *memory | 2 << 24};
    return info && info(device, memory) == 0;
}

double nvml_used_bytes(int card) {
    NvmlMemory memory;
    NvmlDevice device;
    void *library = open_nvml(card, &device);
    if (!library) return -1;
    const double used = read_memory(library, device, &memory) ? (double)memory.used : -1;
    close_nvml(library);
    return used;
}

bool nvml_usage(double *used, double *free_bytes, double *busy) {
    static void *library; // its start takes as long as a step
    static NvmlDevice device;
    static bool tried;
    struct {
        unsigned kernels, memory; // percent
    } rates = {0};
    NvmlMemory memory;
    int card = 0;
    if (!tried && cudaGetDevice(&card) == cudaSuccess) library = open_nvml(card, &device);
    tried = true;
    if (!library || !read_memory(library, device, &memory)) return false;
    int (*query)(NvmlDevice, void *) = (int (*)(NvmlDevice, void *))dlsym(library, "nvmlDeviceGetUtilizationRates");
    if (!query || query(device, &rates) != 0) return false;
    *used = (double)memory.used, *free_bytes = (double)memory.free, *busy = rates.kernels / 100.0;
    return true;
}
