// Limits of control groups, read from trees as the kernel shows them.
#include "common/err.h"
#include "common/machine/cgroup.h"
#include "common/machine/pool.h"
#include "tests/test.h"

static void group(const char *folder, const char *name, const char *text) {
    char command[256], path[256];
    snprintf(command, sizeof command, "mkdir -p '%s'", folder);
    CHECK(system(command) == 0);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    write_file(path, text, strlen(text));
}

static CgroupLimits limits_of(const char *self) {
    write_file("self", self, strlen(self));
    return cgroup_limits_at("self", "fs");
}

TEST(cgroup_limits_are_the_least_of_all_groups_above) {
    group("fs/a/b", "cpu.max", "max 100000\n");
    group("fs/a/b", "memory.max", "max\n");
    CgroupLimits limits = limits_of("0::/a/b\n");
    CHECK(limits.cpus == 0 && limits.memory_bytes == 0);
    group("fs/a", "cpu.max", "250000 100000\n");
    group("fs/a", "memory.max", "3000000\n");
    limits = limits_of("0::/a/b\n");
    CHECK_EQUAL(limits.cpus, 3); // two and a half
    CHECK_EQUAL(limits.memory_bytes, 3000000);
    group("fs/a/b", "cpu.max", "50000 100000\n");
    group("fs/a/b", "memory.max", "4000000\n");
    limits = limits_of("0::/a/b\n");
    CHECK_EQUAL(limits.cpus, 1);
    CHECK_EQUAL(limits.memory_bytes, 3000000);
    limits = limits_of("0::/other\n");
    CHECK(limits.cpus == 0 && limits.memory_bytes == 0);
}

TEST(cgroup_limits_of_version_1_are_read) {
    group("fs/cpu/docker/x", "cpu.cfs_quota_us", "200000\n");
    group("fs/cpu/docker/x", "cpu.cfs_period_us", "100000\n");
    group("fs/memory/docker/x", "memory.limit_in_bytes", "1073741824\n");
    group("fs/memory", "memory.limit_in_bytes", "9223372036854771712\n"); // none
    CgroupLimits limits = limits_of("4:memory:/docker/x\n2:cpu,cpuacct:/docker/x\n0::/\n");
    CHECK_EQUAL(limits.cpus, 2);
    CHECK_EQUAL(limits.memory_bytes, 1 << 30);
    group("fs/cpu/docker/x", "cpu.cfs_quota_us", "-1\n");
    CHECK_EQUAL(limits_of("2:cpu,cpuacct:/docker/x\n").cpus, 0);
}

TEST(cgroup_memory_is_free_but_for_what_is_no_file) {
    group("fs/a/b", "memory.max", "4000000\n");
    group("fs/a/b", "memory.current", "1500000\n");
    group("fs/a/b", "memory.stat",
          "anon 500000\nfile 1000000\ninactive_file 600000\nactive_file 300000\nworkingset 1\n");
    CHECK_EQUAL(limits_of("0::/a/b\n").memory_free, 3400000);
    group("fs/a", "memory.max", "4500000\n"); // of the group above it less is free
    group("fs/a", "memory.current", "3000000\n");
    CHECK_EQUAL(limits_of("0::/a/b\n").memory_free, 1500000);
    group("fs/a", "memory.current", "5000000\n");
    CHECK_EQUAL(limits_of("0::/a/b\n").memory_free, 1);
    group("fs/memory/x", "memory.limit_in_bytes", "4000000\n");
    group("fs/memory/x", "memory.usage_in_bytes", "1500000\n");
    group("fs/memory/x", "memory.stat", "inactive_file 1\ntotal_inactive_file 600000\ntotal_active_file 300000\n");
    CHECK_EQUAL(limits_of("4:memory:/x\n").memory_free, 3400000);
    CHECK_EQUAL(limits_of("4:memory:/none\n").memory_free, 0);
}

// A container sees its own group as the mount, and the host's path.
TEST(cgroup_limits_of_a_container_are_those_of_the_mount) {
    group("fs", "cpu.max", "400000 100000\n");
    group("fs", "memory.max", "2147483648\n");
    CgroupLimits limits = limits_of("0::/system.slice/docker-0123.scope\n");
    CHECK_EQUAL(limits.cpus, 4);
    CHECK_EQUAL(limits.memory_bytes, 2147483648);
    limits = cgroup_limits_at("nowhere", "fs");
    CHECK(limits.cpus == 0 && limits.memory_bytes == 0);
}

// A cleanup after an error may count the processors, and files of other versions of groups are always missing.
TEST(cgroup_limits_and_cores_keep_a_pending_error) {
    fail(EX_DATA, "the cause");
    cgroup_limits_at("nowhere", "fs");
    CHECK(pool_cores() > 0);
    CHECK_ERROR(EX_DATA, "the cause");
    CHECK(pool_cores() > 0);
    CHECK_EQUAL(err_code(), 0);
}
