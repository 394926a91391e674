// Tries the calls in a temporary folder.
#include "common/file/folder_probe.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 4096 };

typedef struct {
    const char *folder;
    char temp[PATH_MAX_BYTES], renamed[PATH_MAX_BYTES]; // the temporary folder, and its second name
    char file[PATH_MAX_BYTES];
    Buffer *lacks;
} Probe;

static void add_lack(Probe *probe, const char *what, const char *instead) {
    buffer_print(probe->lacks, "%sno %s (%s): %s", probe->lacks->size ? "; " : "", what, strerror(errno), instead);
}

static int compare(Probe *probe, const char *path, const uint8_t bytes[BYTES]) {
    Bytes map;
    if (file_map(&map, path) < 0) return -1;
    const bool is_same = map.size == BYTES && !memcmp(map.data, bytes, BYTES), is_empty = !map.size;
    file_unmap(&map);
    if (is_same) return 0;
    if (!is_empty || path == probe->file)
        return fail(EX_IO, "'%s': a file reads other than it was written", probe->folder);
    buffer_print(probe->lacks,
                 "%sthe files of a renamed folder read as empty at first: a run that is started again at "
                 "once ends with 74",
                 probe->lacks->size ? "; " : "");
    return 0;
}

static void try_parts(Probe *probe, int parts) {
    char path[PATH_MAX_BYTES];
    const int fd = file_open(probe->file);
    void *map = fd < 0 ? NULL : mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED)
        add_lack(probe, "maps of files", "whole files are read into memory");
    else if (map)
        munmap(map, BYTES);
    if (parts & PROBE_LINKS && link(probe->file, path_join(path, probe->temp, "link")))
        add_lack(probe, "hard links", "files are copied");
    if (parts & PROBE_LOCKS && fd >= 0 && flock(fd, LOCK_EX | LOCK_NB))
        add_lack(probe, "locks", "start no second run there");
    if (fd >= 0) close(fd);
}

static int try_all(Probe *probe, int parts) {
    uint8_t bytes[BYTES];
    char path[PATH_MAX_BYTES];
    for (int i = 0; i < BYTES; i++) bytes[i] = (uint8_t)(i * 7 + 1);
    if (file_write(path_join(probe->file, probe->temp, "file"), (Bytes){bytes, BYTES}) < 0) return -1;
    if (compare(probe, probe->file, bytes) < 0) return -1;
    try_parts(probe, parts);
    if (rename(probe->temp, probe->renamed)) return fail_errno("cannot rename '%s'", probe->temp);
    return compare(probe, path_join(path, probe->renamed, "file"), bytes);
}

static bool is_full(void) { return strstr(err_text(), strerror(ENOSPC)) || strstr(err_text(), strerror(EDQUOT)); }

int folder_probe(const char *folder, int parts, Buffer *lacks) {
    Probe probe = {.folder = folder, .lacks = lacks};
    char path[PATH_MAX_BYTES];
    sigset_t ends, before; // a signal that ends the program waits until nothing is left
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT), sigaddset(&ends, SIGTERM), sigaddset(&ends, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    int status = temp_create(probe.temp, path_join(path, folder, "probe"), true);
    if (status < 0)
        fail_create(probe.temp);
    else {
        path_join(probe.renamed, folder, "%s-2", strrchr(probe.temp, '/') + 1);
        status = try_all(&probe, parts);
        dir_remove(probe.temp);
        dir_remove(probe.renamed);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (lacks->size) buffer_add(lacks, "", 1), lacks->size--; // a text
    if (status < 0 && is_full()) return err_clear(), 0;
    return status < 0 ? fail_in("'%s' cannot hold a run", folder) : 0;
}

int folder_check(const char *folder, int parts) {
    Buffer lacks = {0};
    const int result = folder_probe(folder, parts, &lacks);
    if (result == 0 && lacks.size) log_warn("'%s': %s", folder, (const char *)lacks.data);
    buffer_close(&lacks);
    return result;
}
