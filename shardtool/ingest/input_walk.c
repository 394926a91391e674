// Walks over folders and listings.
#include "shardtool/ingest/input_walk.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include "dataset/manifest.h"
#include "remote/url_map.h"
#include "shardtool/ingest/codec.h"
#include "shardtool/ingest/foreign.h"
#include "shardtool/ingest/input_format.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <xxhash.h>

enum { CHUNK_BYTES = 1 << 20 };
struct InputStrings {
    InputStrings *next;
    size_t used, capacity;
    char bytes[];
};

char *input_string(InputStrings **chunks, const void *string, size_t length) {
    InputStrings *chunk = *chunks;
    if (!chunk || chunk->capacity - chunk->used <= length) {
        size_t capacity = length >= CHUNK_BYTES ? length + 1 : CHUNK_BYTES;
        chunk = allocate_zeroed(1, sizeof *chunk + capacity);
        chunk->next = *chunks, chunk->capacity = capacity;
        *chunks = chunk;
    }
    char *kept = chunk->bytes + chunk->used;
    if (length) memcpy(kept, string, length);
    kept[length] = '\0';
    chunk->used += length + 1;
    return kept;
}

void input_strings_free(InputStrings *chunks) {
    while (chunks) {
        InputStrings *next = chunks->next;
        free(chunks);
        chunks = next;
    }
}

int input_by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// ---- which files of folders and members of archives --include and --exclude choose

// A pattern with a slash is compared with the path below the argument, any other with the file name.
static bool matches(const StringList *patterns, const char *below, const char *name) {
    for (size_t i = 0; i < patterns->count; i++) {
        const char *pattern = patterns->items[i];
        if (fnmatch(pattern, strchr(pattern, '/') ? below : name, 0) == 0) return true;
    }
    return false;
}

// An archive that no pattern matches is opened for its members, which the patterns choose.
static bool is_archive(const char *name) {
    char base[STREAM_BASE_BYTES];
    snprintf(base, sizeof base, "%s", name);
    codec_strip_extension(base);
    const char *dot = strrchr(base, '.');
    return dot && extension_is_one_of("tar zip", dot + 1);
}

bool input_is_wanted(const InputFilter *filter, const char *below) {
    const char *slash = strrchr(below, '/'), *name = slash ? slash + 1 : below;
    if (filter->include.count && !matches(&filter->include, below, name) && !is_archive(name)) return false;
    return !matches(&filter->exclude, below, name);
}

// Whether a pattern matches the archive or one around it, "a.tar:b/c.zip", by its name or, with a slash, by the end of
// its path.
static bool chose_archive(const char *pattern, const char *archive) {
    char names[PATH_MAX_BYTES], *rest = names, *name;
    snprintf(names, sizeof names, "%s", archive);
    while ((name = strsep(&rest, ":"))) {
        const char *slash = strrchr(name, '/');
        if (!strchr(pattern, '/') && slash) name = (char *)(uintptr_t)slash + 1;
        for (const char *end = name; end; end = (end = strchr(end, '/')) ? end + 1 : NULL)
            if (fnmatch(pattern, end, 0) == 0) return true;
    }
    return false;
}

bool input_member_is_wanted(const InputFilter *filter, const char *archive, const char *member) {
    const char *slash = strrchr(member, '/'), *name = slash ? slash + 1 : member;
    bool is_chosen = !filter->include.count || is_archive(name);
    for (size_t i = 0; !is_chosen && i < filter->include.count; i++) {
        const char *pattern = filter->include.items[i];
        is_chosen = chose_archive(pattern, archive) || fnmatch(pattern, strchr(pattern, '/') ? member : name, 0) == 0;
    }
    return is_chosen && !matches(&filter->exclude, member, name);
}

// ---- the walk

// Functions that walk_directory calls are not inlined: its frame is on the stack once for each level of folders.
#define SMALL_FRAME __attribute__((noinline))

static uint32_t device_number(const struct stat *st) { return (uint32_t)(major(st->st_dev) << 20 | minor(st->st_dev)); }

