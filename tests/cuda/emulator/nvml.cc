// A stand-in for NVML: a card of which another process holds 3 GiB, and which is busy 97 % of the time. It refuses what
// the library refuses: calls before its start or after its end, and structures of another version.
#include "tests/cuda/emulator/device.h"
#include "tests/cuda/emulator/exchange.h"

#include <cstring>
#include <unistd.h>

namespace {

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT };

struct Memory { // nvmlMemory_v2_t
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct Process { // nvmlProcessInfo_t
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu_instance, compute_instance;
};

const unsigned long long GIB = 1ull << 30;
char library, device; // their addresses are the handles
int started;

int init() { return started++, SUCCESS; }
int end() { return started > 0 ? started--, SUCCESS : UNINITIALIZED; }
int by_bus(const char *bus, void **found) {
    if (!started) return UNINITIALIZED;
    return *found = &device, strcmp(bus, "0000:01:00.0") ? INVALID_ARGUMENT : SUCCESS;
}
int memory(void *of, Memory *to) {
    if (!started) return UNINITIALIZED;
    if (of != &device || to->version != (sizeof *to | 2 << 24)) return INVALID_ARGUMENT;
    to->total = emu_device.memory, to->reserved = GIB / 2, to->used = 3 * GIB;
    to->free = to->total - to->reserved - to->used;
    return SUCCESS;
}
int utilization(void *of, unsigned *to) {
    if (!started) return UNINITIALIZED;
    return to[0] = 97, to[1] = 40, of == &device ? SUCCESS : INVALID_ARGUMENT;
}
int processes(void *of, unsigned *count, Process *to) {
    if (!started) return UNINITIALIZED;
    if (of != &device || *count < 2) return INVALID_ARGUMENT;
    to[0] = {(unsigned)getpid(), GIB, 0, 0}, to[1] = {4711, 3 * GIB, 0, 0}, *count = 2;
    return SUCCESS;
}

} // namespace

void *emu::nvml_library() { return emu_device.has_nvml ? &library : nullptr; }

void *emu::nvml_function(const char *name) {
    if (!strcmp(name, "nvmlInit_v2")) return (void *)init;
    if (!strcmp(name, "nvmlShutdown")) return (void *)end;
    if (!strcmp(name, "nvmlDeviceGetHandleByPciBusId_v2")) return (void *)by_bus;
    if (!strcmp(name, "nvmlDeviceGetMemoryInfo_v2")) return (void *)memory;
    if (!strcmp(name, "nvmlDeviceGetUtilizationRates")) return (void *)utilization;
    if (!strcmp(name, "nvmlDeviceGetComputeRunningProcesses_v3")) return (void *)processes;
    return nullptr;
}
