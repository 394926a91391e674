// For LD_PRELOAD: calls that a file system refuses. REFUSE names them, with the error and a part of the path, as in
// "open,read:116:ckpt-00000020/model mmap:19:"; the path of a descriptor is the one it was opened by.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int refuses(const char *call, const char *path) {
    char rules[4096], *save = NULL, *inner = NULL;
    const char *given = getenv("REFUSE");
    snprintf(rules, sizeof rules, "%s", given ? given : "");
    for (char *rule = strtok_r(rules, " ", &save); rule; rule = strtok_r(NULL, " ", &save)) {
        char *error = strchr(rule, ':'), *part = strchr(error + 1, ':');
        *error++ = *part++ = 0;
        if (path && !strstr(path, part)) continue;
        for (char *name = strtok_r(rule, ",", &inner); name; name = strtok_r(NULL, ",", &inner))
            if (!strcmp(name, call)) return errno = atoi(error), 1;
    }
    return 0;
}
static int refuses_fd(const char *call, int fd) {
    char link[40], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return fd >= 0 && readlink(link, path, sizeof path - 1) > 0 && refuses(call, path);
}

int open(const char *path, int flags, ...) {
    const int mode = flags & (O_CREAT | O_TMPFILE) ? 0600 : 0;
    return refuses(flags & O_ACCMODE ? "create" : "open", path) ? -1 : NEXT(open)(path, flags, mode);
}
ssize_t read(int fd, void *data, size_t size) { return refuses_fd("read", fd) ? -1 : NEXT(read)(fd, data, size); }
ssize_t pread(int fd, void *data, size_t size, off_t at) {
    return refuses_fd("read", fd) ? -1 : NEXT(pread)(fd, data, size, at);
}
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    const int shared = flags & MAP_SHARED && refuses_fd("mmap_shared", fd);
    return shared || refuses_fd("mmap", fd) ? MAP_FAILED : NEXT(mmap)(at, size, protection, flags, fd, offset);
}
int fstat(int fd, struct stat *found) { return refuses_fd("fstat", fd) ? -1 : NEXT(fstat)(fd, found); }
int stat(const char *path, struct stat *found) { return refuses("stat", path) ? -1 : NEXT(stat)(path, found); }
int access(const char *path, int mode) { return refuses("access", path) ? -1 : NEXT(access)(path, mode); }
DIR *opendir(const char *path) { return refuses("opendir", path) ? NULL : NEXT(opendir)(path); }
int link(const char *from, const char *to) { return refuses("link", to) ? -1 : NEXT(link)(from, to); }
int linkat(int from, const char *path, int folder, const char *to, int flags) {
    return refuses("link", to) ? -1 : NEXT(linkat)(from, path, folder, to, flags);
}
int rename(const char *from, const char *to) { return refuses("rename", to) ? -1 : NEXT(rename)(from, to); }
int flock(int fd, int operation) { return refuses_fd("flock", fd) ? -1 : NEXT(flock)(fd, operation); }
int fsync(int fd) { return refuses_fd("fsync", fd) ? -1 : NEXT(fsync)(fd); }
