// Lists and sorts the files that the arguments of a command name, refuses duplicates, and computes digests.
#include "shardtool/ingest/inputs.h"
#include "common/bytes.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/table_log.h"
#include "common/hash.h"
#include "common/log.h"
#include "dataset/manifest.h"
#include "remote/remote_list.h"
#include "remote/url_map.h"
#include "shardtool/ingest/codec.h"
#include "shardtool/ingest/foreign.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <xxhash.h>

enum { CHUNK_BYTES = 1 << 20, FILE_LIST_BYTES_MAX = 1 << 30 };
static const uint32_t SKIPPED = UINT32_MAX; // the folder of a further name of a file

// What walk_directory calls is not inlined: its frame is on the stack once for each level of folders.
#define SMALL_FRAME __attribute__((noinline))

struct InputStrings {
    InputStrings *next;
    size_t used, capacity;
    char bytes[];
};

typedef struct {
    ino_t inode;
    uint32_t device; // the 12 and 20 bits of its numbers
    uint32_t file;   // its number
} Identity;

static uint32_t device_number(const struct stat *st) { return (uint32_t)(major(st->st_dev) << 20 | minor(st->st_dev)); }

typedef struct {
    Inputs *inputs;
    const InputFilter *filter;
    Buffer files, folders, names, identities;
    Buffer open;        // Identity of each directory from the argument to the one being visited
    Buffer path;        // of the file or directory being visited, without NUL
    size_t root_length; // of the argument in `path`
    uint32_t argument;
    uint64_t dangling;
    bool reads_urls;
    RemoteList urls;
    size_t next_url;
    // Of the argument:
    bool has_records;
    Buffer about;            // the numbers of the files that are FOLDER_FILE_ABOUT
    const char *first_about; // the path of the first
} Walk;

