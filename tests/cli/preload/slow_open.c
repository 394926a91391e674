// For LD_PRELOAD: while the file `slow` exists, opening `weights` waits.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
int open(const char *path, int flags, ...) {
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    while (!strcmp(path, "weights") && access("slow", F_OK) == 0)
        close(next("waits", O_WRONLY | O_CREAT, 0600)), usleep(1000);
    return next(path, flags, 0600);
}
