// Files: maps, whole reads and writes, durable creation, locks.
#include "common/file/file.h"
#include "common/err.h"
#include "common/file/cleanup.h"
#include "common/file/mapguard.h"
#include "common/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITEBACK_BYTES = 8 << 20, COPY_BYTES = 1 << 20 };

int file_open(const char *path) { return (int)TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_CLOEXEC)); }

bool file_exists(const char *path) { return access(path, F_OK) == 0; }

int file_find(const char *path) {
    if (access(path, F_OK) == 0) return 1;
    return errno == ENOENT || errno == ENOTDIR ? 0 : fail_errno("cannot read '%s'", path);
}

int file_open_regular(const char *path, int flags) {
    const bool creates = flags & O_CREAT;
    int fd = (int)TEMP_FAILURE_RETRY(open(path, flags | O_NONBLOCK | O_CLOEXEC, 0666));
    struct stat st;
    if (fd < 0 && errno != ENXIO) return creates ? fail_create(path) : fail_errno("cannot open '%s'", path);
    const bool is_known = fd < 0 || fstat(fd, &st) == 0;
    if (fd >= 0 && is_known && S_ISREG(st.st_mode)) return fd;
    if (!is_known) fail_errno("cannot stat '%s'", path);
    if (fd >= 0) close(fd);
    return fail(creates ? EX_CREATE : EX_NOINPUT, "'%s' is not a regular file", path);
}

uint64_t file_modified_ns(const struct stat *st) {
    return (uint64_t)st->st_mtim.tv_sec * 1000000000 + (uint64_t)st->st_mtim.tv_nsec;
}

// A map of a copy in memory. It is a file, too, of which pages can be dropped (MADV_DONTNEED) and come back.
static void *map_copy(int fd, size_t size, const char *what) {
    void *data = MAP_FAILED;
    uint8_t *block = allocate_zeroed(1, COPY_BYTES);
    const int copy = memfd_create("copy", MFD_CLOEXEC);
    ssize_t got = copy < 0 ? fail_errno("no memory for a copy of '%s', which cannot be mapped", what) : 0;
    size_t done = 0;
    while (got >= 0 && done < size && (got = fd_read_at(fd, done, block, COPY_BYTES, what)) > 0) {
        if (fd_write(copy, block, (size_t)got, what) < 0) got = -1;
        done += (size_t)got;
    }
    if (got == 0 && done < size) got = fail(EX_IO, "cannot read '%s': it became shorter meanwhile", what);
    if (got >= 0) data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, copy, 0);
    if (got >= 0 && data == MAP_FAILED) fail_errno("cannot map a copy of '%s'", what);
    if (copy >= 0) close(copy);
    free(block);
    return data;
}

int fd_map(Bytes *map, int fd, const char *what) {
    struct stat st;
    *map = (Bytes){0};
    mapguard_install();
    if (fstat(fd, &st)) return fail_errno("cannot stat '%s'", what);
    const size_t size = (size_t)st.st_size;
    if (!size) return 0;
    void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED && errno == ENOMEM) return fail_errno("cannot map '%s'", what);
    if (data == MAP_FAILED) data = map_copy(fd, size, what);
    if (data == MAP_FAILED) return -1;
    *map = (Bytes){data, size};
    return 0;
}

int file_map(Bytes *map, const char *path) {
    *map = (Bytes){0};
    int fd = file_open_regular(path, O_RDONLY);
    if (fd < 0) return -1;
    const int status = fd_map(map, fd, path);
    close(fd); // the mapping keeps the file open
    return status;
}

void file_unmap(Bytes *map) {
    if (map->data) munmap((void *)(uintptr_t)map->data, map->size);
    *map = (Bytes){0};
}

int fd_read_all(int fd, Buffer *out, size_t limit, const char *what) {
    int status = 0;
    size_t start = out->size;
    for (;;) {
        buffer_reserve(out, 65536);
        ssize_t got = fd_read(fd, out->data + out->size, 65536, what);
        if (got < 0) status = -1;
        if (got <= 0) break;
        out->size += (size_t)got;
        if (out->size - start > limit) {
            status = fail(EX_DATA, "'%s' is longer than %zu bytes", what, limit);
            break;
        }
    }
    return status;
}

int file_read(Buffer *out, const char *path, size_t limit) {
    int fd = file_open_regular(path, O_RDONLY);
    if (fd < 0) return -1;
    int status = fd_read_all(fd, out, limit, path);
    close(fd);
    return status;
}

