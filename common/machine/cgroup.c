// Limits of control groups. In a container the path in /proc/self/cgroup may be the path on the host, which does not
// exist below the container's mount: the mount itself is then the container's group, and it is always looked at.
#include "common/machine/cgroup.h"
#include "common/bytes.h"
#include "common/err.h"
#include "common/file/file.h"
#include <stdio.h>
#include <stdlib.h>

static void limit(uint64_t *least, uint64_t value) {
    if (value && (!*least || value < *least)) *least = value;
}

// Reads two numbers of a small file; a missing one is 0, and so is "max". false when the file cannot be read.
static bool read_numbers(const char *folder, const char *name, uint64_t numbers[2]) {
    char path[PATH_MAX_BYTES];
    Buffer text = {0};
    numbers[0] = numbers[1] = 0;
    snprintf(path, sizeof path, "%.*s/%.40s", PATH_MAX_BYTES - 64, folder, name);
    bool found = file_read(&text, path, 4096) == 0;
    if (!found) err_clear();
    buffer_add(&text, "", 1);
    const char *at = (const char *)text.data;
    if (found && *at != '-') { // -1: no limit
        char *end;
        numbers[0] = strtoull(at, &end, 10);
        if (!strncmp(at, "max", 3)) end = (char *)(uintptr_t)at + 3;
        numbers[1] = strtoull(end, NULL, 10);
    }
    buffer_close(&text);
    return found;
}

// The bytes of a group that are not free: but for the files that the kernel would drop. Version 1 counts the groups
// below under other names.
static uint64_t used_memory(const char *folder) {
    static const char *const files[] = {"inactive_file ", "active_file ", "total_inactive_file ", "total_active_file "};
    char path[PATH_MAX_BYTES];
    uint64_t used[2], cached[4] = {0};
    const bool second = read_numbers(folder, "memory.current", used);
    if (!second) read_numbers(folder, "memory.usage_in_bytes", used);
    Buffer text = {0};
    snprintf(path, sizeof path, "%.*s/memory.stat", PATH_MAX_BYTES - 64, folder);
    if (file_read(&text, path, 1 << 16) < 0) err_clear();
    for (Bytes rest = {text.data, text.size}, line; bytes_next_line(&rest, &line);)
        for (int i = 0; i < 4; i++)
            if (line.size > strlen(files[i]) && !memcmp(line.data, files[i], strlen(files[i])))
                cached[i] = strtoull((const char *)line.data + strlen(files[i]), NULL, 10);
    buffer_close(&text);
    const uint64_t files_bytes = second ? cached[0] + cached[1] : cached[2] + cached[3];
    return used[0] > files_bytes ? used[0] - files_bytes : 0;
}

static void read_group(CgroupLimits *limits, const char *folder) {
    uint64_t cpu[2], memory[2], unused[2], cpus = limits->cpus;
    if (!read_numbers(folder, "cpu.max", cpu)) { // version 1
        read_numbers(folder, "cpu.cfs_period_us", unused);
        read_numbers(folder, "cpu.cfs_quota_us", cpu), cpu[1] = unused[0];
    }
    if (cpu[0] && cpu[1]) limit(&cpus, (cpu[0] + cpu[1] - 1) / cpu[1]);
    limits->cpus = (unsigned)cpus;
    if (!read_numbers(folder, "memory.max", memory)) read_numbers(folder, "memory.limit_in_bytes", memory);
    if (!memory[0] || memory[0] >= 1ull << 60) return; // version 1 writes "none" as a huge number
    const uint64_t used = used_memory(folder);
    limit(&limits->memory_bytes, memory[0]);
    limit(&limits->memory_free, memory[0] > used ? memory[0] - used : 1);
}

// The group `path` of a hierarchy mounted at `mount`, and the groups above it.
static void read_groups(CgroupLimits *limits, const char *mount, char *path) {
    char folder[PATH_MAX_BYTES];
    for (char *slash; *path; *slash = 0) {
        snprintf(folder, sizeof folder, "%.*s%.*s", PATH_MAX_BYTES / 2, mount, PATH_MAX_BYTES / 2 - 1, path);
        read_group(limits, folder);
        slash = strrchr(path, '/');
        if (!slash) break;
    }
    read_group(limits, mount);
}

// Whether `word` is in a list with commas; "" is in the empty list.
static bool list_has(const char *list, const char *word) {
    size_t length = strlen(word);
    for (;; list++) {
        size_t item = strcspn(list, ",");
        if (item == length && !memcmp(list, word, length)) return true;
        list += item;
        if (!*list) return false;
    }
}

CgroupLimits cgroup_limits_at(const char *self, const char *mount) {
    static const struct {
        const char *folder, *controller; // "": version 2
    } hierarchies[] = {{"", ""}, {"/unified", ""}, {"/cpu", "cpu"}, {"/cpu,cpuacct", "cpu"}, {"/memory", "memory"}};
    CgroupLimits limits = {0};
    Buffer text = {0};
    Error before;
    err_take(&before); // a cleanup may call this, too
    if (file_read(&text, self, 1 << 16) < 0) err_clear();
    buffer_add(&text, "", 1);
    for (char *line = (char *)text.data, *next; line && *line; line = next) { // "4:memory:/path", version 2: "0::/path"
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path = 0;
        for (size_t i = 0; i < sizeof hierarchies / sizeof *hierarchies; i++) {
            if (!list_has(controllers + 1, hierarchies[i].controller)) continue;
            char folder[PATH_MAX_BYTES], group[PATH_MAX_BYTES / 2];
            snprintf(folder, sizeof folder, "%.*s%s", PATH_MAX_BYTES - 16, mount, hierarchies[i].folder);
            snprintf(group, sizeof group, "%.*s", PATH_MAX_BYTES / 2 - 1, path + 1);
            read_groups(&limits, folder, group);
        }
    }
    buffer_close(&text);
    err_give(&before);
    return limits;
}

CgroupLimits cgroup_limits(void) { return cgroup_limits_at("/proc/self/cgroup", "/sys/fs/cgroup"); }
