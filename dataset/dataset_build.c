// The states of a dataset directory: unfinished (.journal), finished (the manifest), being replaced (.new).
#include "dataset/dataset_build.h"
#include "common/err.h"
#include "common/file/folder_probe.h"
#include "common/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int join(char out[PATH_MAX_BYTES], const char *directory, const char *name) {
    if (snprintf(out, PATH_MAX_BYTES, "%s/%s", directory, name) < PATH_MAX_BYTES) return 0;
    return fail(EX_CREATE, "path too long: '%.60s...'", directory);
}

static bool exists(const char *directory, const char *name) {
    char path[PATH_MAX_BYTES];
    struct stat st;
    return snprintf(path, sizeof path, "%s/%s", directory, name) < (int)sizeof path && lstat(path, &st) == 0;
}

// What decides which files are removed: -1 when it cannot be known now.
static int check_known(const char *directory) {
    static const char *const names[] = {DATASET_MANIFEST, DATASET_JOURNAL, (".new/" DATASET_MANIFEST)};
    char path[PATH_MAX_BYTES];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (join(path, directory, names[i]) < 0 || file_find(path) < 0) return -1;
    return 0;
}

static int remove_file(const char *directory, const char *name) {
    char path[PATH_MAX_BYTES];
    if (join(path, directory, name) < 0) return -1;
    return unlink(path) == 0 || errno == ENOENT ? 0 : fail_errno("cannot remove '%s'", path);
}

static int remove_journal(const char *directory) {
    if (remove_file(directory, DATASET_PENDING) < 0 || remove_file(directory, DATASET_WINDOW) < 0) return -1;
    return remove_file(directory, DATASET_JOURNAL);
}

// Visits the entries of one directory. A missing directory is treated as empty.
static int visit_entries(const char *directory, const char *folder, int (*visit)(void *, const char *), void *context) {
    char path[PATH_MAX_BYTES], file[PATH_MAX_BYTES];
    if (join(path, directory, folder) < 0) return -1;
    DIR *entries = opendir(path);
    if (!entries) return errno == ENOENT || errno == ENOTDIR ? 0 : fail_errno("cannot open directory '%s'", path);
    int status = 0;
    for (struct dirent *entry; status == 0 && (errno = 0, entry = readdir(entries));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        status = join(file, folder, entry->d_name);
        if (status == 0) status = visit(context, file);
    }
    if (status == 0 && errno) status = fail_errno("cannot read directory '%s'", path);
    closedir(entries);
    return status;
}

typedef struct {
    const char *directory;
    int (*visit)(void *context, const char *file);
    void *context;
} FileVisit;

static int visit_folder(void *data, const char *name) {
    const FileVisit *files = data;
    char path[PATH_MAX_BYTES];
    struct stat st;
    if (join(path, files->directory, name) < 0) return -1;
    if (lstat(path, &st)) return errno == ENOENT ? 0 : fail_errno("cannot stat '%s'", path);
    if (!S_ISDIR(st.st_mode)) return files->visit(files->context, name);
    return visit_entries(files->directory, name, files->visit, files->context);
}

int dataset_files(const char *directory, int (*visit)(void *context, const char *file), void *context) {
    FileVisit files = {directory, visit, context};
    int status = 0;
    for (int split = 0; status == 0 && split < SPLIT_COUNT; split++)
        status = visit_entries(directory, split_names[split], visit_folder, &files);
    return status;
}

// "train/000/000017.zst" or its table, "train/000/000017.docs", or a temporary file of them
static bool is_shard_name(const char *file) {
    const char *name = strrchr(file, '/') + 1;
    unsigned long number;
    char end[8] = "";
    if (*name == '.') name++;
    return sscanf(name, "%lu%7s", &number, end) == 2 && (!strncmp(end, ".zst", 4) || !strncmp(end, ".docs", 5));
}

static int remove_shard(void *directory, const char *file) {
    return is_shard_name(file) ? remove_file(directory, file) : 0;
}

static int find_shard(void *found, const char *file) {
    *(bool *)found |= is_shard_name(file);
    return 0;
}

static int remove_folder(void *directory, const char *folder) {
    char path[PATH_MAX_BYTES];
    if (join(path, directory, folder) < 0) return -1;
    rmdir(path); // a folder with files that are not ours stays
    return 0;
}

// Removes the shards and the empty folders in DIR/NAME.
static int remove_split(const char *directory, const char *name) {
    void *context = (void *)(uintptr_t)directory;
    FileVisit files = {directory, remove_shard, context};
    if (visit_entries(directory, name, visit_folder, &files) < 0) return -1;
    if (visit_entries(directory, name, remove_folder, context) < 0) return -1;
    return remove_folder(context, name);
}