int file_read_stream(Buffer *out, const char *path, size_t limit) {
    struct stat st;
    int fd = file_open(path);
    if (fd < 0) return fail_errno("cannot open '%s'", path);
    bool is_directory = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    int status = is_directory ? fail(EX_NOINPUT, "'%s' is a directory", path) : fd_read_all(fd, out, limit, path);
    close(fd);
    return status;
}

// offset NULL: from where the file stands.
static ssize_t read_whole(int fd, const uint64_t *offset, void *data, size_t size, const char *what) {
    size_t done = 0;
    while (done < size) {
        char *const to = (char *)data + done;
        const ssize_t got = offset ? pread(fd, to, size - done, (off_t)(*offset + done)) : read(fd, to, size - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno("cannot read '%s'", what);
        if (got == 0) break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

ssize_t fd_read(int fd, void *data, size_t size, const char *what) { return read_whole(fd, NULL, data, size, what); }

ssize_t fd_read_at(int fd, uint64_t offset, void *data, size_t size, const char *what) {
    return read_whole(fd, &offset, data, size, what);
}

int fd_write(int fd, const void *data, size_t size, const char *what) {
    size_t done = 0;
    while (done < size) {
        ssize_t put = write(fd, (const char *)data + done, size - done);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return fail_errno("cannot write '%s'", what);
        done += (size_t)put;
    }
    return 0;
}

const char *path_join(char path[PATH_MAX_BYTES], const char *folder, const char *name, ...) {
    va_list arguments;
    int length = snprintf(path, PATH_MAX_BYTES, "%s/", folder);
    va_start(arguments, name);
    if (length < PATH_MAX_BYTES) length += vsnprintf(path + length, PATH_MAX_BYTES - (size_t)length, name, arguments);
    va_end(arguments);
    if (length >= PATH_MAX_BYTES) die(EX_CREATE, "path too long: '%.60s...'", folder);
    return path;
}

const char *path_split(const char *path, char directory[PATH_MAX_BYTES]) {
    const char *slash = strrchr(path, '/');
    if (!slash) {
        snprintf(directory, PATH_MAX_BYTES, ".");
        return path;
    }
    snprintf(directory, PATH_MAX_BYTES, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return slash + 1;
}

bool path_ends(const char *path, const char *extension) {
    const size_t length = strlen(path), end = strlen(extension);
    return length > end && !strcmp(path + length - end, extension);
}

int program_path(char path[PATH_MAX_BYTES], const char *name) {
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX_BYTES - 1);
    if (length < 0) return fail_errno("cannot read /proc/self/exe");
    path[length] = '\0';
    if (!name) return 0;
    char *last = strrchr(path, '/') + 1;
    const size_t room = PATH_MAX_BYTES - (size_t)(last - path);
    if ((size_t)snprintf(last, room, "%s", name) >= room) return fail(EX_NOINPUT, "the path of '%s' is too long", name);
    return 0;
}

int program_find(char path[PATH_MAX_BYTES], const char *name) {
    char installed[64];
    snprintf(installed, sizeof installed, "millrace-%s", name);
    if (program_path(path, installed) < 0) return -1;
    if (access(path, X_OK) == 0) return 0;
    if (program_path(path, name) < 0) return -1;
    if (access(path, X_OK) == 0) return 0;
    return fail(EX_NOINPUT, "no program '%s' or '%s': build or install all of millrace", installed, path);
}

// Processes of two containers may have the same pid. Then a random number is added.
int temp_create(char temp[PATH_MAX_BYTES], const char *path, bool directory) {
    char parent[PATH_MAX_BYTES];
    const char *name = path_split(path, parent);
    size_t length = (size_t)snprintf(temp, PATH_MAX_BYTES, "%s/.%s.tmp.%d", parent, name, (int)getpid());
    if (length >= PATH_MAX_BYTES) return errno = ENAMETOOLONG, -1;
    for (int attempt = 0; attempt < 16; attempt++) {
        int fd = directory
                     ? mkdir(temp, 0777)
                     : (int)TEMP_FAILURE_RETRY(open(temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
        unsigned number;
        if (fd >= 0 || errno != EEXIST || length + 10 >= PATH_MAX_BYTES) return fd;
        if (getrandom(&number, sizeof number, 0) < 0) return -1;
        snprintf(temp + length, PATH_MAX_BYTES - length, "-%08x", number);
    }
    return -1;
}

int newfile_open(NewFile *file, const char *path) {
    *file = (NewFile){.fd = -1};
    char directory[PATH_MAX_BYTES];
    struct stat old;
    if (strlen(path) >= sizeof file->path) return fail(EX_CREATE, "path too long: '%.60s...'", path);
    if (stat(path, &old) == 0 && !S_ISREG(old.st_mode)) // a device that the file would take the place of
        return fail(EX_CREATE, "cannot create '%s': it is a directory, device, pipe or socket", path);
    memcpy(file->path, path, strlen(path) + 1);
    file->fd = temp_create(file->temp, path, false);
    if (file->fd >= 0) {
        file->cleanup = cleanup_add(file->temp);
        return 0;
    }
    file->temp[0] = '\0';
    if (errno != ENOENT && errno != ENOTDIR) return fail_create(path);
    path_split(path, directory);
    return fail(EX_CREATE, "cannot create '%s': no directory '%s'", path, directory);
}

// The kernel begins to write each complete part to disk, so that the fsync at the end waits for the last one only.
int newfile_write(NewFile *file, const void *data, size_t size) {
    const uint64_t begun = file->written / WRITEBACK_BYTES * WRITEBACK_BYTES;
    if (fd_write(file->fd, data, size, file->path) < 0) return -1;
    file->written += size;
    if (file->written - begun >= WRITEBACK_BYTES)
        sync_file_range(file->fd, (off_t)begun, (off_t)(file->written - begun), SYNC_FILE_RANGE_WRITE);
    return 0;
}

int newfile_commit(NewFile *file) {
    char directory[PATH_MAX_BYTES];
    path_split(file->path, directory);
    int status = 0;
    // Do not retry a failed fsync: the kernel may have dropped the pages.
    if ((int)TEMP_FAILURE_RETRY(fsync(file->fd))) status = fail_errno("cannot write '%s' to disk", file->path);
    if (close(file->fd) && errno != EINTR && status == 0) status = fail_errno("cannot close '%s'", file->path);
    file->fd = -1;
    if (status == 0 && rename(file->temp, file->path)) status = fail_errno("cannot rename '%s'", file->path);
    if (status < 0) {
        newfile_abandon(file);
        return -1;
    }
    file->temp[0] = '\0';
    cleanup_drop(file->cleanup);
    return dir_sync(directory);
}

void newfile_abandon(NewFile *file) {
    if (!file->temp[0]) return;
    if (file->fd >= 0) close(file->fd);
    unlink(file->temp);
    cleanup_drop(file->cleanup);
    *file = (NewFile){.fd = -1};
}

int file_write(const char *path, Bytes bytes) {
    NewFile file = {0};
    char directory[PATH_MAX_BYTES];
    const char *name = path_split(path, directory);
    dir_sweep(directory, name);
    if (newfile_open(&file, path) < 0) return -1;
    if (newfile_write(&file, bytes.data, bytes.size) < 0) return newfile_abandon(&file), -1;
    return newfile_commit(&file);
}

int file_write_over(const char *path, Bytes bytes, size_t start) {
    char found[256] = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t length = fd < 0 ? 0 : read(fd, found, start < sizeof found ? start : sizeof found);
    if (fd >= 0) close(fd);
    if (length > 0 && memcmp(found, bytes.data, (size_t)length))
        return fail(EX_CREATE, "'%s' is another file: remove it, or choose another name", path);
    return file_write(path, bytes);
}

int file_share(const char *path, const char *other, Bytes bytes) {
    Buffer text = {0};
    const bool same = file_read(&text, other, bytes.size) == 0 && text.size == bytes.size &&
                      !memcmp(text.data, bytes.data, bytes.size);
    buffer_close(&text);
    err_clear(); // without the other file this one is written
    if (same && linkat(AT_FDCWD, other, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0) return 0;
    return file_write(path, bytes);
}

// Without its last component and the slashes around that.
static size_t parent_length(const char *path, size_t length) {
    while (length && path[length - 1] == '/') length--;
    while (length && path[length - 1] != '/') length--;
    while (length && path[length - 1] == '/') length--;
    return length;
}

size_t dir_existing(const char *path) {
    char part[PATH_MAX_BYTES];
    size_t length = (size_t)snprintf(part, sizeof part, "%s", path);
    if (length >= sizeof part) return length;
    while (length && access(part, F_OK)) part[length = parent_length(part, length)] = '\0';
    return length;
}

void dir_unmake(const char *path, size_t existing) {
    char part[PATH_MAX_BYTES];
    size_t length = (size_t)snprintf(part, sizeof part, "%s", path);
    while (length > existing && rmdir(part) == 0) part[length = parent_length(part, length)] = '\0';
}

int dir_make(const char *path) {
    char part[PATH_MAX_BYTES], parent[PATH_MAX_BYTES];
    int tries = 3; // another process may remove a parent that it has made
    size_t length = strlen(path);
    if (length >= sizeof part) return fail(EX_CREATE, "path too long: '%.60s...'", path);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) == 0) {
            path_split(part, parent);
            if (dir_sync(parent) < 0) return -1; // so that the new directory survives a power cut
            continue;
        }
        if (errno == EEXIST) continue;
        if (errno != ENOENT || !--tries) return fail_create(part);
        i = 0;
    }
    struct stat st;
    if (stat(path, &st)) return fail_create(path); // a link to nowhere
    return S_ISDIR(st.st_mode) ? 0 : fail(EX_CREATE, "'%s' is not a directory", path);
}

int dir_sync(const char *path) {
    int fd = (int)TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)), status = 0;
    if (fd < 0) return fail_errno("cannot open '%s'", path);
    if ((int)TEMP_FAILURE_RETRY(fsync(fd))) {
        static bool warned;
        if (errno != EINVAL && errno != ENOTSUP && errno != EBADF)
            status = fail_errno("cannot write '%s' to disk", path);
        else if (!warned) // CIFS and some FUSE file systems
            warned = true,
            log_warn("'%s': this file system cannot flush directories: files may be lost in a power cut", path);
    }
    close(fd);
    return status;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void dir_remove(const char *path) { nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

void dir_sweep(const char *path, const char *name) {
    DIR *directory = opendir(path);
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));) {
        const char *mark = strstr(entry->d_name, ".tmp.");
        if (entry->d_name[0] != '.' || !mark) continue;
        const size_t length = (size_t)(mark - entry->d_name - 1);
        if (name && (strlen(name) != length || memcmp(name, entry->d_name + 1, length))) continue;
        char *end, full[PATH_MAX_BYTES];
        long pid = strtol(mark + 5, &end, 10);
        if ((*end && *end != '-') || pid <= 0 || kill((pid_t)pid, 0) == 0 || errno != ESRCH) continue;
        if (snprintf(full, sizeof full, "%s/%s", path, entry->d_name) < (int)sizeof full) dir_remove(full);
    }
    closedir(directory);
}