// The path as a string, valid until it changes.
static const char *path_string(Walk *walk) {
    buffer_reserve(&walk->path, 1);
    walk->path.data[walk->path.size] = '\0';
    return (const char *)walk->path.data;
}

// The folder that the first bytes of the path name, or "" for a file that the user named.
typedef struct {
    uint32_t number;
    size_t length;
} Folder;

static Folder add_folder(Walk *walk, size_t length) {
    const InputFolder folder = {input_string(&walk->strings, walk->path.data, length), walk->argument, false};
    buffer_add(&walk->folders, &folder, sizeof folder);
    return (Folder){(uint32_t)(walk->folders.size / sizeof folder - 1), length};
}

static int add_named(Walk *walk, uint64_t bytes, Identity identity, Folder folder) {
    const uint64_t number = walk->files.size / sizeof(InputFile);
    const InputFile file = {.name = (uint32_t)walk->names.size, .bytes = bytes, .folder = folder.number};
    buffer_add(&walk->names, walk->path.data + folder.length, walk->path.size - folder.length);
    buffer_add(&walk->names, "", 1);
    if (walk->names.size > UINT32_MAX)
        return fail(EX_LIMIT, "the names of more than %" PRIu64 " files do not fit: name fewer folders", number);
    identity.file = (uint32_t)number;
    buffer_add(&walk->files, &file, sizeof file);
    buffer_add(&walk->identities, &identity, sizeof identity);
    return 0;
}

static int add_file(Walk *walk, const struct stat *st, Folder folder) {
    const uint64_t bytes = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
    return add_named(walk, bytes, (Identity){.inode = st->st_ino, .device = device_number(st)}, folder);
}

// Whether a file or folder is an index of Spark, dask or fastparquet beside Parquet, or of rows that a job has not
// committed. Databricks names the files of a commit _started_ID and _committed_ID.
static bool is_index(const char *name) {
    return !strcmp(name, "_SUCCESS") || !strcmp(name, "_common_metadata") || !strcmp(name, "_metadata") ||
           !strcmp(name, "_temporary") || !strncmp(name, "_started_", 9) || !strncmp(name, "_committed_", 11);
}

bool input_is_left_out(const char *path) {
    for (size_t length; *path; path += length, path += *path == '/') {
        char name[256];
        length = strcspn(path, "/");
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), path);
        if (*name == '.' && strcmp(name, ".") && strcmp(name, "..")) return true;
        if (is_index(name)) return true;
    }
    return false;
}

// The files of repositories of data sets and programs that are about the other files.
bool input_is_about(const InputFilter *filter, const char *path) {
    const char *slash = strrchr(path, '/');
    char name[STREAM_BASE_BYTES];
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : path);
    codec_strip_extension(name);
    return !(filter && filter->include.count) &&
           (!strcmp(name, "README.md") || !strcmp(name, "LICENSE") || !strcmp(name, "dataset_infos.json"));
}

void input_warn_about(const char *path, uint64_t number) {
    if (number == 1)
        log_warn("left out '%s' by its name, as every README.md, LICENSE and dataset_infos.json: --include '*' reads "
                 "them",
                 path);
}

// The names in the directory `path`, sorted. Directories end in a slash, so that sorted names are in byte order of
// paths.
typedef struct {
    InputStrings *strings;
    Buffer list; // char *
} Names;

SMALL_FRAME static int list_names(Walk *walk, Names *names) {
    DIR *directory = opendir(path_string(walk));
    if (!directory) return fail_errno("cannot open directory '%s'", path_string(walk));
    int status = 0;
    for (struct dirent *entry; status == 0 && (errno = 0, entry = readdir(directory));) {
        char text[sizeof entry->d_name + 1];
        if (entry->d_name[0] == '.' || input_is_left_out(entry->d_name)) continue;
        bool is_directory = entry->d_type == DT_DIR;
        struct stat st;
        if (entry->d_type == DT_UNKNOWN || entry->d_type == DT_LNK) // add_listed names one that has no target
            is_directory = fstatat(dirfd(directory), entry->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode);
        int length = snprintf(text, sizeof text, "%s%s", entry->d_name, is_directory ? "/" : "");
        char *kept = input_string(&names->strings, text, (size_t)length);
        buffer_add(&names->list, &kept, sizeof kept);
    }
    if (status == 0 && errno) status = fail_errno("cannot read directory '%s'", path_string(walk));
    closedir(directory);
    if (names->list.size) qsort(names->list.data, names->list.size / sizeof(char *), sizeof(char *), input_by_text);
    return status;
}

