// Temporary files, and the copy of standard input in one.
#include "common/file/spool.h"
#include "common/err.h"
#include "common/file/file.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int copy_to(int fd, Bytes head) {
    static const char name[] = "a copy of standard input (TMPDIR)";
    static uint8_t block[1 << 18];
    int status = fd_write(fd, head.data, head.size, name);
    while (status == 0) {
        ssize_t got = fd_read(STDIN_FILENO, block, sizeof block, "standard input");
        if (got <= 0) return got < 0 ? -1 : 0;
        status = fd_write(fd, block, (size_t)got, name);
    }
    return status;
}

int spool_create(const char *folder, const char *what) {
    const char *advice = folder ? "" : " (set TMPDIR)";
    char name[PATH_MAX_BYTES];
    if (!folder) folder = getenv("TMPDIR");
    if (!folder || !*folder) folder = "/tmp";
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    // a file system without O_TMPFILE
    if (snprintf(name, sizeof name, "%s/shard.XXXXXX", folder) >= (int)sizeof name)
        return fail(EX_CREATE, "path too long: '%.60s...'%s", folder, advice);
    fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0)
        return fail(EX_CREATE, "cannot create '%s' for a copy of %s: %s%s", name, what, strerror(errno), advice);
    unlink(name);
    return fd;
}

static int spool(Bytes head) {
    struct stat st;
    if (fstat(STDIN_FILENO, &st)) return fail_errno("cannot read standard input");
    if (S_ISREG(st.st_mode) && lseek(STDIN_FILENO, 0, SEEK_CUR) == (off_t)head.size)
        return lseek(STDIN_FILENO, 0, SEEK_SET) < 0 ? fail_errno("cannot seek in standard input") : 0;

    int fd = spool_create(NULL, "standard input");
    if (fd < 0) return -1;
    int status = copy_to(fd, head);
    if (status == 0 && (lseek(fd, 0, SEEK_SET) < 0 || dup2(fd, STDIN_FILENO) < 0))
        status = fail_errno("cannot use a copy as standard input");
    close(fd);
    return status;
}

int stdin_spool(Bytes head) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    int status = spool(head);
    pthread_mutex_unlock(&lock);
    return status;
}

int input_map(Bytes *map, const char *path) {
    if (strcmp(path, "-")) return file_map(map, path);
    return stdin_spool((Bytes){0}) < 0 ? -1 : file_map(map, "/dev/stdin");
}