int lock_take(Lock *lock, const char *path, const char *other) {
    char name[PATH_MAX_BYTES];
    if (snprintf(name, sizeof name, "%s/.lock", path) >= (int)sizeof name)
        return fail(EX_CREATE, "path too long: '%.60s...'", path);
    lock->fd = (int)TEMP_FAILURE_RETRY(open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (lock->fd < 0) return fail_create(name);
    bool locked = (int)TEMP_FAILURE_RETRY(flock(lock->fd, LOCK_EX | LOCK_NB)) == 0;
    if (!locked && (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK)) { // some network file systems
        log_warn("'%s': this file system has no locks: start no second run there", path);
        locked = true;
    }
    if (locked) {
        char pid[24];
        int length = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
        // The pid is only for the error message of other processes.
        if ((int)TEMP_FAILURE_RETRY(ftruncate(lock->fd, 0)) == 0 && pwrite(lock->fd, pid, (size_t)length, 0) == length)
            return 0;
        lock_drop(lock);
        return fail_errno("cannot write '%s'", name);
    }
    int error = errno;
    char holder[24] = {0};
    ssize_t got = pread(lock->fd, holder, sizeof holder - 1, 0);
    close(lock->fd), lock->fd = -1;
    if (error != EWOULDBLOCK) {
        errno = error;
        return fail_errno("cannot lock '%s'", name);
    }
    if (got > 0) holder[strcspn(holder, "\n")] = '\0';
    return fail(EX_CREATE, "'%s' is locked by pid %s: wait for it, or choose %s", path, got > 0 ? holder : "unknown",
                other);
}

int lock_check(const Lock *lock, const char *path) {
    char name[PATH_MAX_BYTES];
    struct stat held, found;
    path_join(name, path, ".lock");
    if (!lock || lock->fd <= 0 || fstat(lock->fd, &held) < 0) return 0;
    if (stat(name, &found) < 0 || (held.st_dev == found.st_dev && held.st_ino == found.st_ino)) return 0;
    return fail(EX_CREATE, "'%s' is no longer the directory in which this run began: it was moved, removed or replaced",
                path);
}

void lock_drop(Lock *lock) {
    // An empty file, so that two equal directories are equal. Removing it would let two processes hold locks on two
    // files.
    const int emptied = lock->fd > 0 ? ftruncate(lock->fd, 0) : 0;
    if (lock->fd > 0) close(lock->fd);
    (void)emptied; // the number of an ended process is harmless
    lock->fd = -1;
}
