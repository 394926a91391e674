// For LD_PRELOAD: a full disk, on which the schedule has room for three bytes, and an end of the process before it can
// remove them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int left = 3;
static int is_schedule(int fd) {
    char link[40], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 8 && !strcmp(path + strlen(path) - 8, "schedule");
}
int fallocate(int fd, int mode, off_t offset, off_t size) { return errno = ENOSPC, -1; }
ssize_t write(int fd, const void *data, size_t size) {
    ssize_t (*next)(int, const void *, size_t) = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (!is_schedule(fd)) return next(fd, data, size);
    if (!left) return errno = ENOSPC, -1;
    left = 0;
    return next(fd, data, 3);
}
int ftruncate(int fd, off_t size) {
    return is_schedule(fd) ? kill(getpid(), SIGKILL) : (int)syscall(SYS_ftruncate, fd, size);
}