// Its manifest would be read as JSON lines, and its shards hold ids.
SMALL_FRAME static int refuse_dataset(Walk *walk, const char *name) {
    char begin[sizeof DATASET_BEGIN - 1];
    int fd = strcmp(name, DATASET_MANIFEST) ? -1 : file_open(path_string(walk));
    if (fd < 0) return 0; // refuse_unreadable names one that cannot be opened
    ssize_t got = fd_read(fd, begin, sizeof begin, path_string(walk));
    close(fd);
    if (got != sizeof begin || memcmp(begin, DATASET_BEGIN, sizeof begin)) return got < 0 ? -1 : 0;
    char folder[PATH_MAX_BYTES];
    path_split(path_string(walk), folder);
    return fail(EX_DATA, "'%s' is a dataset already: cat, decode and merge read it, and --exclude leaves it out",
                folder);
}

SMALL_FRAME static int add_listed(Walk *walk, const char *name, Folder folder) {
    struct stat st;
    const char *below = path_string(walk) + walk->root_length;
    if (!input_is_wanted(walk->filter, below + strspn(below, "/"))) return 0;
    if (stat(path_string(walk), &st)) {
        if (errno != ENOENT && errno != ELOOP) return fail_errno("cannot stat '%s'", path_string(walk));
        if (!walk->dangling++) log_warn("skipped '%s': a link to a file that does not exist", path_string(walk));
        return 0;
    }
    if (S_ISREG(st.st_mode)) {
        if (input_is_about(walk->filter, name)) return input_warn_about(path_string(walk), ++walk->about), 0;
        return refuse_dataset(walk, name) < 0 ? -1 : add_file(walk, &st, folder);
    }
    log_warn("skipped '%s': it is not a regular file", path_string(walk));
    return 0;
}

// Adds the directory `path` to the open ones. 1 when it is open already: a link led back to it.
SMALL_FRAME static int enter_directory(Walk *walk) {
    struct stat st;
    if (stat(path_string(walk), &st)) return fail_errno("cannot open directory '%s'", path_string(walk));
    const Identity *open = (const Identity *)(const void *)walk->open.data;
    const Identity entered = {.inode = st.st_ino, .device = device_number(&st)};
    for (size_t i = 0; i < walk->open.size / sizeof *open; i++)
        if (open[i].inode == entered.inode && open[i].device == entered.device) {
            log_warn("skipped '%s': a link to a folder that it lies in", path_string(walk));
            return 1;
        }
    buffer_add(&walk->open, &entered, sizeof entered);
    return 0;
}

static int walk_directory(Walk *walk) {
    Names names = {0};
    size_t length = walk->path.size;
    int status = enter_directory(walk);
    if (status) return status < 0 ? -1 : 0;
    status = list_names(walk, &names);
    char **list = (char **)(void *)names.list.data;
    if (status == 0)
        status = foreign_folder_refuse(path_string(walk), (const char *const *)list, names.list.size / sizeof *list);
    if (walk->path.data[length - 1] != '/') buffer_add(&walk->path, "/", 1), length++;
    const Folder folder = add_folder(walk, length);
    for (size_t i = 0; status == 0 && i < names.list.size / sizeof *list; i++) {
        size_t name_length = strlen(list[i]);
        bool is_directory = list[i][name_length - 1] == '/';
        buffer_add(&walk->path, list[i], name_length - is_directory);
        if (walk->path.size >= PATH_MAX_BYTES - 1)
            status = fail(EX_NOINPUT, "path too long: '%.60s...'", path_string(walk));
        else
            status = is_directory ? walk_directory(walk) : add_listed(walk, list[i], folder);
        walk->path.size = length;
    }
    walk->open.size -= sizeof(Identity);
    buffer_close(&names.list);
    input_strings_free(names.strings);
    return status;
}