// Removes manifest, shards, temporary files and empty folders.
static int remove_dataset(const char *directory) {
    dir_sweep(directory, NULL);
    if (remove_file(directory, DATASET_MANIFEST) < 0 || dir_sync(directory) < 0) return -1;
    if (remove_file(directory, DATASET_SKIPS) < 0) return -1;
    for (int split = 0; split < SPLIT_COUNT; split++)
        if (remove_split(directory, split_names[split]) < 0) return -1;
    return dir_sync(directory);
}

static int move(const char *from, const char *name, const char *to, const char *new_name) {
    char old[PATH_MAX_BYTES], new[PATH_MAX_BYTES];
    if (join(old, from, name) < 0 || join(new, to, new_name) < 0) return -1;
    return rename(old, new) ? fail_errno("cannot rename '%s' to '%s'", old, new) : 0;
}

#define OLD_PREFIX ".old-"

// Renames DIR/train to DIR/.old-train, or .old-train-1 if files that are not ours kept that one.
static int move_aside(const char *directory, const char *name) {
    char old[64];
    snprintf(old, sizeof old, OLD_PREFIX "%s", name);
    for (int i = 1; exists(directory, old); i++) snprintf(old, sizeof old, OLD_PREFIX "%s-%d", name, i);
    return exists(directory, name) ? move(directory, name, directory, old) : 0;
}

static bool is_old(const char *name) {
    size_t length = strlen(OLD_PREFIX);
    if (strncmp(name, OLD_PREFIX, length)) return false;
    for (int split = 0; split < SPLIT_COUNT; split++)
        if (!strncmp(name + length, split_names[split], strlen(split_names[split]))) return true;
    return false;
}

static int remove_old(void *data, const char *file) {
    const char *directory = data, *name = strrchr(file, '/') + 1;
    if (!is_old(name)) return 0;
    if (remove_split(directory, name) < 0)
        log_warn("'%s/%s' holds shards that were replaced: %s", directory, name, err_text());
    else if (exists(directory, name))
        log_warn("'%s/%s' keeps files that are not shards: remove it when nothing needs them", directory, name);
    err_clear(); // the new dataset does not need it gone
    return 0;
}

// Removes the shards that replace() moved aside, and leaves other files.
static void remove_all_old(const char *directory) {
    visit_entries(directory, ".", remove_old, (void *)(uintptr_t)directory);
    err_clear();
}

// Moves the dataset in DIR/.new to its place. Only renames are between the old manifest and the new one, and from each
// of them this function continues: a split that was moved up is not in .new any more.
static int replace(const char *directory, const char *from) {
    if (remove_file(directory, DATASET_MANIFEST) < 0 || dir_sync(directory) < 0) return -1;
    if (exists(from, split_names[0]) && remove_file(directory, DATASET_SKIPS) < 0) return -1; // nothing was moved yet
    for (int split = 0; split < SPLIT_COUNT; split++) {
        const char *name = split_names[split];
        if (!exists(from, name)) continue;
        if (move_aside(directory, name) < 0 || move(from, name, directory, name) < 0) return -1;
        remove_folder((void *)(uintptr_t)directory, name); // a split without shards
    }
    if (exists(from, DATASET_SKIPS) && move(from, DATASET_SKIPS, directory, DATASET_SKIPS) < 0) return -1;
    if (dir_sync(directory) < 0 || move(from, DATASET_MANIFEST, directory, DATASET_MANIFEST) < 0) return -1;
    if (dir_sync(directory) < 0) return -1;
    remove_journal(from);
    rmdir(from);
    remove_all_old(directory);
    return dir_sync(directory);
}

int dataset_build_complete(const char *directory) {
    char from[PATH_MAX_BYTES];
    if (check_known(directory) < 0) return -1;
    if (exists(directory, DATASET_MANIFEST) || join(from, directory, ".new") < 0) return 0;
    if (!exists(from, DATASET_MANIFEST)) return 0;
    Lock lock = {0};
    if (lock_take(&lock, directory, "another directory") < 0) return -1;
    int status = exists(from, DATASET_MANIFEST) ? replace(directory, from) : 0;
    lock_drop(&lock);
    return status;
}

// Removes an unfinished DIR/.new. One with a manifest is being moved up.
static int remove_aside(const char *directory) {
    char from[PATH_MAX_BYTES];
    if (!exists(directory, ".new") || join(from, directory, ".new") < 0 || exists(from, DATASET_MANIFEST)) return 0;
    if (remove_dataset(from) < 0 || remove_journal(from) < 0) return -1;
    rmdir(from);
    return dir_sync(directory);
}

// Removes the rest of DIR/.new after a kill that came when its dataset was moved up: then it has no split any more.
static int remove_moved(const char *directory, const char *from) {
    if (!exists(directory, DATASET_MANIFEST) || !exists(directory, ".new") || exists(from, DATASET_MANIFEST)) return 0;
    for (int split = 0; split < SPLIT_COUNT; split++)
        if (exists(from, split_names[split])) return 0;
    if (remove_journal(from) < 0) return -1;
    rmdir(from);
    return dir_sync(directory);
}

