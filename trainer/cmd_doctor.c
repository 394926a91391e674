// trainer doctor: what this machine has for a run, and what would stop one.
#include "common/cli/cli.h"
#include "common/err.h"
#include "common/log.h"
#include "common/machine/cgroup.h"
#include "common/machine/host_memory.h"
#include "common/machine/pool.h"
#include "trainer/plan/memory_plan.h"
#include "trainer/setup/loader_process.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zmq.h>

// Two checkpoints of GPT-2 124M with its optimizer state: the previous one is kept while the next is written.
#define DISK_BYTES   (2 * 1.5e9)
// The smallest demo with its libraries.
#define MEMORY_BYTES 1e9

typedef enum { FINE, WARNING, BLOCKED } Finding;

static const char *directory; // of a run

static Finding check_device(char *text, size_t size) {
    char why[256];
    const Backend *backend = backend_open(&(BackendChoice){.device = DEVICE_AUTO, .dtype = DTYPE_AUTO}, why);
    snprintf(text, size, "%s", backend ? why : err_text());
    if (!backend) return err_clear(), BLOCKED;
    const bool unused = backend->in_host_memory && (!access("/dev/nvidiactl", F_OK) || !access("/dev/dxg", F_OK));
    backend->close();
    return unused ? WARNING : FINE;
}

static Finding check_cores(char *text, size_t size) {
    const CgroupLimits limits = cgroup_limits();
    snprintf(text, size, "%u of %ld", pool_cores(), sysconf(_SC_NPROCESSORS_ONLN));
    if (limits.cpus) snprintf(text + strlen(text), size - strlen(text), " (control group: %u)", limits.cpus);
    return FINE;
}

static Finding check_memory(char *text, size_t size) {
    const uint64_t bytes = host_memory_free();
    char number[16];
    snprintf(text, size, "%s free for a run", human_bytes(number, (double)bytes));
    return (double)bytes < MEMORY_BYTES ? WARNING : FINE;
}

static Finding check_disk(char *text, size_t size) {
    struct statvfs disk;
    char number[16];
    if (statvfs(directory, &disk) < 0) return snprintf(text, size, "'%s': %s", directory, strerror(errno)), BLOCKED;
    const double bytes = (double)disk.f_bavail * (double)disk.f_frsize;
    snprintf(text, size, "%s free in '%s'%s", human_bytes(number, bytes), directory,
             access(directory, W_OK) == 0 ? "" : ", which you cannot write");
    if (access(directory, W_OK) < 0) return BLOCKED;
    if (bytes >= DISK_BYTES) return FINE;
    snprintf(text + strlen(text), size - strlen(text), "; two checkpoints of GPT-2 124M take %s",
             human_bytes(number, DISK_BYTES));
    return WARNING;
}

// The limits of the shell (ulimit) that end runs, each with the least that any run needs.
static Finding check_limits(char *text, size_t size) {
    static const struct {
        const char *name, *flag;
        int resource;
        rlim_t least;
    } rows[] = {
        {"file size", "-f", RLIMIT_FSIZE, (rlim_t)DISK_BYTES / 2},
        {"address space", "-v", RLIMIT_AS, (rlim_t)MEMORY_BYTES},
        {"stack", "-s", RLIMIT_STACK, 1 << 20},
        {"open files", "-n", RLIMIT_NOFILE, 64},
        {"processes", "-u", RLIMIT_NPROC, 64},
    };
    Finding worst = FINE;
    *text = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t)rows[i].resource, &limit) < 0 || limit.rlim_cur >= rows[i].least) continue;
        snprintf(text + strlen(text), size - strlen(text), "%s%s %llu (ulimit %s), a run may need %llu",
                 worst ? "; " : "", rows[i].name, (unsigned long long)limit.rlim_cur, rows[i].flag,
                 (unsigned long long)rows[i].least);
        worst = WARNING;
    }
    if (!worst) snprintf(text, size, "high enough");
    return worst;
}

static Finding check_loader(char *text, size_t size) {
    char path[PATH_MAX_BYTES];
    int major, minor, patch;
    zmq_version(&major, &minor, &patch);
    if (loader_program(path) == 0)
        return snprintf(text, size, "'%s', ZeroMQ %d.%d.%d", path, major, minor, patch), FINE;
    snprintf(text, size, "%s: a run needs loader= with the endpoint of a running one", err_text());
    err_clear();
    return WARNING;
}

static const struct {
    const char *name;
    Finding (*check)(char *text, size_t size);
} checks[] = {
    {"device", check_device}, {"cores", check_cores},   {"memory", check_memory},
    {"disk", check_disk},     {"limits", check_limits}, {"loader", check_loader},
};

static int run(int count, char **arguments) {
    static const char *const words[] = {"ok", "warning", "error"};
    if (count > 1) return fail(EX_USAGE, "expected one directory at most");
    directory = count ? arguments[0] : ".";
    Finding worst = FINE;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        char text[PATH_MAX_BYTES + 256];
        Finding found = checks[i].check(text, sizeof text);
        printf("%-8s %-7s %s\n", words[found], checks[i].name, text);
        if (found > worst) worst = found;
    }
    return worst == BLOCKED ? EX_NO : EX_DONE;
}

const Command trainer_doctor = {
    "doctor", "[DIR]", "print what this machine has for a run in DIR; exit code 1 if something would stop it",
    NULL,     run,     NULL};
