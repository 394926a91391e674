// Files by URL as mapped memory.
#include "remote/url_map.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/spool.h"
#include "common/log.h"
#include "remote/remote_list.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    PART_NAME_BYTES = 32 + 5, // of HASH.part
    GRANULE_BYTES = 128 << 10,
    RUN_GRANULES = 16, // of one request
    RUNS = 8,          // side by side
    AHEAD_MAX = 64     // granules that are read ahead of a reader that advances
};

typedef struct {
    uint8_t present, used; // used: since the hand of the clock passed
    uint16_t holds;
} Granule;

struct UrlFile {
    struct UrlFile *next;
    unsigned users;
    bool listed; // in maps.files
    char *name;
    char path[64]; // in the folder of the cache
    RemoteObject object;
    int fd;
    Bytes map;
    bool is_private; // the map: the file is taken for empty, since holes may not be told from bytes
    Granule *granules;
    size_t count;
    size_t expected, ahead; // the granule at which a reader that advances continues
};

static struct {
    const UrlMapOptions *options;
    Remote *remote;
    pthread_mutex_t network; // `remote`, the objects and the descriptors for writing
    pthread_mutex_t table;   // all below, and the granules
    UrlFile *files, *hand;
    size_t hand_granule;
    uint64_t bytes, limit; // in the cache
    bool full_logged;
    Lock lock;
    atomic_bool stopped;
} maps = {.network = PTHREAD_MUTEX_INITIALIZER, .table = PTHREAD_MUTEX_INITIALIZER, .limit = UINT64_MAX};

void url_map_enable(const UrlMapOptions *options) { maps.options = options; }

bool url_map_takes(const char *path) { return maps.options && remote_is_url(path); }

void url_map_stop(void) {
    atomic_store(&maps.stopped, true);
    transfers_stop();
}

int url_map_open_cache(void) {
    struct statvfs disk;
    const char *cache = maps.options->cache;
    if (dir_make(cache) < 0 || lock_take(&maps.lock, cache, "another --disk-cache") < 0) return -1;
    if (statvfs(cache, &disk)) return fail_errno("cannot stat the disk of '%s'", cache);
    maps.limit = maps.options->cache_bytes ? maps.options->cache_bytes : (uint64_t)disk.f_bavail * disk.f_frsize / 2;
    return 0;
}

// --- granules

static uint64_t granule_bytes(const UrlFile *file, size_t number) {
    const uint64_t begin = (uint64_t)number * GRANULE_BYTES, left = file->map.size - begin;
    return left < GRANULE_BYTES ? left : GRANULE_BYTES;
}

typedef struct {
    size_t begin, end;
} Span;

static Span span_of(const UrlFile *file, uint64_t offset, uint64_t size) {
    if (offset >= file->map.size || !size) return (Span){0, 0};
    if (size > file->map.size - offset) size = file->map.size - offset;
    return (Span){(size_t)(offset / GRANULE_BYTES), (size_t)((offset + size - 1) / GRANULE_BYTES) + 1};
}

static void remove_granule(UrlFile *file, size_t number) {
    const uint64_t begin = (uint64_t)number * GRANULE_BYTES, bytes = granule_bytes(file, number);
    fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin, (off_t)bytes);
    file->granules[number].present = 0;
    maps.bytes -= bytes;
}

// Moves the hand of the clock to the next granule; false without any file.
static bool advance_hand(void) {
    if (!maps.hand || ++maps.hand_granule >= maps.hand->count) {
        maps.hand = maps.hand && maps.hand->next ? maps.hand->next : maps.files;
        maps.hand_granule = 0;
    }
    return maps.hand;
}

// Removes granules until `more` bytes fit below `limit`. False when the granules that are held leave no room.
static bool make_room(uint64_t more, uint64_t limit) {
    uint64_t steps = 0, granules = 0;
    for (const UrlFile *file = maps.files; file; file = file->next) granules += file->count;
    while (maps.bytes + more > limit || maps.bytes + more < more) {
        if (steps++ > 2 * granules + 2 || !advance_hand()) return false;
        if (!maps.hand->count) continue;
        Granule *granule = &maps.hand->granules[maps.hand_granule];
        if (granule->present && !granule->holds && !granule->used) remove_granule(maps.hand, maps.hand_granule);
        granule->used = 0;
    }
    return true;
}

