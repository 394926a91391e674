// Lists and sorts the files behind the arguments of a command, refuses duplicates, and computes digests.
#include "shardtool/ingest/inputs.h"
#include "common/bytes.h"
#include "common/err.h"
#include "common/file.h"
#include "common/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { DIGEST_BYTES = 65536, CHUNK_BYTES = 1 << 20, FILE_LIST_BYTES_MAX = 1 << 30 };

struct InputStrings {
    InputStrings *next;
    size_t used, capacity;
    char bytes[];
};

typedef struct {
    dev_t device;
    ino_t inode;
    uint64_t file; // its number
} Identity;

typedef struct {
    Inputs *inputs;
    const InputFilter *filter;
    Buffer files, identities;
    Buffer path;        // of the file or directory being visited, without NUL
    size_t root_length; // of the argument in `path`
    uint32_t argument;
    uint64_t dangling;
} Walk;

// Strings live in chunks: 8 million paths take their bytes and no more.
static char *keep_string(InputStrings **chunks, const void *string, size_t length) {
    InputStrings *chunk = *chunks;
    if (!chunk || chunk->capacity - chunk->used <= length) {
        size_t capacity = length >= CHUNK_BYTES ? length + 1 : CHUNK_BYTES;
        chunk = allocate_zeroed(1, sizeof *chunk + capacity);
        chunk->next = *chunks, chunk->capacity = capacity;
        *chunks = chunk;
    }
    char *kept = chunk->bytes + chunk->used;
    memcpy(kept, string, length);
    kept[length] = '\0';
    chunk->used += length + 1;
    return kept;
}

static void free_strings(InputStrings *chunks) {
    while (chunks) {
        InputStrings *next = chunks->next;
        free(chunks);
        chunks = next;
    }
}

// The path as a string, valid until it changes.
static const char *path_string(Walk *walk) {
    buffer_reserve(&walk->path, 1);
    walk->path.data[walk->path.size] = '\0';
    return (const char *)walk->path.data;
}

static void add_file(Walk *walk, const struct stat *st, bool is_listed) {
    bool regular = S_ISREG(st->st_mode);
    InputFile file = {.path = keep_string(&walk->inputs->strings, walk->path.data, walk->path.size),
                      .regular = regular,
                      .is_listed = is_listed,
                      .bytes = regular ? (uint64_t)st->st_size : 0,
                      .argument = walk->argument};
    Identity identity = {st->st_dev, st->st_ino, walk->files.size / sizeof file};
    buffer_add(&walk->files, &file, sizeof file);
    buffer_add(&walk->identities, &identity, sizeof identity);
    walk->inputs->bytes += file.bytes;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// The names in the directory `path`, sorted. Directories end in a slash, so that sorted names are in byte order of
// paths.
typedef struct {
    InputStrings *strings;
    Buffer list; // char *
} Names;

static int list_names(Walk *walk, Names *names) {
    DIR *directory = opendir(path_string(walk));
    if (!directory) return fail_errno("cannot open directory '%s'", path_string(walk));
    int status = 0;
    for (struct dirent *entry; status == 0 && (errno = 0, entry = readdir(directory));) {
        char text[sizeof entry->d_name + 1];
        if (entry->d_name[0] == '.') continue;
        bool is_directory = entry->d_type == DT_DIR;
        struct stat st;
        if (entry->d_type == DT_UNKNOWN) {
            if (fstatat(dirfd(directory), entry->d_name, &st, AT_SYMLINK_NOFOLLOW))
                status = fail_errno("cannot stat '%s/%s'", path_string(walk), entry->d_name);
            else
                is_directory = S_ISDIR(st.st_mode);
        }
        int length = snprintf(text, sizeof text, "%s%s", entry->d_name, is_directory ? "/" : "");
        char *kept = keep_string(&names->strings, text, (size_t)length);
        buffer_add(&names->list, &kept, sizeof kept);
    }
    if (status == 0 && errno) status = fail_errno("cannot read directory '%s'", path_string(walk));
    closedir(directory);
    if (names->list.size) qsort(names->list.data, names->list.size / sizeof(char *), sizeof(char *), by_text);
    return status;
}

// A pattern with a slash is compared with the path below the argument, any other with the file name.
static bool matches(const StringList *patterns, const char *below, const char *name) {
    for (size_t i = 0; i < patterns->count; i++) {
        const char *pattern = patterns->items[i];
        if (fnmatch(pattern, strchr(pattern, '/') ? below : name, 0) == 0) return true;
    }
    return false;
}

static bool is_wanted(Walk *walk, const char *name) {
    const InputFilter *filter = walk->filter;
    const char *below = path_string(walk) + walk->root_length;
    while (*below == '/') below++;
    if (filter->include.count && !matches(&filter->include, below, name)) return false;
    return !matches(&filter->exclude, below, name);
}

static int add_listed(Walk *walk, const char *name) {
    struct stat st;
    if (!is_wanted(walk, name)) return 0;
    if (stat(path_string(walk), &st)) {
        if (errno != ENOENT && errno != ELOOP) return fail_errno("cannot stat '%s'", path_string(walk));
        if (!walk->dangling++) log_warn("skipped '%s': a link to a file that does not exist", path_string(walk));
        return 0;
    }
    if (S_ISREG(st.st_mode)) add_file(walk, &st, true);
    return 0;
}

static int walk_directory(Walk *walk) {
    Names names = {0};
    size_t length = walk->path.size;
    int status = list_names(walk, &names);
    char **list = (char **)(void *)names.list.data;
    for (size_t i = 0; status == 0 && i < names.list.size / sizeof *list; i++) {
        if (walk->path.data[length - 1] != '/') buffer_add(&walk->path, "/", 1);
        size_t name_length = strlen(list[i]);
        bool is_directory = list[i][name_length - 1] == '/';
        buffer_add(&walk->path, list[i], name_length - is_directory);
        if (walk->path.size >= PATH_MAX_BYTES - 1)
            status = fail(EX_NOINPUT, "path too long: '%.60s...'", path_string(walk));
        else
            status = is_directory ? walk_directory(walk) : add_listed(walk, list[i]);
        walk->path.size = length;
    }
    buffer_close(&names.list);
    free_strings(names.strings);
    return status;
}

static int walk_argument(Walk *walk, const char *path) {
    struct stat st;
    walk->path.size = 0;
    buffer_add(&walk->path, path, strlen(path));
    walk->root_length = walk->path.size;
    if (!strcmp(path, "-")) {
        if (fstat(STDIN_FILENO, &st)) return fail_errno("cannot read standard input");
        st.st_mode = S_IFIFO; // even a file: its read position is not known
        add_file(walk, &st, false);
        return 0;
    }
    if (stat(path, &st)) return fail_errno("cannot open '%s'", path);
    if (S_ISDIR(st.st_mode)) return walk_directory(walk);
    if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode))
        return fail(EX_NOINPUT, "'%s' is neither a file nor a directory", path);
    add_file(walk, &st, false);
    return 0;
}

