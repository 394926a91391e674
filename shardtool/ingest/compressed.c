// Compressed streams: decompresses the outer stream and reads its content with the format that fits.
#include "shardtool/ingest/decoder.h"
#include "shardtool/ingest/input_format.h"
#include <stdlib.h>

typedef struct {
    FormatReader reader;
    Decoder *decoder;
    Stream content;
    FormatReader *inner;
} CompressedReader;

static ssize_t content_read(Stream *stream, void *data, size_t size) {
    CompressedReader *self = (CompressedReader *)((char *)stream - offsetof(CompressedReader, content));
    return decoder_read(self->decoder, data, size);
}

static int content_seek(Stream *stream, uint64_t offset) {
    CompressedReader *self = (CompressedReader *)((char *)stream - offsetof(CompressedReader, content));
    return decoder_seek(self->decoder, offset);
}

// The place of a document is a byte of the content, unless the content is compressed, too.
static int use_points(CompressedReader *self, const Stream *stream, const SourceOptions *options) {
    Bytes head;
    if (!options->points || !stream->seek || stream->decompressed) return 0;
    if (stream_peek(&self->content, &head) < 0) return -1;
    if (codec_find(head)) return 0;
    decoder_use_points(self->decoder, options->points);
    if (decoder_has_point(self->decoder, stream->start.byte)) self->content.seek = content_seek;
    return 0;
}

int compressed_bid(Bytes head) { return codec_find(head) ? BID_MAGIC : BID_NONE; }

void compressed_close(FormatReader *reader) {
    CompressedReader *self = (CompressedReader *)reader;
    reader_close(self->inner);
    decoder_close(self->decoder);
    free(self);
}

FormatReader *compressed_open(Stream *stream, SourceOptions *options) {
    Bytes head;
    if (stream_peek(stream, &head) < 0) return NULL;
    CompressedReader *self = allocate_zeroed(1, sizeof *self);
    self->decoder = stream->decoder ? stream->decoder : decoder_open(stream, codec_find(head), options);
    stream->decoder = NULL; // it is ours now
    self->content.read = content_read;
    self->content.level = stream->level + 1, self->content.decompressed = true;
    self->content.is_listed = stream->is_listed;
    self->content.start = stream->start; // a place of the content
    memcpy(self->content.name, stream->name, sizeof self->content.name);
    memcpy(self->content.base, stream->base, sizeof self->content.base);
    codec_strip_extension(self->content.base);
    if (level_check(&self->content, options) == 0 && use_points(self, stream, options) == 0 &&
        reader_open(&self->inner, &self->content, options) == 0)
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