// --- requests

typedef struct {
    size_t begin, end; // granules
    Transfer transfer;
} UrlRequest;

// Waits for a request. While a server waits, so does its trainer: the request is repeated without end.
static int wait_for(Transfer *transfer) {
    for (;;) {
        if (transfer_wait(transfer) == 0) return 0;
        if (!maps.options->is_server || err_code() != EX_IO || atomic_load(&maps.stopped)) return -1;
        err_clear();
        const Transfer again = {
            .object = transfer->object, .begin = transfer->begin, .end = transfer->end, .to = transfer->to};
        transfer_stop(transfer);
        *transfer = again;
        transfer_start(maps.remote, transfer);
    }
}

// Removes the granules used least from a full disk, and keeps the cache at the size that it has then. False when
// nothing can be removed.
static bool make_room_on_disk(uint64_t wanted) {
    pthread_mutex_lock(&maps.table);
    const uint64_t before = maps.bytes;
    make_room(0, before > wanted ? before - wanted : 0);
    const bool has_room = maps.bytes < before;
    if (has_room && maps.limit > before) maps.limit = before;
    if (has_room && !maps.full_logged)
        log_warn("the disk of '%s' is full: the cache keeps to %" PRIu64 " MiB", maps.options->cache, before >> 20);
    maps.full_logged |= has_room;
    pthread_mutex_unlock(&maps.table);
    return has_room;
}

static int write_run(UrlFile *file, const UrlRequest *run) {
    const uint8_t *data = run->transfer.to;
    for (uint64_t at = run->transfer.begin; at < run->transfer.end;) {
        const ssize_t put = pwrite(file->fd, data, run->transfer.end - at, (off_t)at);
        if (put > 0) data += put, at += (uint64_t)put;
        if (put > 0 || (put < 0 && errno == EINTR)) continue;
        const int error = put < 0 ? errno : ENOSPC;
        if (maps.options->cache && (error == ENOSPC || error == EDQUOT) &&
            make_room_on_disk(2 * (run->transfer.end - at)))
            continue;
        fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)run->transfer.begin,
                  (off_t)(run->transfer.end - run->transfer.begin));
        errno = error;
        return fail_errno("cannot write %s of '%s'", maps.options->cache ? "the cache" : "a copy (TMPDIR)", file->name);
    }
    return 0;
}

static int end_run(UrlFile *file, UrlRequest *run) {
    if (!run->transfer.to) return 0;
    int status = wait_for(&run->transfer);
    if (status == 0) status = write_run(file, run);
    pthread_mutex_lock(&maps.table);
    for (size_t i = run->begin; status == 0 && i < run->end; i++) {
        file->granules[i].present = file->granules[i].used = 1;
        maps.bytes += granule_bytes(file, i);
    }
    pthread_mutex_unlock(&maps.table);
    return status;
}

// The next missing granules of [*at, end), as many as a request has: some of those before `needed`, or some of the
// others.
static bool next_run(UrlFile *file, size_t *at, size_t needed, size_t end, UrlRequest *run) {
    if (*at < needed) end = needed;
    while (*at < end && file->granules[*at].present) ++*at;
    run->begin = *at;
    while (*at < end && *at - run->begin < RUN_GRANULES && !file->granules[*at].present) ++*at;
    run->end = *at;
    return run->begin < run->end;
}

