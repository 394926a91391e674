// Limits that control groups (versions 1 and 2) set for this process: its own group and all groups above.
#pragma once

#include <stdint.h>

typedef struct {
    unsigned cpus;         // CPU quota, rounded up to whole processors; 0: none
    uint64_t memory_bytes; // 0: none
    uint64_t memory_free;  // of it, in the group that has the least; the cache of files counts as free. 0: no limit
} CgroupLimits;

// `self` is /proc/self/cgroup and `mount` /sys/fs/cgroup; tests pass others. A file that cannot be read sets no limit.
// A pending error stays as it is.
CgroupLimits cgroup_limits_at(const char *self, const char *mount);
CgroupLimits cgroup_limits(void);
