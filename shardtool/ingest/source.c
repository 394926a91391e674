// Walks over all files and reads each with the format that fits.
#include "shardtool/ingest/source.h"
#include "common/err.h"
#include "remote/remote_file.h"
#include "shardtool/ingest/access_points.h"
#include "shardtool/ingest/input_format.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    Stream stream;
    int fd;
    RemoteFile *remote;       // in place of fd; NULL for a file of this machine
    bool regular;             // an argument or in a folder; not standard input, to which lines may be added
    bool indexed;             // was read at any offset
    Bytes head;               // of standard input: what was read of it before
    uint64_t size;            // when the inputs were listed
    uint64_t bytes;           // read so far
    struct timespec modified; // when it was opened
} FileStream;

// The remote files that follow the one that is read. Their first bytes are requested ahead, so that small files do not
// take a round trip each.
enum { AHEAD_FILES = 16, AHEAD_BYTES = 8 << 20 };
typedef struct {
    RemoteFile *files[AHEAD_FILES];   // file number n at n % AHEAD_FILES; NULL: not opened, or none
    size_t sizes[AHEAD_FILES], bytes; // requested
    uint64_t end;                     // the first file that was not looked at
} FilesAhead;

struct Source {
    const Inputs *inputs;
    SourceOptions *options;
    uint64_t next_file, document, bytes_before; // bytes_before: of the files that are done
    uint64_t start_document;                    // of the first file, at `start`
    ReadPlace start;
    FileStream stream;
    FilesAhead ahead;
    FormatReader *reader;
};

// A file that was rewritten with the same size has another modification time. Without an open file, 0.
static int check_unchanged(const FileStream *file) {
    struct stat st;
    if (file->remote) return remote_file_check(file->remote);
    if (!(file->regular || file->indexed) || fstat(file->fd, &st)) return 0;
    if ((uint64_t)st.st_size != file->size)
        return fail(EX_IO, "'%s' changed while it was read: %" PRIu64 " bytes at first, now %lld", file->stream.name,
                    file->size, (long long)st.st_size);
    bool same = st.st_mtim.tv_sec == file->modified.tv_sec && st.st_mtim.tv_nsec == file->modified.tv_nsec;
    return same ? 0 : fail(EX_IO, "'%s' changed while it was read", file->stream.name);
}

static ssize_t file_read_some(Stream *stream, void *data, size_t size) {
    FileStream *file = (FileStream *)stream;
    const size_t before = file->head.size < size ? file->head.size : size;
    if (before) {
        memcpy(data, file->head.data, before);
        file->head.data += before, file->head.size -= before;
    }
    ssize_t got = fd_read(file->fd, (uint8_t *)data + before, size - before, stream->name);
    if (got < 0) return -1;
    got += (ssize_t)before;
    file->bytes += (uint64_t)got;
    if (file->regular && ((size_t)got < size ? file->bytes != file->size : file->bytes > file->size))
        return fail(EX_IO, "'%s' changed while it was read: %" PRIu64 " bytes at first, now at least %" PRIu64,
                    stream->name, file->size, file->bytes);
    return (size_t)got < size && check_unchanged(file) < 0 ? -1 : got;
}

static ssize_t file_read_at(Stream *stream, uint64_t offset, void *data, size_t size) {
    FileStream *file = (FileStream *)stream;
    ssize_t got = fd_read_at(file->fd, offset, data, size, stream->name);
    if (got > 0) file->bytes += (uint64_t)got;
    file->indexed = true;
    return got;
}

static int file_seek(Stream *stream, uint64_t offset) {
    FileStream *file = (FileStream *)stream;
    if (lseek(file->fd, (off_t)offset, SEEK_SET) < 0) return fail_errno("cannot seek in '%s'", stream->name);
    file->bytes = offset;
    return 0;
}