// Requests the missing granules; the ones before `needed` have to fit.
static int request_missing(UrlFile *file, size_t begin, size_t needed, size_t end) {
    UrlRequest *runs = allocate_zeroed(RUNS, sizeof *runs);
    uint8_t *bytes = NULL;
    int status = 0;
    size_t at = begin;
    while (status == 0 && at < end) {
        size_t count = 0;
        uint64_t missing = 0;
        pthread_mutex_lock(&maps.table);
        while (count < RUNS && at < end) {
            if (!next_run(file, &at, needed, end, &runs[count])) continue;
            missing += (uint64_t)(runs[count].end - runs[count].begin) * GRANULE_BYTES;
            count++;
        }
        const bool fits = make_room(missing, maps.limit);
        pthread_mutex_unlock(&maps.table);
        if (!fits && end > needed) { // reading ahead is not worth it
            end = needed, at = runs[0].begin;
            continue;
        }
        if (!fits)
            status = fail(EX_IO, "the cache '%s' is too small for what is being read: raise --disk-cache-size",
                          maps.options->cache);
        if (count && !bytes) bytes = allocate_zeroed(RUNS * RUN_GRANULES, GRANULE_BYTES);
        for (size_t i = 0; status == 0 && i < count; i++) {
            const uint64_t first = (uint64_t)runs[i].begin * GRANULE_BYTES;
            const uint64_t last = (uint64_t)(runs[i].end - 1) * GRANULE_BYTES + granule_bytes(file, runs[i].end - 1);
            runs[i].transfer = (Transfer){
                .object = &file->object, .begin = first, .end = last, .to = bytes + i * RUN_GRANULES * GRANULE_BYTES};
            transfer_start(maps.remote, &runs[i].transfer);
        }
        for (size_t i = 0; i < count; i++) {
            if (status == 0) status = end_run(file, &runs[i]);
            transfer_stop(&runs[i].transfer);
            if (status < 0 && runs[i].begin >= needed) { // whoever needs it will name the error
                err_clear();
                status = 0, end = at;
            }
        }
    }
    free(bytes);
    free(runs);
    return status;
}

// Holds the granules if all are there.
static bool hold_present(UrlFile *file, Span span) {
    bool present = true;
    pthread_mutex_lock(&maps.table);
    for (size_t i = span.begin; i < span.end; i++) present &= file->granules[i].present;
    for (size_t i = span.begin; present && i < span.end; i++) file->granules[i].holds++, file->granules[i].used = 1;
    pthread_mutex_unlock(&maps.table);
    return present;
}

int url_map_hold(UrlFile *file, uint64_t offset, uint64_t size) {
    const Span span = span_of(file, offset, size);
    if (hold_present(file, span)) return 0;
    int status = 0;
    pthread_mutex_lock(&maps.network);
    const bool advances = span.begin == file->expected || span.begin + 1 == file->expected;
    file->ahead = !advances ? 0 : file->ahead * 2 + 1 < AHEAD_MAX ? file->ahead * 2 + 1 : AHEAD_MAX;
    size_t end = span.end + file->ahead;
    if (end > file->count) end = file->count;
    // Granules may have been removed between the request and the hold; a few times are more than enough.
    for (int tries = 0; status == 0 && !hold_present(file, span); tries++)
        status = tries < 8 ? request_missing(file, span.begin, span.end, end)
                           : fail(EX_IO, "the cache '%s' is too small", maps.options->cache);
    file->expected = end;
    pthread_mutex_unlock(&maps.network);
    return status;
}

void url_map_release(UrlFile *file, uint64_t offset, uint64_t size) {
    const Span span = span_of(file, offset, size);
    pthread_mutex_lock(&maps.table);
    for (size_t i = span.begin; i < span.end; i++) file->granules[i].holds--;
    pthread_mutex_unlock(&maps.table);
}

void url_map_forget(UrlFile *file, uint64_t offset, uint64_t size) {
    const Span span = span_of(file, offset, size);
    pthread_mutex_lock(&maps.table);
    for (size_t i = span.begin; i < span.end; i++)
        if (file->granules[i].present) file->granules[i].present = 0, maps.bytes -= granule_bytes(file, i);
    pthread_mutex_unlock(&maps.table);
}

// --- opening