int dataset_build_open(DatasetBuild *build, const char *directory) {
    *build = (DatasetBuild){0};
    char from[PATH_MAX_BYTES];
    const size_t existing = dir_existing(directory);
    if (join(from, directory, ".new") < 0 || dir_make(directory) < 0 ||
        lock_take(&build->lock, directory, "another directory") < 0)
        return -1;
    build->directory = directory, build->existing = existing;
    int status = check_known(directory);
    if (status == 0 && exists(from, DATASET_MANIFEST)) status = replace(directory, from);
    if (status == 0) status = remove_moved(directory, from);
    if (status == 0) dir_sweep(directory, NULL);
    if (status == 0) remove_all_old(directory);
    if (status == 0) status = folder_check(directory, 0);
    build->has_manifest = exists(directory, DATASET_MANIFEST);
    if (status == 0 && build->has_manifest) status = remove_journal(directory);
    if (status < 0) dataset_build_close(build);
    return status;
}

static int make_journal(const char *directory) {
    char path[PATH_MAX_BYTES];
    if (join(path, directory, DATASET_JOURNAL) < 0) return -1;
    int fd = file_open_regular(path, O_WRONLY | O_CREAT | O_NOFOLLOW);
    if (fd < 0) return -1;
    close(fd);
    return dir_sync(directory);
}

int dataset_build_check(const DatasetBuild *build) { return lock_check(&build->lock, build->directory); }

int dataset_build_start(DatasetBuild *build, bool force) {
    bool found = false;
    if (dataset_build_check(build) < 0) return -1;
    if (!build->has_manifest && !exists(build->directory, DATASET_JOURNAL) &&
        dataset_files(build->directory, find_shard, &found) < 0)
        return -1;
    if (found && !force)
        return fail(EX_CREATE, "'%s' holds shards but no manifest; --force replaces them", build->directory);
    bool aside = build->has_manifest || found;
    if (join(build->target, build->directory, aside ? ".new" : "") < 0) return -1;
    if (!aside) build->target[strlen(build->directory)] = '\0';
    if (!aside && remove_aside(build->directory) < 0) return -1;
    return dir_make(build->target);
}

int dataset_build_clear(DatasetBuild *build) {
    if (dataset_build_check(build) < 0 || make_journal(build->target) < 0 || dataset_build_check(build) < 0 ||
        remove_dataset(build->target) < 0)
        return -1;
    bool aside = strcmp(build->target, build->directory) != 0;
    for (int split = 0; aside && split < SPLIT_COUNT; split++) { // an empty split replaces the old one too
        char path[PATH_MAX_BYTES];
        if (join(path, build->target, split_names[split]) < 0 || dir_make(path) < 0) return -1;
    }
    return 0;
}

static int remove_temp(void *directory, const char *file) {
    return strrchr(file, '/')[1] == '.' && is_shard_name(file) ? remove_file(directory, file) : 0;
}

int dataset_build_continue(DatasetBuild *build) {
    if (dataset_build_check(build) < 0) return -1;
    dir_sweep(build->target, NULL);
    return dataset_files(build->target, remove_temp, build->target);
}

static int check_written(const char *path, uint64_t bytes) {
    struct stat st;
    if (stat(path, &st) == 0 && (uint64_t)st.st_size == bytes) return 0;
    return fail(EX_IO,
                "'%s' is not the file of %llu bytes that was written there: it was removed or changed meanwhile; the "
                "same command makes it again",
                path, (unsigned long long)bytes);
}

// Each shard is still there, as long as it was written, and so is its table.
static int check_shards(const Dataset *dataset) {
    char path[PATH_MAX_BYTES];
    for (int split = 0; split < SPLIT_COUNT; split++)
        for (uint64_t i = 0; i < dataset->shard_count[split]; i++) {
            const DatasetShard *shard = &dataset->shards[split][i];
            dataset_shard_path(path, dataset->path, split, i);
            if (check_written(path, shard->bytes) < 0) return -1;
            dataset_docs_path(path, dataset->path, split, i);
            if (shard->docs.bytes && check_written(path, shard->docs.bytes) < 0) return -1;
        }
    return 0;
}

int dataset_build_finish(DatasetBuild *build, Dataset *dataset) {
    if (dataset_build_check(build) < 0 || check_shards(dataset) < 0 || dataset_save(dataset) < 0) return -1;
    if (strcmp(build->target, build->directory)) return replace(build->directory, build->target);
    return remove_journal(build->directory);
}

void dataset_build_abandon(DatasetBuild *build) {
    if (!build->target[0] || dataset_build_check(build) < 0 || remove_dataset(build->target) < 0) return;
    remove_journal(build->target);
    if (strcmp(build->target, build->directory)) rmdir(build->target);
}

