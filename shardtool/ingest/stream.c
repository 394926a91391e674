// Reads streams: the first bytes ahead of the rest, forward, or from a copy in a temporary file.
#include "shardtool/ingest/stream.h"
#include "common/err.h"
#include "common/file/spool.h"
#include "common/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int stream_peek(Stream *stream, Bytes *head) {
    if (!stream->head_size) {
        ssize_t got = stream->read(stream, stream->head, sizeof stream->head);
        if (got < 0) return -1;
        assert((size_t)got <= sizeof stream->head);
        stream->head_size = (size_t)got;
    }
    *head = (Bytes){stream->head, stream->head_size};
    return 0;
}

ssize_t stream_read(Stream *stream, void *data, size_t size) {
    assert(stream->head_at <= stream->head_size);
    size_t left = stream->head_size - stream->head_at, take = left < size ? left : size;
    memcpy(data, stream->head + stream->head_at, take);
    stream->head_at += take;
    if (take == size || (stream->head_size && stream->head_size < sizeof stream->head)) return (ssize_t)take;
    ssize_t got = stream->read(stream, (uint8_t *)data + take, size - take);
    assert(got <= (ssize_t)(size - take));
    return got < 0 ? -1 : (ssize_t)take + got;
}

// A stream without `seek` is read up to the offset.
int stream_seek(Stream *stream, uint64_t offset) {
    if (stream->seek) {
        stream->head_at = stream->head_size = 0;
        return stream->seek(stream, offset);
    }
    assert(!stream->head_at);
    uint8_t dropped[65536];
    while (offset) {
        size_t size = offset < sizeof dropped ? (size_t)offset : sizeof dropped;
        ssize_t got = stream_read(stream, dropped, size);
        if (got < 0) return -1;
        if ((size_t)got < size) return fail(EX_IO, "'%s' ends before the place of a finished shard", stream->name);
        offset -= size;
    }
    return 0;
}

ssize_t stream_read_at(Stream *stream, uint64_t offset, void *data, size_t size) {
    assert(stream->read_at);
    return stream->read_at(stream, offset, data, size);
}

void stream_name(Stream *stream, const char *outer, const char *member) {
    const char *path = member ? member : outer, *slash = strrchr(path, '/');
    snprintf(stream->base, sizeof stream->base, "%s", slash ? slash + 1 : path);
    snprintf(stream->name, sizeof stream->name, "%s%s%s", outer, member ? ":" : "", member ? member : "");
    text_printable(stream->name);
}

static ssize_t spooled_read_at(Stream *stream, uint64_t offset, void *data, size_t size) {
    return fd_read_at(((SpooledStream *)stream)->fd, offset, data, size, stream->name);
}

// Copies the rest of `from`, a pipe or a member of another container.
static int copy(SpooledStream *to, Stream *from) {
    enum { COPY_BYTES = 1 << 17 };
    char name[PATH_MAX_BYTES + 32];
    snprintf(name, sizeof name, "a copy of %s (TMPDIR)", from->name);
    uint8_t *block = allocate_zeroed(1, COPY_BYTES);
    ssize_t got = COPY_BYTES;
    while (got == COPY_BYTES) {
        got = stream_read(from, block, COPY_BYTES);
        if (got > 0 && fd_write(to->fd, block, (size_t)got, name) < 0) got = -1;
        if (got > 0) to->stream.size += (uint64_t)got;
    }
    free(block);
    return got < 0 ? -1 : 0;
}

SpooledStream *stream_spool(Stream *from) {
    SpooledStream *spooled = allocate_zeroed(1, sizeof *spooled);
    spooled->stream = *from;
    spooled->stream.read = NULL, spooled->stream.seek = NULL, spooled->stream.read_at = spooled_read_at;
    spooled->stream.size = spooled->stream.head_at = spooled->stream.head_size = 0;
    spooled->fd = spool_create(NULL, from->name);
    if (spooled->fd >= 0 && copy(spooled, from) == 0) return spooled;
    spooled_close(spooled);
    return NULL;
}

void spooled_close(SpooledStream *spooled) {
    if (!spooled) return;
    if (spooled->fd >= 0) close(spooled->fd);
    free(spooled);
}
