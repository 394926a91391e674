// For LD_PRELOAD: FREE_MB are free on this machine, and a tenth less from the second look on. Each look has its own
// file, since processes that write one find it empty.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int open(const char *path, int flags, ...) {
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    static int looks;
    if (strcmp(path, "/proc/meminfo")) return next(path, flags, 0600);
    const int file = memfd_create("meminfo", MFD_CLOEXEC);
    dprintf(file, "MemAvailable: %ld kB\n", atol(getenv("FREE_MB")) * 1024 * (looks++ ? 9 : 10) / 10);
    lseek(file, 0, SEEK_SET);
    return file;
}
