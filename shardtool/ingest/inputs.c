// Lists and sorts the files behind the arguments of a command, refuses duplicates, and computes digests.
#include "shardtool/ingest/inputs.h"
#include "common/bytes.h"
#include "common/err.h"
#include "common/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { ARENA_BYTES = 1 << 30, DIGEST_BYTES = 65536 };

typedef struct {
    dev_t device;
    ino_t inode;
    const char *path;
} Identity;

typedef struct {
    Inputs *inputs;
    Buffer files, identities;
    uint32_t argument;
} Walk;

static void add_file(Walk *walk, const char *path, const struct stat *st, bool is_listed) {
    InputFile file = {.path = arena_copy_string(&walk->inputs->arena, path),
                      .regular = S_ISREG(st->st_mode),
                      .is_listed = is_listed,
                      .bytes = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0,
                      .argument = walk->argument};
    Identity identity = {st->st_dev, st->st_ino, file.path};
    buffer_add(&walk->files, &file, sizeof file);
    buffer_add(&walk->identities, &identity, sizeof identity);
    walk->inputs->bytes += file.bytes;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// Lists the names in a directory. Directories get a trailing slash, so that sorted names are in byte order of paths.
static int list_names(Walk *walk, const char *path, char ***names, size_t *count) {
    DIR *directory = opendir(path);
    if (!directory) return fail_errno("cannot open directory '%s'", path);
    Buffer list = {0};
    int status = 0;
    for (struct dirent *entry; status == 0 && (errno = 0, entry = readdir(directory));) {
        if (entry->d_name[0] == '.') continue;
        struct stat st;
        if (fstatat(dirfd(directory), entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
            status = fail_errno("cannot stat '%s/%s'", path, entry->d_name);
        else {
            char *name = arena_print(&walk->inputs->arena, "%s%s", entry->d_name, S_ISDIR(st.st_mode) ? "/" : "");
            buffer_add(&list, &name, sizeof name);
        }
    }
    if (status == 0 && errno) status = fail_errno("cannot read directory '%s'", path);
    closedir(directory);
    *names = (char **)(void *)list.data, *count = list.size / sizeof **names;
    if (*count) qsort(*names, *count, sizeof **names, by_text);
    return status;
}

static int walk_directory(Walk *walk, const char *path) {
    char **names = NULL;
    size_t count = 0, length = strlen(path);
    int status = list_names(walk, path, &names, &count);
    for (size_t i = 0; status == 0 && i < count; i++) {
        char full[PATH_MAX_BYTES];
        struct stat st;
        const char *slash = length && path[length - 1] == '/' ? "" : "/";
        if (snprintf(full, sizeof full, "%s%s%s", path, slash, names[i]) >= (int)sizeof full)
            status = fail(EX_NOINPUT, "path too long: '%.60s...'", full);
        else if (full[strlen(full) - 1] == '/')
            status = walk_directory(walk, full);
        else if (stat(full, &st))
            status = fail_errno("cannot stat '%s'", full);
        else if (S_ISREG(st.st_mode))
            add_file(walk, full, &st, true);
    }
    free(names);
    return status;
}

static int walk_argument(Walk *walk, const char *path) {
    struct stat st;
    if (!strcmp(path, "-")) {
        if (fstat(STDIN_FILENO, &st)) return fail_errno("cannot read standard input");
        st.st_mode = S_IFIFO; // even a file: its read position is not known
        add_file(walk, path, &st, false);
        return 0;
    }
    if (stat(path, &st)) return fail_errno("cannot open '%s'", path);
    if (S_ISDIR(st.st_mode)) return walk_directory(walk, path);
    if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode))
        return fail(EX_NOINPUT, "'%s' is neither a file nor a directory", path);
    add_file(walk, path, &st, false);
    return 0;
}

static int by_identity(const void *a, const void *b) {
    const Identity *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode) return x->inode < y->inode ? -1 : 1;
    return strcmp(x->path, y->path);
}

static int refuse_twice(Walk *walk) {
    Identity *identities = (Identity *)(void *)walk->identities.data;
    size_t count = walk->identities.size / sizeof *identities;
    if (count) qsort(identities, count, sizeof *identities, by_identity);
    for (size_t i = 1; i < count; i++) {
        const Identity *a = &identities[i - 1], *b = &identities[i];
        if (a->device == b->device && a->inode == b->inode)
            return fail(EX_USAGE, "the same file twice: '%s' and '%s'", a->path, b->path);
    }
    return 0;
}

