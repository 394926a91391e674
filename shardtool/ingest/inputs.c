// Lists and sorts the files that the arguments of a command name, refuses duplicates, and computes digests.
#include "shardtool/ingest/inputs.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/table_log.h"
#include "common/hash.h"
#include "common/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

enum { FILE_LIST_BYTES_MAX = 1 << 30 };
static const uint32_t SKIPPED = UINT32_MAX; // the folder of a further name of a file

const InputFolder *input_folder(const Inputs *inputs, const InputFile *file) { return &inputs->folders[file->folder]; }

const char *input_path(const Inputs *inputs, const InputFile *file, char path[static PATH_MAX_BYTES]) {
    snprintf(path, PATH_MAX_BYTES, "%s%s", input_folder(inputs, file)->path, inputs->names + file->name);
    return path;
}

static const char *skip_here(const char *path) {
    while (path[0] == '.' && path[1] == '/') path += 2;
    return path;
}

static bool is_outside(const char *path) {
    path = skip_here(path);
    return *path == '/' || (!strncmp(path, "..", 2) && (!path[2] || path[2] == '/'));
}

// Finds the folders that all arguments share which are not below this folder.
static void find_outside(Inputs *inputs) {
    for (uint64_t i = 0; i < inputs->argument_count; i++) {
        const char *path = inputs->arguments[i].path;
        if (!is_outside(path)) continue;
        if (!inputs->outside) inputs->outside = path, inputs->outside_bytes = strlen(path);
        size_t same = 0, length = strlen(path);
        while (length && path[length - 1] == '/') length--; // the last folder stays, also as "/data/"
        while (same < inputs->outside_bytes && same < length && path[same] == inputs->outside[same]) same++;
        while (same && inputs->outside[same - 1] != '/') same--;
        inputs->outside_bytes = same;
    }
}

const char *input_name(const Inputs *inputs, const InputFile *file, char name[static PATH_MAX_BYTES]) {
    char whole[PATH_MAX_BYTES];
    const char *path = input_path(inputs, file, whole);
    const char *scheme = strstr(path, "://"), *host = scheme ? scheme + 3 : NULL;
    if (host) {
        const size_t server = strcspn(host, "/?#");
        const char *user = memrchr(host, '@', server);
        const char *from = user ? user + 1 : host;
        snprintf(name, PATH_MAX_BYTES, "%.*s%.*s", (int)(host - path), path, (int)strcspn(from, "?#"), from);
        return name;
    }
    size_t same = 0, length = 0; // of `outside` that the path has; of `name`
    while (is_outside(path) && same < inputs->outside_bytes && path[same] == inputs->outside[same]) same++;
    while (same && inputs->outside[same - 1] != '/') same--;
    for (size_t i = same; same && i < inputs->outside_bytes && length + 4 < PATH_MAX_BYTES; i++)
        if (inputs->outside[i] == '/') length += (size_t)snprintf(name + length, PATH_MAX_BYTES - length, "../");
    path += same;
    for (path = skip_here(path); is_outside(path) && *path; path = skip_here(path)) path += *path == '/' ? 1 : 2;
    snprintf(name + length, PATH_MAX_BYTES - length, "%s", *path ? path : "-");
    return name;
}

void inputs_name_from(Inputs *inputs, const char *folder) {
    inputs->outside = folder, inputs->outside_bytes = strlen(folder);
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
static int refuse_twice(Inputs *inputs, Identity *identities) {
    InputFile *files = inputs->files;
    const uint64_t count = inputs->file_count;
    uint64_t linked = 0, kept = 0;
    if (count) qsort(identities, count, sizeof *identities, by_identity);
    for (uint64_t first = 0, i = 1; i < count; i++) {
        const Identity *a = &identities[first], *b = &identities[i];
        if (a->device != b->device || a->inode != b->inode) {
            first = i;
            continue;
        }
        InputFile *one = &files[a->file], *two = &files[b->file];
        char path[PATH_MAX_BYTES], other[PATH_MAX_BYTES];
        input_path(inputs, one, path), input_path(inputs, two, other);
        if (!strcmp(path, other) && strstr(path, "://"))
            return fail(EX_USAGE, "'%s' twice: URLs that differ in their query alone are one file", path);
        if (input_folder(inputs, one)->argument != input_folder(inputs, two)->argument)
            return fail(EX_USAGE, "the same file twice: '%s' and '%s'", path, other);
        if (!linked++) log_warn("skipped '%s': the same file as '%s'", other, path);
        two->folder = SKIPPED;
    }
    if (linked > 1) log_warn("skipped %" PRIu64 " further names of files", linked);
    for (uint64_t i = 0; linked && i < count; i++)
        if (files[i].folder != SKIPPED) files[kept++] = files[i];
    if (linked) inputs->file_count = kept;
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
static int read_list(InputStrings **strings, Buffer *arguments, const char *path) {
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
            char *name = input_string(strings, text.data + at, length);
            buffer_add(arguments, &name, sizeof name);
        }
        at += size + 1;
    }
    buffer_close(&text);
    return 0;
}