static int create_file(UrlFile *file, uint64_t size) {
    char path[PATH_MAX_BYTES];
    const char *cache = maps.options->cache;
    struct stat st;
    if (!cache) {
        file->fd = spool_create(NULL, "a file by URL");
    } else {
        if (snprintf(path, sizeof path, "%s/%s", cache, file->path) >= (int)sizeof path)
            return fail(EX_CREATE, "path too long: '%.60s...'", cache);
        file->fd = file_open_regular(path, O_RDWR | O_CREAT);
    }
    if (file->fd < 0) return -1;
    if (fstat(file->fd, &st)) return fail_errno("cannot stat '%s'", cache);
    const bool other = (uint64_t)st.st_size != size;
    if (other && (ftruncate(file->fd, 0) || ftruncate(file->fd, (off_t)size)))
        return fail_errno("cannot set the size of a file in '%s'", cache ? cache : "TMPDIR");
    if (!size) return 0;
    void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, file->fd, 0);
    // FUSE with direct I/O refuses shared maps. A page of a private one is that of the file until it is read first:
    // nothing may read it ahead, before its granule is there.
    file->is_private = data == MAP_FAILED;
    if (file->is_private) data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file->fd, 0);
    if (data == MAP_FAILED)
        return fail_errno("cannot map a file in '%s' (%s)", cache ? cache : "TMPDIR",
                          cache ? "choose another --disk-cache" : "set TMPDIR to another folder");
    if (file->is_private) madvise(data, size, MADV_RANDOM);
    file->map = (Bytes){data, size};
    return 0;
}

// Finds the granules that an earlier process has left in a file of the cache.
static void find_present(UrlFile *file) {
    off_t data = 0, hole = 0;
    const off_t size = (off_t)file->map.size;
    while ((data = lseek(file->fd, hole, SEEK_DATA)) >= 0 && data < size) {
        hole = lseek(file->fd, data, SEEK_HOLE);
        if (hole < 0) return;
        size_t i = ((size_t)data + GRANULE_BYTES - 1) / GRANULE_BYTES;
        for (; i < file->count && (off_t)((uint64_t)i * GRANULE_BYTES + granule_bytes(file, i)) <= hole; i++) {
            file->granules[i].present = 1;
            maps.bytes += granule_bytes(file, i);
        }
    }
}

static void unlink_cached(const char *name) {
    char path[PATH_MAX_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", maps.options->cache, name) < (int)sizeof path) unlink(path);
}

void url_map_sweep_cache(void) {
    DIR *folder = opendir(maps.options->cache);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const UrlFile *file = maps.files;
        const size_t size = strlen(entry->d_name);
        while (file && strcmp(file->path, entry->d_name) != 0) file = file->next;
        if (!file && size == PART_NAME_BYTES && !strcmp(entry->d_name + size - 5, ".part"))
            unlink_cached(entry->d_name);
    }
    if (folder) closedir(folder);
}

void url_map_close(UrlFile *file, bool unmap) {
    UrlFile **at = &maps.files;
    if (!file) return;
    pthread_mutex_lock(&maps.table);
    if (file->users && --file->users) {
        pthread_mutex_unlock(&maps.table);
        return;
    }
    while (*at && *at != file) at = &(*at)->next;
    if (*at) *at = file->next;
    if (maps.hand == file) maps.hand = NULL;
    for (size_t i = 0; i < file->count; i++)
        if (file->granules[i].present) maps.bytes -= granule_bytes(file, i);
    pthread_mutex_unlock(&maps.table);
    if (maps.options->cache && *file->path && !atomic_load(&maps.stopped)) unlink_cached(file->path);
    if (unmap) file_unmap(&file->map);
    if (file->fd >= 0) close(file->fd);
    object_close(&file->object);
    free(file->granules);
    free(file->name);
    free(file);
}

static void set_cache_path(UrlFile *file, const RemoteEntry *entry) {
    Buffer key = {0};
    buffer_print(&key, "%s%c%s%c", entry->name, 0, entry->validator, 0);
    const XXH128_hash_t hash = XXH3_128bits(key.data, key.size);
    buffer_close(&key);
    snprintf(file->path, sizeof file->path, "%016" PRIx64 "%016" PRIx64 ".part", (uint64_t)hash.high64,
             (uint64_t)hash.low64);
}

