// For LD_PRELOAD: FREE_MB are free on this machine, and a tenth less from the second look on.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int open(const char *path, int flags, ...) {
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    static int looks;
    if (strcmp(path, "/proc/meminfo")) return next(path, flags, 0600);
    FILE *file = fopen("meminfo", "w");
    fprintf(file, "MemAvailable: %ld kB\n", atol(getenv("FREE_MB")) * 1024 * (looks++ ? 9 : 10) / 10);
    fclose(file);
    return next("meminfo", flags);
}