// Strings are stored in chunks, so that 8 million paths need no more memory than their bytes.
static char *keep_string(InputStrings **chunks, const void *string, size_t length) {
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

// The folder that the first bytes of the path name, or "" for a file that the user named.
typedef struct {
    uint32_t number;
    size_t length;
} Folder;

static Folder add_folder(Walk *walk, size_t length) {
    const InputFolder folder = {keep_string(&walk->inputs->strings, walk->path.data, length), walk->argument, false};
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

// The files in folders that hold no documents, by their names.
typedef enum {
    FOLDER_FILE_OTHER,
    FOLDER_FILE_RECORDS, // Parquet or JSON lines, also compressed
    FOLDER_FILE_ABOUT,   // what repositories of data sets have beside those: README.md, LICENSE, dataset_infos.json
    FOLDER_FILE_INDEX    // what Spark, dask and fastparquet write beside Parquet, and rows that a job has not committed
} FolderFile;

static bool has_record_extension(const char *name) {
    static const char *const extensions[] = {".parquet", ".jsonl", ".ndjson", ".json"}; // a .json only if compressed
    char base[NAME_MAX + 1];
    snprintf(base, sizeof base, "%s", name);
    const bool compressed = codec_strip_extension(base);
    const char *dot = strrchr(base, '.');
    for (size_t i = 0; dot && i < sizeof extensions / sizeof *extensions; i++)
        if (!strcasecmp(dot, extensions[i])) return compressed || strcmp(extensions[i], ".json");
    return false;
}

// Databricks names the files of a commit _started_ID and _committed_ID.
static FolderFile folder_file(const char *name) {
    static const struct {
        const char *name; // ends in _: the beginning of a name
        FolderFile kind;
    } names[] = {
        {"_SUCCESS", FOLDER_FILE_INDEX},
        {"_common_metadata", FOLDER_FILE_INDEX},
        {"_metadata", FOLDER_FILE_INDEX},
        {"_temporary", FOLDER_FILE_INDEX},
        {"_started_", FOLDER_FILE_INDEX},
        {"_committed_", FOLDER_FILE_INDEX},
        {"LICENSE", FOLDER_FILE_ABOUT},
        {"README.md", FOLDER_FILE_ABOUT},
        {"dataset_infos.json", FOLDER_FILE_ABOUT},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t size = strlen(names[i].name);
        if (!strncmp(name, names[i].name, size) && (!name[size] || names[i].name[size - 1] == '_'))
            return names[i].kind;
    }
    return has_record_extension(name) ? FOLDER_FILE_RECORDS : FOLDER_FILE_OTHER;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

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
        if (entry->d_name[0] == '.' || folder_file(entry->d_name) == FOLDER_FILE_INDEX) continue;
        bool is_directory = entry->d_type == DT_DIR;
        struct stat st;
        if (entry->d_type == DT_UNKNOWN || entry->d_type == DT_LNK) // add_listed names one that has no target
            is_directory = fstatat(dirfd(directory), entry->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode);
        int length = snprintf(text, sizeof text, "%s%s", entry->d_name, is_directory ? "/" : "");
        char *kept = keep_string(&names->strings, text, (size_t)length);
        buffer_add(&names->list, &kept, sizeof kept);
    }
    if (status == 0 && errno) status = fail_errno("cannot read directory '%s'", path_string(walk));
    closedir(directory);
    if (names->list.size) qsort(names->list.data, names->list.size / sizeof(char *), sizeof(char *), by_text);
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

// Notes whether the file that is about to be added is one of records or about them.
static void note_kind(Walk *walk, const char *name) {
    const FolderFile kind = folder_file(name);
    const uint64_t number = walk->files.size / sizeof(InputFile);
    walk->has_records |= kind == FOLDER_FILE_RECORDS;
    if (kind != FOLDER_FILE_ABOUT) return;
    if (!walk->about.size) walk->first_about = keep_string(&walk->inputs->strings, path_string(walk), walk->path.size);
    buffer_add(&walk->about, &number, sizeof number);
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
        note_kind(walk, name);
        return refuse_dataset(walk, name) < 0 ? -1 : add_file(walk, &st, folder);
    }
    log_warn("skipped '%s': it is no regular file", path_string(walk));
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
    free_strings(names.strings);
    return status;
}

// Where a folder has Parquet or JSON lines, a README.md in it is no document, unless --include names it.
static void leave_out_about(Walk *walk) {
    const uint64_t *about = (const uint64_t *)(void *)walk->about.data;
    const uint64_t count = walk->about.size / sizeof *about, files = walk->files.size / sizeof(InputFile);
    InputFile *file = (InputFile *)(void *)walk->files.data;
    Identity *identity = (Identity *)(void *)walk->identities.data;
    if (!count || !walk->has_records || walk->filter->include.count) return;
    log_warn("skipped '%s': it is about the Parquet or JSON lines files of its folder", walk->first_about);
    if (count > 1) log_warn("skipped %" PRIu64 " files of that kind", count);
    uint64_t kept = about[0];
    for (uint64_t i = kept, next = 0; i < files; i++) {
        if (next < count && about[next] == i) {
            next++;
            continue;
        }
        file[kept] = file[i], identity[kept] = identity[i];
        identity[kept].file = (uint32_t)kept, kept++;
    }
    walk->files.size = kept * sizeof *file, walk->identities.size = kept * sizeof *identity;
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
    int status = remote_table_refuse(walk->inputs->remote, argument);
    walk->inputs->arguments[walk->argument].path =
        keep_string(&walk->inputs->strings, argument->name, strlen(argument->name));
    walk->path.size = 0, walk->has_records = false, walk->about.size = 0;
    if (argument->folder_length) buffer_add(&walk->path, argument->entries->name, argument->folder_length);
    const Folder folder = add_folder(walk, argument->folder_length);
    ((InputFolder *)(void *)walk->folders.data)[folder.number].is_remote = true;
    for (size_t i = 0; status == 0 && i < argument->count; i++) {
        const char *name = argument->entries[i].name, *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
        walk->path.size = 0;
        buffer_add(&walk->path, name, strlen(name));
        if (argument->folder_length) {
            if (*base == '.' || folder_file(base) == FOLDER_FILE_INDEX || strstr(name, "/_temporary/")) continue;
            if (!input_is_wanted(walk->filter, name + argument->folder_length)) continue;
            note_kind(walk, base);
        }
        status = add_remote_file(walk, &argument->entries[i], folder);
    }
    if (status == 0) leave_out_about(walk);
    return status;
}

// Lists what the URLs among the arguments name.
static int list_urls(Walk *walk, char **arguments, size_t count) {
    Buffer urls = {0};
    int status = 0;
    for (size_t i = 0; i < count; i++)
        if (walk->reads_urls && remote_is_url(arguments[i])) buffer_add(&urls, &arguments[i], sizeof *arguments);
    const char **list = (const char **)(void *)urls.data;
    if (urls.size) {
        walk->inputs->remote = remote_open(&walk->filter->remote, list[0]);
        status = walk->inputs->remote
                     ? remote_list_open(&walk->urls, walk->inputs->remote, list, urls.size / sizeof *list)
                     : -1;
    }
    buffer_close(&urls);
    return status;
}

static int walk_argument(Walk *walk, const char *path) {
    struct stat st;
    if (walk->reads_urls && remote_is_url(path)) return walk_url(walk);
    if (walk->reads_urls && strstr(path, "://") && !url_map_file_exists(path))
        return fail(EX_USAGE, "'%.60s' is no URL that is read: https://, s3:// or hf://, in small letters", path);
    walk->path.size = 0;
    buffer_add(&walk->path, path, strlen(path));
    walk->root_length = walk->path.size;
    if (!strcmp(path, "-")) {
        if (fstat(STDIN_FILENO, &st)) return fail_errno("cannot read standard input");
        st.st_mode = S_IFIFO; // even a file: its read position is not known
        walk->inputs->arguments[walk->argument].stream = true;
        return add_file(walk, &st, add_folder(walk, 0));
    }
    if (stat(path, &st)) return fail_errno("cannot open '%s'", path);
    if (S_ISDIR(st.st_mode)) {
        walk->has_records = false, walk->about.size = 0;
        int status = walk_directory(walk);
        leave_out_about(walk);
        return status;
    }
    if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode))
        return fail(EX_NOINPUT, "'%s' is neither a file nor a directory", path);
    walk->inputs->arguments[walk->argument].stream = !S_ISREG(st.st_mode);
    return add_file(walk, &st, add_folder(walk, 0));
}

