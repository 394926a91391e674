// From files to documents: the list of formats, what is refused by name, and the walk over all files.
#include "shardtool/ingest/source.h"
#include "common/err.h"
#include "shardtool/format/shard.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const Format *const formats[] = {&format_archive, &format_jsonl, &format_text};

int stream_peek(Stream *stream, Bytes *head) {
    if (!stream->head_size) {
        ssize_t got = stream->read(stream, stream->head, sizeof stream->head);
        if (got < 0) return -1;
        stream->head_size = (size_t)got;
    }
    *head = (Bytes){stream->head, stream->head_size};
    return 0;
}

ssize_t stream_read(Stream *stream, void *data, size_t size) {
    size_t left = stream->head_size - stream->head_at, take = left < size ? left : size;
    memcpy(data, stream->head + stream->head_at, take);
    stream->head_at += take;
    if (take == size || (stream->head_size && stream->head_size < sizeof stream->head)) return (ssize_t)take;
    ssize_t got = stream->read(stream, (uint8_t *)data + take, size - take);
    return got < 0 ? -1 : (ssize_t)take + got;
}

void stream_name(Stream *stream, const char *outer, const char *member) {
    snprintf(stream->name, sizeof stream->name, "%s%s%s", outer, member ? ":" : "", member ? member : "");
    for (char *p = stream->name; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7F) *p = '?';
}

static bool starts_with(Bytes head, const char *text) {
    size_t length = strlen(text);
    return head.size >= length && !strncasecmp((const char *)head.data, text, length);
}

// What lies where data was expected, or NULL: these would all make a bad document and no complaint.
static const char *find_stranger(Bytes head) {
    size_t shard = sizeof SHARD_OPENING - 1;
    if (head.size >= shard + 16 && !memcmp(head.data, SHARD_OPENING, shard) &&
        get_u32(head.data + shard) == SHARD_HEADER_MAGIC && !memcmp(head.data + shard + SKIPPABLE_BYTES, "SHRDHDR1", 8))
        return "is a shard already: use cat, decode or merge";
    if (starts_with(head, "version https://git-lfs.github.com/"))
        return "is a git-lfs pointer, not the file itself: run 'git lfs pull'";
    while (head.size && isspace(*head.data)) head.data++, head.size--;
    if (starts_with(head, "<!doctype html") || starts_with(head, "<html"))
        return "is an HTML page, perhaps the error page of a failed download";
    return NULL;
}

int reader_open(FormatReader **reader, Stream *stream, SourceOptions *options, int depth) {
    *reader = NULL;
    Bytes head;
    if (stream_peek(stream, &head) < 0) return -1;
    if (!head.size) return 0;
    const char *stranger = find_stranger(head);
    if (stranger) return fail(EX_DATA, "'%s' %s", stream->name, stranger);

    const Format *best = NULL;
    int highest = 0;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        int bid = formats[i]->bid(head);
        if (bid > highest) highest = bid, best = formats[i];
    }
    if (!best)
        return fail(EX_DATA, "'%s' is binary and no known format (text, JSON lines, tar; gz, xz, zst)", stream->name);
    *reader = best->open(stream, options, depth);
    return *reader ? 0 : -1;
}

void reader_close(FormatReader *reader) {
    if (reader) reader->format->close(reader);
}

typedef struct {
    Stream stream;
    int fd;
    const InputFile *file;
    uint64_t bytes; // read so far
} FileStream;

struct Source {
    const Inputs *inputs;
    SourceOptions *options;
    uint64_t next_file, document, bytes_before; // bytes_before: of the files that are done
    FileStream stream;
    FormatReader *reader;
};

static ssize_t file_read_some(Stream *stream, void *data, size_t size) {
    FileStream *file = (FileStream *)stream;
    ssize_t got = fd_read(file->fd, data, size, stream->name);
    if (got < 0) return -1;
    file->bytes += (uint64_t)got;
    if (file->file->regular &&
        ((size_t)got < size ? file->bytes != file->file->bytes : file->bytes > file->file->bytes))
        return fail(EX_IO, "'%s' changed while it was read: %" PRIu64 " bytes at first, now at least %" PRIu64,
                    stream->name, file->file->bytes, file->bytes);
    return got;
}

static int open_file(Source *source) {
    const InputFile *file = &source->inputs->files[source->next_file++];
    bool is_stdin = !strcmp(file->path, "-");
    FileStream *stream = &source->stream;
    stream->stream = (Stream){.read = file_read_some};
    stream_name(&stream->stream, is_stdin ? "standard input" : file->path, NULL);
    stream->fd = is_stdin ? dup(STDIN_FILENO) : open(file->path, O_RDONLY | O_CLOEXEC);
    stream->file = file;
    stream->bytes = 0;
    source->document = 0;
    if (stream->fd < 0) return fail_errno("cannot open '%s'", stream->stream.name);
    return reader_open(&source->reader, &stream->stream, source->options, 0);
}

static void close_file(Source *source) {
    reader_close(source->reader);
    source->reader = NULL;
    if (source->stream.fd >= 0) close(source->stream.fd);
    source->stream.fd = -1;
    source->bytes_before += source->stream.bytes;
    source->stream.bytes = 0;
}

Source *source_open(const Inputs *inputs, SourceOptions *options) {
    Source *source = calloc(1, sizeof *source);
    if (!source) die(EX_MEMORY, "no memory for a reader");
    source->inputs = inputs, source->options = options;
    source->stream.fd = -1;
    return source;
}

int source_next(Source *source, Part *part) {
    for (;;) {
        if (source->reader) {
            int status = source->reader->format->next(source->reader, part);
            if (status != 0) {
                part->file = source->next_file - 1, part->document = source->document;
                if (status > 0) source->document += part->last;
                return status;
            }
        }
        close_file(source);
        if (source->next_file == source->inputs->file_count) return 0;
        if (open_file(source) < 0) return -1;
    }
}

uint64_t source_bytes_read(const Source *source) { return source->bytes_before + source->stream.bytes; }

void source_close(Source *source) {
    if (!source) return;
    close_file(source);
    free(source);
}
