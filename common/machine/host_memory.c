// The free memory of this machine.
#include "common/machine/host_memory.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/machine/cgroup.h"
#include <stdlib.h>
#include <string.h>

// MemAvailable is an estimate of the kernel, which does not include the limit of a container.
uint64_t host_memory_free(void) {
    Buffer text = {0};
    if (file_read(&text, "/proc/meminfo", 1 << 20) < 0) err_clear();
    buffer_add(&text, "", 1);
    const char *at = strstr((const char *)text.data, "MemAvailable:");
    uint64_t bytes = at ? strtoull(at + strlen("MemAvailable:"), NULL, 10) * 1024 : 0;
    buffer_close(&text);
    uint64_t limit = cgroup_limits().memory_bytes;
    return limit && (!bytes || limit < bytes) ? limit : bytes;
}