const InputFolder *input_folder(const Inputs *inputs, const InputFile *file) { return &inputs->folders[file->folder]; }

const char *input_path(const Inputs *inputs, const InputFile *file, char path[static PATH_MAX_BYTES]) {
    snprintf(path, PATH_MAX_BYTES, "%s%s", input_folder(inputs, file)->path, inputs->names + file->name);
    return path;
}

bool input_entry(const Inputs *inputs, const InputFile *file, char path[static PATH_MAX_BYTES], RemoteEntry *entry) {
    input_path(inputs, file, path);
    if (!input_folder(inputs, file)->is_remote) return false;
    const char *name = inputs->names + file->name, *query = name + strlen(name) + 1;
    *entry = (RemoteEntry){path, query, query + strlen(query) + 1, file->bytes};
    return true;
}

int input_fail_in(const Inputs *inputs, uint64_t file, uint64_t document) {
    char path[PATH_MAX_BYTES];
    return fail_in("'%s' document %" PRIu64, input_path(inputs, &inputs->files[file], path), document);
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
        char path[PATH_MAX_BYTES], other[PATH_MAX_BYTES];
        input_path(walk->inputs, one, path), input_path(walk->inputs, two, other);
        if (!strcmp(path, other) && strstr(path, "://"))
            return fail(EX_USAGE, "'%s' twice: URLs that differ in their query alone are one file", path);
        if (input_folder(walk->inputs, one)->argument != input_folder(walk->inputs, two)->argument)
            return fail(EX_USAGE, "the same file twice: '%s' and '%s'", path, other);
        if (!linked++) log_warn("skipped '%s': the same file as '%s'", other, path);
        two->folder = SKIPPED;
    }
    if (linked > 1) log_warn("skipped %" PRIu64 " further names of files", linked);
    for (uint64_t i = 0; linked && i < count; i++)
        if (files[i].folder != SKIPPED) files[kept++] = files[i];
    if (linked) walk->files.size = kept * sizeof *files;
    return 0;
}