static int by_identity(const void *a, const void *b) {
    const Identity *x = a, *y = b;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    if (x->inode != y->inode) return x->inode < y->inode ? -1 : 1;
    return x->file < y->file ? -1 : x->file > y->file;
}

// Two names of one file in a folder are one document, under the first name. A file that two arguments name is a
// mistake.
static int refuse_twice(Walk *walk) {
    Identity *identities = (Identity *)(void *)walk->identities.data;
    InputFile *files = (InputFile *)(void *)walk->files.data;
    uint64_t count = walk->files.size / sizeof *files, linked = 0, kept = 0;
    if (count) qsort(identities, count, sizeof *identities, by_identity);
    for (uint64_t first = 0, i = 1; i < count; i++) {
        const Identity *a = &identities[first], *b = &identities[i];
        if (a->device != b->device || a->inode != b->inode) {
            first = i;
            continue;
        }
        InputFile *one = &files[a->file], *two = &files[b->file];
        if (one->argument != two->argument)
            return fail(EX_USAGE, "the same file twice: '%s' and '%s'", one->path, two->path);
        if (!linked++) log_warn("skipped '%s': the same file as '%s'", two->path, one->path);
        walk->inputs->bytes -= two->bytes;
        two->path = NULL;
    }
    if (linked > 1) log_warn("skipped %" PRIu64 " further names of files", linked);
    for (uint64_t i = 0; linked && i < count; i++)
        if (files[i].path) files[kept++] = files[i];
    if (linked) walk->files.size = kept * sizeof *files;
    return 0;
}

static int refuse_unreadable(const Inputs *inputs) {
    for (uint64_t i = 0; i < inputs->file_count; i++) {
        const InputFile *file = &inputs->files[i];
        if (file->regular && access(file->path, R_OK)) return fail_errno("cannot open '%s'", file->path);
    }
    return 0;
}

// Adds the names in a file to `arguments`. They end in NUL if the file has a NUL, else in a line end.
static int read_list(Inputs *inputs, Buffer *arguments, const char *path) {
    Buffer text = {0};
    bool is_stdin = !strcmp(path, "-");
    if (file_read_stream(&text, is_stdin ? "/dev/stdin" : path, FILE_LIST_BYTES_MAX) < 0) {
        buffer_close(&text);
        return fail_in("--files-from");
    }
    int end = text.size && memchr(text.data, '\0', text.size) ? '\0' : '\n';
    for (size_t at = 0; at < text.size;) {
        const uint8_t *stop = memchr(text.data + at, end, text.size - at);
        size_t length = stop ? (size_t)(stop - text.data) - at : text.size - at;
        if (length) {
            char *name = keep_string(&inputs->strings, text.data + at, length);
            buffer_add(arguments, &name, sizeof name);
        }
        at += length + 1;
    }
    buffer_close(&text);
    return 0;
}