static int list_arguments(Walk *walk, int count, char **arguments, Buffer *list) {
    static char dash[] = "-", *standard_input[] = {dash};
    const InputFilter *filter = walk->filter;
    for (int i = 0; i < count && filter->files_from && !strcmp(filter->files_from, "-"); i++)
        if (!strcmp(arguments[i], "-"))
            return fail(EX_USAGE, "--files-from - and the input -: standard input is one of them");
    if (count) buffer_add(list, arguments, (size_t)count * sizeof *arguments);
    if (filter->files_from) return read_list(&walk->strings, list, filter->files_from);
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

static void take_walk(Inputs *inputs, const Walk *walk) {
    inputs->strings = walk->strings, inputs->remote = walk->remote;
    inputs->folders = (InputFolder *)(void *)walk->folders.data, inputs->names = (char *)walk->names.data;
    inputs->folder_count = walk->folders.size / sizeof *inputs->folders, inputs->names_bytes = walk->names.size;
    inputs->files = (InputFile *)(void *)walk->files.data;
    inputs->file_count = walk->files.size / sizeof *inputs->files;
}

int inputs_open(Inputs *inputs, int count, char **arguments, const InputFilter *filter) {
    static const InputFilter everything;
    *inputs = (Inputs){.filter = filter ? filter : &everything};
    Buffer list = {0};
    Walk walk = {.filter = inputs->filter, .reads_urls = filter};
    int status = list_arguments(&walk, count, arguments, &list);
    char **sorted = (char **)(void *)list.data;
    size_t total = list.size / sizeof *sorted;
    if (total) qsort(sorted, total, sizeof *sorted, input_by_text);
    walk.arguments = inputs->arguments = allocate_zeroed(total + 1, sizeof *inputs->arguments);
    inputs->argument_count = total;
    if (status == 0) status = walk_list_urls(&walk, sorted, total);
    for (; status == 0 && walk.argument < total; walk.argument++) status = walk_argument(&walk, sorted[walk.argument]);
    inputs->about = walk.about;
    if (walk.dangling > 1) log_warn("skipped %" PRIu64 " links to files that do not exist", walk.dangling);
    take_walk(inputs, &walk);
    if (status == 0) status = refuse_twice(inputs, (Identity *)(void *)walk.identities.data);
    walk_close(&walk);
    buffer_close(&list);
    if (status == 0) find_outside(inputs);
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
    input_strings_free(inputs->strings);
    remote_close(inputs->remote);
    *inputs = (Inputs){0};
}

// ---- digests: of a file its size, first and last bytes, of a remote one its size and validator

enum { DIGEST_BYTES = 65536 };

static int digest_file(XXH3_state_t *state, const Inputs *inputs, const InputFile *file, uint8_t *block,
                       InputArgument *argument) {
    struct stat st;
    char path[PATH_MAX_BYTES];
    RemoteEntry entry;
    if (input_entry(inputs, file, path, &entry)) {
        XXH3_128bits_update(state, path, strlen(path) + 1);
        XXH3_128bits_update(state, &file->bytes, sizeof file->bytes);
        XXH3_128bits_update(state, entry.validator, strlen(entry.validator) + 1);
        return 0;
    }
    int fd = file_open(path);
    if (fd < 0 || fstat(fd, &st)) {
        if (fd >= 0) close(fd);
        return fail_errno("cannot open '%s'", path);
    }
    argument->times = XXH3_64bits_withSeed(&st.st_mtim, sizeof st.st_mtim, argument->times);
    uint64_t modified_ns = file_modified_ns(&st);
    if (modified_ns > argument->newest_ns) argument->newest_ns = modified_ns;
    XXH3_128bits_update(state, path, strlen(path) + 1);
    XXH3_128bits_update(state, &file->bytes, sizeof file->bytes);
    ssize_t got = fd_read(fd, block, DIGEST_BYTES, path);
    if (got > 0) XXH3_128bits_update(state, block, (size_t)got);
    if (got == DIGEST_BYTES && file->bytes > DIGEST_BYTES) {
        uint64_t tail = file->bytes - DIGEST_BYTES < DIGEST_BYTES ? DIGEST_BYTES : file->bytes - DIGEST_BYTES;
        if (lseek(fd, (off_t)tail, SEEK_SET) < 0)
            got = fail_errno("cannot seek in '%s'", path);
        else
            got = fd_read(fd, block, DIGEST_BYTES, path);
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
        for (; status == 0 && at < inputs->file_count && input_folder(inputs, &inputs->files[at])->argument == i; at++)
            if (!argument->stream) status = digest_file(state, inputs, &inputs->files[at], block.data, argument);
        XXH128_canonical_t digest;
        XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state));
        if (!argument->stream) memcpy(argument->digest, &digest, sizeof argument->digest);
    }
    buffer_close(&block);
    XXH3_freeState(state);
    return status;
}