static int refuse_unreadable(const Inputs *inputs) {
    TableSearch search = {0};
    for (uint64_t i = 0; i < inputs->file_count; i++) {
        const InputFile *file = &inputs->files[i];
        char path[PATH_MAX_BYTES];
        input_path(inputs, file, path);
        const InputFolder *folder = input_folder(inputs, file);
        if (!folder->is_remote && !inputs->arguments[folder->argument].stream && access(path, R_OK))
            return fail_errno("cannot open '%s'", path);
        char root[PATH_MAX_BYTES];
        const TableFormat *format = folder->is_remote ? NULL : table_around(&search, path, root);
        if (format) return table_fail(format, path, root);
    }
    return 0;
}

// Adds the names in a file to `arguments`. They end in NUL if the file has a NUL, else in LF or CRLF.
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
        const size_t size = stop ? (size_t)(stop - text.data) - at : text.size - at;
        const size_t length = size - (size && end == '\n' && text.data[at + size - 1] == '\r');
        if (length) {
            char *name = keep_string(&inputs->strings, text.data + at, length);
            buffer_add(arguments, &name, sizeof name);
        }
        at += size + 1;
    }
    buffer_close(&text);
    return 0;
}

static int list_arguments(Inputs *inputs, int count, char **arguments, const InputFilter *filter, Buffer *list) {
    static char dash[] = "-", *standard_input[] = {dash};
    for (int i = 0; i < count && filter->files_from && !strcmp(filter->files_from, "-"); i++)
        if (!strcmp(arguments[i], "-"))
            return fail(EX_USAGE, "--files-from - and the input -: standard input is one of them");
    if (count) buffer_add(list, arguments, (size_t)count * sizeof *arguments);
    if (filter->files_from) return read_list(inputs, list, filter->files_from);
    if (!count) buffer_add(list, standard_input, sizeof standard_input);
    if (!count && isatty(STDIN_FILENO)) log_line("reading the terminal, up to Ctrl-D: no INPUT was named");
    return 0;
}

// Counts the files of the arguments.
static void set_arguments(Inputs *inputs) {
    inputs->bytes = 0;
    for (uint64_t i = 0; i < inputs->argument_count; i++) inputs->arguments[i].files = inputs->arguments[i].bytes = 0;
    for (uint64_t i = 0; i < inputs->file_count; i++) {
        const InputFile *file = &inputs->files[i];
        InputArgument *argument = &inputs->arguments[input_folder(inputs, file)->argument];
        argument->files++;
        argument->bytes += file->bytes;
        inputs->bytes += file->bytes;
    }
}

int inputs_open(Inputs *inputs, int count, char **arguments, const InputFilter *filter) {
    static const InputFilter everything;
    *inputs = (Inputs){.filter = filter ? filter : &everything};
    Buffer list = {0};
    Walk walk = {.inputs = inputs, .filter = inputs->filter, .reads_urls = filter};
    int status = list_arguments(inputs, count, arguments, walk.filter, &list);
    char **sorted = (char **)(void *)list.data;
    size_t total = list.size / sizeof *sorted;
    if (total) qsort(sorted, total, sizeof *sorted, by_text);
    inputs->arguments = allocate_zeroed(total + 1, sizeof *inputs->arguments);
    inputs->argument_count = total;
    if (status == 0) status = list_urls(&walk, sorted, total);
    for (; status == 0 && walk.argument < total; walk.argument++) {
        inputs->arguments[walk.argument].path = sorted[walk.argument];
        status = walk_argument(&walk, sorted[walk.argument]);
    }
    if (walk.dangling > 1) log_warn("skipped %" PRIu64 " links to files that do not exist", walk.dangling);
    inputs->folders = (InputFolder *)(void *)walk.folders.data, inputs->names = (char *)walk.names.data;
    inputs->folder_count = walk.folders.size / sizeof *inputs->folders, inputs->names_bytes = walk.names.size;
    if (status == 0) status = refuse_twice(&walk);
    buffer_close(&walk.identities);
    buffer_close(&walk.open);
    buffer_close(&walk.path);
    buffer_close(&walk.about);
    buffer_close(&list);
    remote_list_close(&walk.urls);
    inputs->files = (InputFile *)(void *)walk.files.data;
    inputs->file_count = walk.files.size / sizeof *inputs->files;
    if (status == 0) set_arguments(inputs), status = refuse_unreadable(inputs);
    if (status < 0) inputs_close(inputs);
    return status;
}