// `bytes` of a remote file is the place of the next `read`, and for the progress the most that was read.
static ssize_t remote_read_some(Stream *stream, void *data, size_t size) {
    FileStream *file = (FileStream *)stream;
    ssize_t got = remote_file_read_at(file->remote, file->bytes, data, size);
    if (got > 0) file->bytes += (uint64_t)got;
    return got;
}

static ssize_t remote_read_at(Stream *stream, uint64_t offset, void *data, size_t size) {
    FileStream *file = (FileStream *)stream;
    ssize_t got = remote_file_read_at(file->remote, offset, data, size);
    if (got > 0) file->bytes += (uint64_t)got;
    return got;
}

static int remote_seek(Stream *stream, uint64_t offset) {
    ((FileStream *)stream)->bytes = offset;
    return 0;
}

static void open_ahead(Source *source) {
    FilesAhead *ahead = &source->ahead;
    const Inputs *inputs = source->inputs;
    char path[PATH_MAX_BYTES];
    RemoteEntry entry;
    if (ahead->end < source->next_file) ahead->end = source->next_file;
    for (; ahead->end < inputs->file_count && ahead->end < source->next_file + AHEAD_FILES; ahead->end++) {
        const size_t slot = ahead->end % AHEAD_FILES;
        if (ahead->bytes >= AHEAD_BYTES) return;
        if (!input_entry(inputs, &inputs->files[ahead->end], path, &entry)) continue;
        ahead->files[slot] = remote_file_open(inputs->remote, &entry);
        if (!ahead->files[slot]) return err_clear(); // it fails again when it is read
        ahead->bytes += ahead->sizes[slot] = remote_file_begin(ahead->files[slot]);
    }
}

static RemoteFile *take_ahead(FilesAhead *ahead, uint64_t number) {
    const size_t slot = number % AHEAD_FILES;
    RemoteFile *file = ahead->files[slot];
    if (file) ahead->bytes -= ahead->sizes[slot];
    ahead->files[slot] = NULL;
    return file;
}

static int open_remote(Source *source, const RemoteEntry *entry) {
    FileStream *file = &source->stream;
    Stream *stream = &file->stream;
    file->regular = false, file->fd = -1;
    file->remote = take_ahead(&source->ahead, source->next_file - 1);
    if (!file->remote) file->remote = remote_file_open(source->inputs->remote, entry);
    bool in_order = false;
    int status = file->remote ? remote_file_find_order(file->remote, &in_order) : -1;
    stream->read = remote_read_some;
    stream->read_at = in_order ? NULL : remote_read_at, stream->seek = in_order ? NULL : remote_seek;
    if (status == 0) status = reader_open(&source->reader, stream, source->options);
    if (status == 0) open_ahead(source);
    return status;
}

static int open_file(Source *source) {
    const InputFile *file = &source->inputs->files[source->next_file++];
    const InputFolder *folder = input_folder(source->inputs, file);
    char path[PATH_MAX_BYTES];
    RemoteEntry entry;
    const bool is_remote = input_entry(source->inputs, file, path, &entry);
    bool is_stdin = !strcmp(path, "-");
    FileStream *stream = &source->stream;
    stream->stream = (Stream){.read = file_read_some};
    stream->regular = !source->inputs->arguments[folder->argument].stream, stream->size = file->bytes;
    if (stream->regular)
        stream->stream.read_at = file_read_at, stream->stream.seek = file_seek, stream->stream.size = file->bytes;
    stream_name(&stream->stream, is_stdin ? "standard input" : path, NULL);
    stream->stream.is_listed = *folder->path != 0;
    stream->fd = is_remote ? -1 : is_stdin ? dup(STDIN_FILENO) : file_open(path);
    stream->bytes = 0, stream->indexed = false;
    stream->head = is_stdin ? source->options->head : (Bytes){0};
    if (source->options->points) source->options->points->file = source->next_file - 1;
    source->document = source->start_document;
    stream->stream.start = source->start;
    source->start_document = 0, source->start = (ReadPlace){0};
    if (is_remote) return open_remote(source, &entry);
    struct stat st;
    if (stream->fd < 0 || fstat(stream->fd, &st)) return fail_errno("cannot open '%s'", stream->stream.name);
    stream->modified = st.st_mtim;
    if (is_stdin && S_ISREG(st.st_mode) && lseek(stream->fd, 0, SEEK_CUR) == 0)
        stream->stream.read_at = file_read_at, stream->stream.size = stream->size = (uint64_t)st.st_size;
    return reader_open(&source->reader, &stream->stream, source->options);
}

