// Copies a pipe, or a member of another container, to an unlinked temporary file.
#include "shardtool/ingest/spooled.h"
#include "common/err.h"
#include "common/file/spool.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static ssize_t spooled_read_at(Stream *stream, uint64_t offset, void *data, size_t size) {
    return fd_read_at(((SpooledStream *)stream)->fd, offset, data, size, stream->name);
}

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
    spooled->stream.head_at = spooled->stream.head_size = 0;
    spooled->fd = spool_create(from->name);
    if (spooled->fd >= 0 && copy(spooled, from) == 0) return spooled;
    spooled_close(spooled);
    return NULL;
}

void spooled_close(SpooledStream *spooled) {
    if (!spooled) return;
    if (spooled->fd >= 0) close(spooled->fd);
    free(spooled);
}
