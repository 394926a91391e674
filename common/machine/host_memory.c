// The free memory of this machine.
#include "common/machine/host_memory.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include "common/machine/cgroup.h"
#include "common/machine/stop.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

// The addresses that `ulimit -v` leaves beside libraries and threads. 0: there is no limit.
static uint64_t addresses_left(void) {
    const uint64_t reserved = 192 << 20;
    struct rlimit most;
    unsigned long long pages;
    if (getrlimit(RLIMIT_AS, &most) < 0 || most.rlim_cur == RLIM_INFINITY) return 0;
    FILE *file = fopen("/proc/self/statm", "re");
    const bool known = file && fscanf(file, "%llu", &pages) == 1;
    if (file) fclose(file);
    const uint64_t used = reserved + (known ? pages * (uint64_t)sysconf(_SC_PAGESIZE) : 0);
    return most.rlim_cur > used ? most.rlim_cur - used : 1;
}

// MemAvailable is an estimate of the kernel, which does not include the limit of a container.
static uint64_t free_of(bool addresses, const char **where) {
    Buffer text = {0};
    if (file_read(&text, "/proc/meminfo", 1 << 20) < 0) err_clear();
    buffer_add(&text, "", 1);
    const char *at = strstr((const char *)text.data, "MemAvailable:");
    const struct {
        uint64_t bytes; // 0: not known, or no limit
        const char *where;
    } limits[] = {
        {at ? strtoull(at + strlen("MemAvailable:"), NULL, 10) * 1024 : 0, "the memory that is free on this machine"},
        {cgroup_limits().memory_free, "the memory that is free in the control group"},
        {addresses ? addresses_left() : 0, "the address space that `ulimit -v` allows"}};
    uint64_t least = 0;
    for (int i = 0; i < 3; i++) {
        if (!limits[i].bytes || (least && least <= limits[i].bytes)) continue;
        least = limits[i].bytes;
        if (where) *where = limits[i].where;
    }
    buffer_close(&text);
    return least;
}

uint64_t host_memory_free(const char **where) { return free_of(true, where); }

size_t host_memory_next(size_t bytes) {
    enum {
        KEPT = 32 << 20,
        UNIT = 4 << 20,
        PARTS = 8,
        MOST = 1 << 30
    }; // KEPT: half of HOST_REST of a plan; UNIT: whole huge pages
    const char *where = "";
    char size[16];
    const uint64_t left = free_of(false, &where); // addresses have been taken at once
    if (stop_check("memory was allocated") < 0) return 0;
    if (!left) return bytes < MOST ? bytes : MOST;
    const uint64_t most = (left > KEPT ? left - KEPT : 0) / UNIT * UNIT, part = most / PARTS / UNIT * UNIT;
    const uint64_t next = part > MOST ? MOST : part ? part : UNIT;
    if (next > most && bytes > most)
        return fail(EX_MEMORY,
                    "%s is now %s: another process has taken memory since the plan was made; start again when there is "
                    "room, or give a smaller batch_size",
                    where, human_bytes(size, (double)left)),
               0;
    return bytes < next ? bytes : next;
}