// A remote file has the identity of its name and validator. Its query and validator follow its name.
static int add_remote_file(Walk *walk, const RemoteEntry *entry, Folder folder) {
    const XXH64_hash_t name = XXH3_64bits(entry->name, strlen(entry->name));
    const Identity identity = {.inode = XXH3_64bits_withSeed(entry->validator, strlen(entry->validator), name),
                               .device = UINT32_MAX};
    if (add_named(walk, entry->size, identity, folder) < 0) return -1;
    buffer_add(&walk->names, entry->query, strlen(entry->query) + 1);
    buffer_add(&walk->names, entry->validator, strlen(entry->validator) + 1);
    return 0;
}

static int walk_url(Walk *walk) {
    const RemoteArgument *argument = &walk->urls.arguments[walk->next_url++];
    int status = remote_table_refuse(walk->remote, argument);
    walk->arguments[walk->argument].path = input_string(&walk->strings, argument->name, strlen(argument->name));
    walk->path.size = 0;
    if (argument->folder_length) buffer_add(&walk->path, argument->entries->name, argument->folder_length);
    const Folder folder = add_folder(walk, argument->folder_length);
    ((InputFolder *)(void *)walk->folders.data)[folder.number].is_remote = true;
    for (size_t i = 0; status == 0 && i < argument->count; i++) {
        const char *name = argument->entries[i].name;
        walk->path.size = 0;
        buffer_add(&walk->path, name, strlen(name));
        if (argument->folder_length) {
            if (input_is_left_out(name + argument->folder_length)) continue;
            if (!input_is_wanted(walk->filter, name + argument->folder_length)) continue;
            if (input_is_about(walk->filter, name)) {
                input_warn_about(name, ++walk->about);
                continue;
            }
        }
        status = add_remote_file(walk, &argument->entries[i], folder);
    }
    return status;
}

// Lists the files that the URLs among the arguments name.
int walk_list_urls(Walk *walk, char **arguments, size_t count) {
    Buffer urls = {0};
    int status = 0;
    for (size_t i = 0; i < count; i++)
        if (walk->reads_urls && remote_is_url(arguments[i])) buffer_add(&urls, &arguments[i], sizeof *arguments);
    const char **list = (const char **)(void *)urls.data;
    if (urls.size) {
        walk->remote = remote_open(&walk->filter->remote, list[0]);
        status = walk->remote ? remote_list_open(&walk->urls, walk->remote, list, urls.size / sizeof *list) : -1;
    }
    buffer_close(&urls);
    return status;
}

int walk_argument(Walk *walk, const char *path) {
    struct stat st;
    if (walk->reads_urls && remote_is_url(path)) return walk_url(walk);
    if (walk->reads_urls && strstr(path, "://") && !url_map_file_exists(path))
        return fail(EX_USAGE, "'%.60s' is no URL that is read: https://, s3:// or hf://, in small letters", path);
    walk->arguments[walk->argument].path = path;
    walk->path.size = 0;
    buffer_add(&walk->path, path, strlen(path));
    walk->root_length = walk->path.size;
    if (!strcmp(path, "-")) {
        if (fstat(STDIN_FILENO, &st)) return fail_errno("cannot read standard input");
        st.st_mode = S_IFIFO; // even a file: its read position is not known
        walk->arguments[walk->argument].stream = true;
        return add_file(walk, &st, add_folder(walk, 0));
    }
    if (stat(path, &st)) return fail_errno("cannot open '%s'", path);
    if (S_ISDIR(st.st_mode)) return walk_directory(walk);
    if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode))
        return fail(EX_NOINPUT, "'%s' is neither a file nor a directory", path);
    walk->arguments[walk->argument].stream = !S_ISREG(st.st_mode);
    return add_file(walk, &st, add_folder(walk, 0));
}

void walk_close(Walk *walk) {
    buffer_close(&walk->identities);
    buffer_close(&walk->open);
    buffer_close(&walk->path);
    remote_list_close(&walk->urls);
}