static bool is_empty(const char *directory) {
    DIR *entries = opendir(directory);
    const struct dirent *entry;
    if (!entries) return false;
    do entry = readdir(entries);
    while (entry && (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || !strcmp(entry->d_name, ".lock")));
    closedir(entries);
    return !entry;
}

// Another process that opens .lock before it is removed finds by lock_check that the directory is another one.
void dataset_build_close(DatasetBuild *build) {
    char name[PATH_MAX_BYTES];
    if (build->lock.fd > 0 && build->existing < strlen(build->directory) && is_empty(build->directory) &&
        dataset_build_check(build) == 0) {
        path_join(name, build->directory, ".lock");
        if (unlink(name) == 0) dir_unmake(build->directory, build->existing);
    }
    lock_drop(&build->lock);
}

// Copies a file, under its name when it is whole.
static int copy_file(const char *path, const char *from, uint64_t bytes) {
    enum { BLOCK_BYTES = 1 << 20 };
    NewFile file = {0};
    const int fd = file_open_regular(from, O_RDONLY);
    uint8_t *block = allocate_zeroed(1, BLOCK_BYTES);
    int status = fd < 0 ? -1 : newfile_open(&file, path);
    for (ssize_t got = 1; status == 0 && got > 0;) {
        got = fd_read(fd, block, BLOCK_BYTES, from);
        status = got < 0 ? -1 : newfile_write(&file, block, (size_t)got);
    }
    if (status == 0 && file.written != bytes)
        status = fail(EX_IO, "'%s' has %llu bytes instead of %llu: it was changed meanwhile", from,
                      (unsigned long long)file.written, (unsigned long long)bytes);
    if (status == 0) status = newfile_commit(&file);
    newfile_abandon(&file);
    if (fd >= 0) close(fd);
    free(block);
    return status;
}

// For file systems without hard links (exFAT, SMB, some FUSE), with limits of them (BeeGFS links in one folder), and
// for two file systems.
static int link_or_copy(const char *path, const Dataset *from, int split, uint64_t index) {
    const DatasetShard *shard = &from->shards[split][index];
    if (link(shard->path, path) == 0) return 0;
    const bool is_first = !index && (split == SPLIT_TRAIN || !from->shard_count[SPLIT_TRAIN]);
    const char *why = strerror(errno);
    char bytes[16];
    if (copy_file(path, shard->path, shard->bytes) < 0) return fail_in("no hard link (%s), and no copy", why);
    if (is_first)
        log_line("'%s' is copied, %s: no hard link to it is possible here (%s)", from->path,
                 human_bytes(bytes, (double)(dataset_bytes(from, SPLIT_TRAIN) + dataset_bytes(from, SPLIT_VAL))), why);
    return 0;
}

// Refuses a table that is not the one of the manifest (65), before the new dataset has it.
static int check_docs(const char *path, const DatasetShard *shard) {
    ProvenanceTable table = {0};
    Buffer bytes = {0};
    int status = dataset_check_size(path, shard->docs.bytes);
    if (status == 0) status = provenance_table_read(&table, &bytes, path, &shard->docs, shard->documents);
    provenance_table_close(&table);
    buffer_close(&bytes);
    return status;
}

static int link_docs(const Dataset *dataset, uint64_t number, const Dataset *from, int split, uint64_t index) {
    char path[PATH_MAX_BYTES], old[PATH_MAX_BYTES];
    dataset_docs_path(path, dataset->path, split, number);
    if (unlink(path) && errno != ENOENT) return fail_errno("cannot remove '%s'", path); // of a killed run
    const uint64_t bytes = from->shards[split][index].docs.bytes;
    if (!bytes) return 0;
    dataset_docs_path(old, from->path, split, index);
    if (check_docs(old, &from->shards[split][index]) < 0) return -1;
    return link(old, path) == 0 ? 0 : copy_file(path, old, bytes);
}

int dataset_link_shard(Dataset *dataset, const Dataset *from, int split, uint64_t index) {
    const DatasetShard *shard = &from->shards[split][index];
    uint64_t number = dataset->shard_count[split];
    char path[PATH_MAX_BYTES];
    dataset_shard_path(path, dataset->path, split, number);
    if (number % 1000 == 0 && dataset_make_folder(dataset->path, split, number) < 0) return -1;
    if (unlink(path) && errno != ENOENT) return fail_errno("cannot remove '%s'", path); // of a killed run
    if (link_or_copy(path, from, split, index) < 0 || link_docs(dataset, number, from, split, index) < 0) return -1;
    *strrchr(path, '/') = '\0';
    if ((index + 1 == from->shard_count[split] || number % 1000 == 999) && dir_sync(path) < 0) return -1;
    dataset_add(dataset, split, shard);
    return 0;
}
