// Compressed streams: decompresses the outer stream and reads the format of what it holds.
#include "common/err.h"
#include "shardtool/ingest/codec.h"
#include "shardtool/ingest/input_format.h"
#include <inttypes.h>
#include <stdlib.h>

enum {
    BLOCK_BYTES = 65536,
    SILENT_BYTES_MAX = 64 << 20 // input without any output that is taken for damage or an attack
};

typedef struct {
    FormatReader reader;
    Stream *outer;
    SourceOptions *options;
    const Codec *codec;
    void *state;
    Bytes in;                                // unread bytes of block
    bool ended;                              // the outer stream has no more bytes
    bool complete;                           // the decoder is at the end of a member or frame
    uint64_t in_bytes, out_bytes, silent_in; // silent_in: read since the last output
    Stream content;
    FormatReader *inner;
    uint8_t block[BLOCK_BYTES];
} CompressedReader;

static int fail_compressed(const CompressedReader *self, const char *why) {
    return fail(EX_DATA, "'%s': truncated or damaged at byte %" PRIu64 " (%s)", self->outer->name,
                self->in_bytes - self->in.size, why);
}

static int refill(CompressedReader *self) {
    ssize_t got = stream_read(self->outer, self->block, sizeof self->block);
    if (got < 0) return -1;
    self->in = (Bytes){self->block, (size_t)got};
    self->ended = got < (ssize_t)sizeof self->block;
    self->in_bytes += (uint64_t)got, self->silent_in += (uint64_t)got;
    if (self->silent_in > SILENT_BYTES_MAX) return fail_compressed(self, "64 MiB of input without output");
    return 0;
}

static int check_ratio(CompressedReader *self, size_t more) {
    if (more) self->silent_in = 0;
    self->out_bytes += more;
    return ratio_check(self->outer->name, self->options, self->in_bytes, self->out_bytes);
}

static ssize_t content_read(Stream *stream, void *data, size_t size) {
    CompressedReader *self = (CompressedReader *)((char *)stream - offsetof(CompressedReader, content));
    CodecStep step = {.out = data, .space = size};
    while (step.space) {
        if (!self->in.size && !self->ended && refill(self) < 0) return -1;
        if (!self->in.size && self->ended && self->complete) break;
        step.in = self->in, step.ended = self->ended;
        size_t space = step.space, unread = step.in.size;
        CodecStatus status = self->codec->decode(self->state, &step);
        self->in = step.in;
        self->complete = status == CODEC_END;
        if (status == CODEC_BAD) return fail_compressed(self, step.error);
        if (check_ratio(self, space - step.space) < 0) return -1;
        if (status == CODEC_MORE && self->ended && unread == step.in.size && space == step.space)
            return fail_compressed(self, "the input ends within the compressed data");
    }
    return (ssize_t)(size - step.space);
}

int compressed_bid(Bytes head) { return codec_find(head) ? BID_MAGIC : BID_NONE; }

void compressed_close(FormatReader *reader) {
    CompressedReader *self = (CompressedReader *)reader;
    reader_close(self->inner);
    self->codec->close(self->state);
    free(self);
}

FormatReader *compressed_open(Stream *stream, SourceOptions *options) {
    Bytes head;
    if (stream_peek(stream, &head) < 0) return NULL;
    CompressedReader *self = allocate_zeroed(1, sizeof *self);
    self->outer = stream, self->options = options;
    self->codec = codec_find(head);
    self->state = self->codec->open();
    self->content.read = content_read;
    self->content.level = stream->level + 1, self->content.decompressed = true;
    self->content.is_listed = stream->is_listed;
    memcpy(self->content.name, stream->name, sizeof self->content.name);
    memcpy(self->content.base, stream->base, sizeof self->content.base);
    codec_strip_extension(self->content.base);
    if (level_check(&self->content, options) == 0 && reader_open(&self->inner, &self->content, options) == 0)
        return &self->reader;
    compressed_close(&self->reader);
    return NULL;
}

// Reads to the end, so that the last checksum is checked even when the inner format does not read that far.
static int drain(CompressedReader *self) {
    uint8_t rest[4096];
    ssize_t got;
    while ((got = stream_read(&self->content, rest, sizeof rest)) > 0) continue;
    return got < 0 ? -1 : 0;
}

int compressed_next(FormatReader *reader, Part *part) {
    CompressedReader *self = (CompressedReader *)reader;
    int status = self->inner ? reader_next(self->inner, part) : 0;
    return status ? status : drain(self);
}
