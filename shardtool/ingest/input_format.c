// Streams, and the choice of the format that reads one.
#include "shardtool/ingest/input_format.h"
#include "common/err.h"
#include "shardtool/format/shard.h"
#include <ctype.h>
#include <stdio.h>

static const InputFormat formats[] = {
#define INPUT_FORMAT(...) INPUT_FORMAT_ROW(__VA_ARGS__),
#include "shardtool/ingest/input_formats.def"
#undef INPUT_FORMAT
};
enum { FORMAT_COUNT = sizeof formats / sizeof *formats };

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

ssize_t stream_read_at(Stream *stream, uint64_t offset, void *data, size_t size) {
    return stream->read_at(stream, offset, data, size);
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

// Detects inputs that would otherwise be read as text without an error. Returns what the input is, or NULL.
static const char *find_refused(Bytes head) {
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

static int fail_no_format(const Stream *stream) {
    char titles[256] = "";
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        size_t used = strlen(titles);
        snprintf(titles + used, sizeof titles - used, "%s%s", i ? ", " : "", formats[i].title);
    }
    return fail(EX_DATA, "'%s' is binary and in none of the known formats (%s)", stream->name, titles);
}

int refuse_conditions(const Stream *stream, const SourceOptions *options) {
    if (!options->where.count) return 0;
    return fail(EX_DATA, "'%s' has no columns, so --where '%s' cannot choose its documents", stream->name,
                options->where.items[0]);
}

int reader_open(FormatReader **reader, Stream *stream, SourceOptions *options, int depth) {
    *reader = NULL;
    Bytes head;
    if (stream_peek(stream, &head) < 0) return -1;
    if (!head.size) return 0;
    const char *refused = find_refused(head);
    if (refused) return fail(EX_DATA, "'%s' %s", stream->name, refused);

    const InputFormat *best = NULL;
    int highest = 0;
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        int bid = formats[i].bid(head);
        if (bid > highest) highest = bid, best = &formats[i];
    }
    if (!best) return fail_no_format(stream);
    if (best->needs_seek && !stream->read_at)
        return fail(EX_DATA, "'%s': %s can only be read from a file, not from a pipe or an archive: unpack it first",
                    stream->name, best->title);
    *reader = best->open(stream, options, depth);
    if (!*reader) return -1;
    (*reader)->format = best;
    return 0;
}

int reader_next(FormatReader *reader, Part *part) { return reader->format->next(reader, part); }

void reader_close(FormatReader *reader) {
    if (reader) reader->format->close(reader);
}