static int refuse_unreadable(const Inputs *inputs) {
    for (uint64_t i = 0; i < inputs->file_count; i++) {
        const InputFile *file = &inputs->files[i];
        if (file->regular && access(file->path, R_OK)) return fail_errno("cannot open '%s'", file->path);
    }
    return 0;
}

int inputs_open(Inputs *inputs, int count, char **arguments) {
    static char dash[] = "-", *standard_input[] = {dash};
    *inputs = (Inputs){0};
    arena_open(&inputs->arena, ARENA_BYTES);
    if (count == 0) arguments = standard_input, count = 1;

    size_t total = (size_t)count;
    char **sorted = arena_push(&inputs->arena, total * sizeof *sorted);
    memcpy(sorted, arguments, total * sizeof *sorted);
    qsort(sorted, total, sizeof *sorted, by_text);
    inputs->arguments = arena_push(&inputs->arena, total * sizeof *inputs->arguments);
    inputs->argument_count = total;

    Walk walk = {.inputs = inputs};
    int status = 0;
    for (; status == 0 && walk.argument < total; walk.argument++) {
        inputs->arguments[walk.argument].path = sorted[walk.argument];
        status = walk_argument(&walk, sorted[walk.argument]);
    }
    if (status == 0) status = refuse_twice(&walk);
    buffer_close(&walk.identities);
    inputs->files = (InputFile *)(void *)walk.files.data;
    inputs->file_count = walk.files.size / sizeof *inputs->files;
    for (uint64_t i = 0; i < inputs->file_count; i++) {
        const InputFile *file = &inputs->files[i];
        InputArgument *argument = &inputs->arguments[file->argument];
        argument->files++;
        argument->bytes += file->bytes;
        argument->stream |= !file->regular;
    }
    if (status == 0) status = refuse_unreadable(inputs);
    if (status < 0) inputs_close(inputs);
    return status;
}

static int digest_file(XXH3_state_t *state, const InputFile *file, uint8_t *block) {
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail_errno("cannot open '%s'", file->path);
    XXH3_128bits_update(state, file->path, strlen(file->path) + 1);
    XXH3_128bits_update(state, &file->bytes, sizeof file->bytes);
    ssize_t got = fd_read(fd, block, DIGEST_BYTES, file->path);
    if (got > 0) XXH3_128bits_update(state, block, (size_t)got);
    if (got == DIGEST_BYTES && file->bytes > DIGEST_BYTES) {
        uint64_t tail = file->bytes - DIGEST_BYTES < DIGEST_BYTES ? DIGEST_BYTES : file->bytes - DIGEST_BYTES;
        if (lseek(fd, (off_t)tail, SEEK_SET) < 0)
            got = fail_errno("cannot seek in '%s'", file->path);
        else
            got = fd_read(fd, block, DIGEST_BYTES, file->path);
        if (got > 0) XXH3_128bits_update(state, block, (size_t)got);
    }
    close(fd);
    return got < 0 ? -1 : 0;
}

int inputs_digest(Inputs *inputs) {
    XXH3_state_t *state = XXH3_createState();
    Buffer block = {0};
    buffer_reserve(&block, DIGEST_BYTES);
    if (!state) die(EX_MEMORY, "no memory for a hash");
    int status = 0;
    for (uint64_t i = 0, at = 0; status == 0 && i < inputs->argument_count; i++) {
        InputArgument *argument = &inputs->arguments[i];
        XXH3_128bits_reset(state);
        for (; status == 0 && at < inputs->file_count && inputs->files[at].argument == i; at++)
            if (!argument->stream) status = digest_file(state, &inputs->files[at], block.data);
        XXH128_canonical_t digest;
        XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state));
        if (!argument->stream) memcpy(argument->digest, &digest, sizeof argument->digest);
    }
    buffer_close(&block);
    XXH3_freeState(state);
    return status;
}

void inputs_close(Inputs *inputs) {
    free(inputs->files);
    arena_close(&inputs->arena);
    *inputs = (Inputs){0};
}