static int list_arguments(Inputs *inputs, int count, char **arguments, const InputFilter *filter, Buffer *list) {
    static char dash[] = "-", *standard_input[] = {dash};
    if (count) buffer_add(list, arguments, (size_t)count * sizeof *arguments);
    if (filter->files_from) return read_list(inputs, list, filter->files_from);
    if (!count) buffer_add(list, standard_input, sizeof standard_input);
    return 0;
}

static void set_arguments(Inputs *inputs) {
    for (uint64_t i = 0; i < inputs->file_count; i++) {
        const InputFile *file = &inputs->files[i];
        InputArgument *argument = &inputs->arguments[file->argument];
        argument->files++;
        argument->bytes += file->bytes;
        argument->stream |= !file->regular;
    }
}

int inputs_open(Inputs *inputs, int count, char **arguments, const InputFilter *filter) {
    static const InputFilter everything;
    *inputs = (Inputs){0};
    Buffer list = {0};
    Walk walk = {.inputs = inputs, .filter = filter ? filter : &everything};
    int status = list_arguments(inputs, count, arguments, walk.filter, &list);
    char **sorted = (char **)(void *)list.data;
    size_t total = list.size / sizeof *sorted;
    if (total) qsort(sorted, total, sizeof *sorted, by_text);
    inputs->arguments = allocate_zeroed(total + 1, sizeof *inputs->arguments);
    inputs->argument_count = total;
    for (; status == 0 && walk.argument < total; walk.argument++) {
        inputs->arguments[walk.argument].path = sorted[walk.argument];
        status = walk_argument(&walk, sorted[walk.argument]);
    }
    if (walk.dangling > 1) log_warn("skipped %" PRIu64 " links to files that do not exist", walk.dangling);
    if (status == 0) status = refuse_twice(&walk);
    buffer_close(&walk.identities);
    buffer_close(&walk.path);
    buffer_close(&list);
    inputs->files = (InputFile *)(void *)walk.files.data;
    inputs->file_count = walk.files.size / sizeof *inputs->files;
    set_arguments(inputs);
    if (status == 0) status = refuse_unreadable(inputs);
    if (status < 0) inputs_close(inputs);
    return status;
}

static int digest_file(XXH3_state_t *state, const InputFile *file, uint8_t *block, uint64_t *times) {
    struct stat st;
    int fd = file_open(file->path);
    if (fd < 0 || fstat(fd, &st)) {
        if (fd >= 0) close(fd);
        return fail_errno("cannot open '%s'", file->path);
    }
    *times = XXH3_64bits_withSeed(&st.st_mtim, sizeof st.st_mtim, *times);
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
            if (!argument->stream) status = digest_file(state, &inputs->files[at], block.data, &argument->times);
        XXH128_canonical_t digest;
        XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state));
        if (!argument->stream) memcpy(argument->digest, &digest, sizeof argument->digest);
    }
    buffer_close(&block);
    XXH3_freeState(state);
    return status;
}

void inputs_add_names(Inputs *inputs, const char *const *names, unsigned count) {
    inputs->files = realloc(inputs->files, (inputs->file_count + count) * sizeof *inputs->files);
    if (!inputs->files) die(EX_MEMORY, "no memory for a list of files");
    for (unsigned i = 0; i < count; i++) inputs->files[inputs->file_count + i] = (InputFile){.path = names[i]};
}

void inputs_keep_every(Inputs *inputs, uint64_t first, uint64_t step) {
    uint64_t files = 0, arguments = 0, last = UINT64_MAX;
    inputs->bytes = 0;
    for (uint64_t i = first; i < inputs->file_count; i += step) {
        InputFile *file = &inputs->files[files++];
        *file = inputs->files[i];
        if (file->argument != last) {
            last = file->argument;
            inputs->arguments[arguments++] = (InputArgument){.path = inputs->arguments[last].path};
        }
        file->argument = (uint32_t)(arguments - 1);
        inputs->bytes += file->bytes;
    }
    inputs->file_count = files, inputs->argument_count = arguments;
    set_arguments(inputs);
}

void inputs_close(Inputs *inputs) {
    free(inputs->files);
    free(inputs->arguments);
    free_strings(inputs->strings);
    *inputs = (Inputs){0};
}