// The same file of the cache, open already.
static UrlFile *find_open(const UrlFile *wanted, uint64_t size) {
    UrlFile *file = maps.options->cache ? maps.files : NULL;
    while (file && (strcmp(file->path, wanted->path) != 0 || file->map.size != size)) file = file->next;
    return file;
}

static UrlFile *open_locked(const char *url) {
    RemoteList list = {0};
    UrlFile *open = NULL, *file = allocate_zeroed(1, sizeof *file);
    file->fd = -1;
    if (!maps.remote) maps.remote = remote_open(maps.options->remote, url);
    if (maps.options->is_server && !maps.options->cache)
        fail(EX_USAGE, "'%s' is served with --disk-cache DIR, where frames are kept", url);
    int status = maps.remote && !err_code() ? remote_list_open(&list, maps.remote, &url, 1) : -1;
    if (status == 0 && list.arguments[0].folder_length) status = fail(EX_NOINPUT, "'%s' is a folder", url);
    if (status == 0) {
        const RemoteEntry *entry = list.arguments[0].entries;
        file->name = allocate_text(entry->name, strlen(entry->name));
        const RemoteEntry kept = {file->name, entry->query, entry->validator, entry->size};
        set_cache_path(file, entry);
        pthread_mutex_lock(&maps.table);
        open = find_open(file, entry->size);
        if (open) open->users++;
        pthread_mutex_unlock(&maps.table);
        status = open ? 0 : remote_entry_object(maps.remote, &kept, &file->object);
        if (status == 0 && file->object.in_order)
            status =
                fail(EX_DATA, "'%s': the server does not serve ranges, which datasets need: download it first", url);
        if (status == 0 && !open) status = create_file(file, entry->size);
    }
    remote_list_close(&list);
    if (status < 0 || open) {
        *file->path = '\0';
        url_map_close(file, true);
        return open;
    }
    file->users = 1;
    file->count = (file->map.size + GRANULE_BYTES - 1) / GRANULE_BYTES;
    file->granules = allocate_zeroed(file->count + 1, sizeof *file->granules);
    file->expected = SIZE_MAX;
    return file;
}

UrlFile *url_map_open(const char *url, Bytes *map) {
    pthread_mutex_lock(&maps.network);
    UrlFile *file = open_locked(url);
    pthread_mutex_unlock(&maps.network);
    if (!file) return NULL;
    pthread_mutex_lock(&maps.table);
    if (file->users == 1 && !file->listed) {
        if (maps.options->cache && !file->is_private) find_present(file);
        file->listed = true, file->next = maps.files, maps.files = file;
        make_room(0, maps.limit);
    }
    pthread_mutex_unlock(&maps.table);
    *map = file->map;
    return file;
}

// ---- whole files

bool url_map_file_exists(const char *path) {
    Bytes map;
    if (!url_map_takes(path)) return file_exists(path);
    UrlFile *file = url_map_open(path, &map);
    if (!file && err_code() == EX_NOINPUT) err_clear();
    if (file) url_map_close(file, true);
    return file;
}

int url_map_file(Bytes *map, const char *path) {
    if (!url_map_takes(path)) return input_map(map, path);
    UrlFile *file = url_map_open(path, map);
    const int status = file ? url_map_hold(file, 0, map->size) : -1;
    if (file) url_map_close(file, status < 0);
    if (status < 0) *map = (Bytes){0};
    return status;
}

int url_map_read(Buffer *out, const char *path, size_t limit) {
    Bytes map;
    if (!url_map_takes(path)) return file_read(out, path, limit);
    if (url_map_file(&map, path) < 0) return -1;
    const int status = map.size <= limit ? 0 : fail(EX_DATA, "'%s' is longer than %zu bytes", path, limit);
    if (status == 0 && map.size) buffer_add(out, map.data, map.size);
    file_unmap(&map);
    return status;
}