void inputs_hash(const Inputs *inputs, bool times, uint8_t hash[32]) {
    Sha256 sha;
    sha256_open(&sha);
    for (uint64_t i = 0; i < inputs->argument_count; i++) {
        const InputArgument *argument = &inputs->arguments[i];
        sha256_add(&sha, argument->path, strlen(argument->path) + 1);
        sha256_add(&sha, &argument->files, sizeof argument->files);
        sha256_add(&sha, &argument->bytes, sizeof argument->bytes);
        sha256_add(&sha, argument->digest, sizeof argument->digest);
        if (times) sha256_add(&sha, &argument->times, sizeof argument->times);
    }
    const StringList *const lists[] = {&inputs->filter->include, &inputs->filter->exclude};
    for (size_t i = 0; times && i < 2; i++)
        for (size_t j = 0; j < lists[i]->count; j++)
            sha256_add(&sha, lists[i]->items[j], strlen(lists[i]->items[j]) + 1);
    sha256_close(&sha, hash);
}

static void *grown(void *array, uint64_t bytes) {
    void *larger = realloc(array, bytes);
    if (!larger) die(EX_MEMORY, "no memory for a list of files");
    return larger;
}

void inputs_add_names(Inputs *inputs, const char *const *names, unsigned count) {
    inputs->files = grown(inputs->files, (inputs->file_count + count) * sizeof *inputs->files);
    inputs->folders = grown(inputs->folders, (inputs->folder_count + 1) * sizeof *inputs->folders);
    inputs->folders[inputs->folder_count] = (InputFolder){"", 0, false};
    for (unsigned i = 0; i < count; i++) {
        const size_t size = names[i] ? strlen(names[i]) + 1 : 1;
        inputs->names = grown(inputs->names, inputs->names_bytes + size);
        memcpy(inputs->names + inputs->names_bytes, names[i] ? names[i] : "", size);
        inputs->files[inputs->file_count + i] =
            (InputFile){.name = (uint32_t)inputs->names_bytes, .folder = (uint32_t)inputs->folder_count};
        inputs->names_bytes += size;
    }
    inputs->folder_count++;
}

void inputs_keep_every(Inputs *inputs, uint64_t first, uint64_t step) {
    uint64_t files = 0;
    uint32_t *numbers = allocate_zeroed(inputs->argument_count + 1, sizeof *numbers), arguments = 0;
    for (uint64_t i = first; i < inputs->file_count; i += step) inputs->files[files++] = inputs->files[i];
    inputs->file_count = files;
    set_arguments(inputs);
    for (uint64_t i = 0; i < inputs->argument_count; i++) {
        numbers[i] = arguments;
        if (inputs->arguments[i].files) inputs->arguments[arguments++] = inputs->arguments[i];
    }
    for (uint64_t i = 0; i < inputs->folder_count; i++)
        inputs->folders[i].argument = numbers[inputs->folders[i].argument];
    inputs->argument_count = arguments;
    free(numbers);
}

void inputs_close(Inputs *inputs) {
    free(inputs->files);
    free(inputs->folders);
    free(inputs->names);
    free(inputs->arguments);
    free_strings(inputs->strings);
    remote_close(inputs->remote);
    *inputs = (Inputs){0};
}