static void close_file(Source *source) {
    reader_close(source->reader);
    source->reader = NULL;
    if (source->stream.fd >= 0) close(source->stream.fd);
    source->stream.fd = -1;
    remote_file_close(source->stream.remote);
    source->stream.remote = NULL;
    source->bytes_before += source->stream.bytes;
    source->stream.bytes = 0;
}

Source *source_open(const Inputs *inputs, SourceOptions *options) {
    Source *source = allocate_zeroed(1, sizeof *source);
    source->inputs = inputs, source->options = options;
    options->filter = inputs->filter, options->about = inputs->about;
    source->stream.fd = -1;
    return source;
}

void source_start(Source *source, uint64_t file, ReadPlace place, uint64_t document) {
    for (; source->next_file < file; source->next_file++)
        source->bytes_before += source->inputs->files[source->next_file].bytes;
    source->start = place, source->start_document = document;
}

// Skips the rest of a file after fail(). If the file has changed, that may be the cause of the error.
static int skip_file(Source *source, Part *part) {
    Error error;
    const RemoteFile *remote = source->stream.remote;
    if (remote && remote_file_has_failed(remote)) return -1; // not bad data, but none
    err_take(&error);
    if (check_unchanged(&source->stream) < 0) return -1;
    err_give(&error);
    int status = reader_skip(source->reader, &source->stream.stream, source->options, part);
    if (status < 0) return -1;
    reader_close(source->reader);
    source->reader = NULL;
    return status;
}

// The name of a stream begins with that of the file.
static void cut_member(const Source *source, Part *part) {
    const size_t outer = strlen(source->stream.stream.name);
    if (part->member) part->member += outer + (part->member[outer] != 0);
}

int source_next(Source *source, Part *part) {
    const uint64_t replaced = source->options->replaced;
    for (;;) {
        if (source->reader) {
            int status = reader_next(source->reader, part);
            if (status < 0) status = skip_file(source, part);
            if (status != 0) {
                if (status > 0) source->document += part->skipped;
                part->file = source->next_file - 1, part->document = source->document;
                part->replaced = source->options->replaced - replaced;
                part->record = part->line ? part->line - 1 : part->document;
                if (status > 0) cut_member(source, part);
                if (status > 0 && !part->has_place) part->place = (ReadPlace){0}, part->preceding = source->document;
                if (status > 0) source->document += part->last, source->options->skips.documents += part->last;
                return status;
            }
        }
        if (check_unchanged(&source->stream) < 0) return -1;
        close_file(source);
        if (source->next_file == source->inputs->file_count) return 0;
        if (open_file(source) < 0 && skip_file(source, part) < 0) return -1;
    }
}

int source_fail_in(const Source *source, const Part *part) {
    return input_fail_in(source->inputs, part->file, part->document);
}

uint64_t source_bytes_read(const Source *source) { return source->bytes_before + source->stream.bytes; }

int source_check(const Source *source) { return check_unchanged(&source->stream); }

bool source_is_remote(const Source *source, uint64_t *file) {
    *file = source->next_file - 1;
    return source->stream.remote;
}

void source_close(Source *source) {
    if (!source) return;
    close_file(source);
    for (uint64_t i = 0; i < AHEAD_FILES; i++) remote_file_close(take_ahead(&source->ahead, i));
    free(source);
}
