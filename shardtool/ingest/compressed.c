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
    CompressedReader *compressed = (CompressedReader *)((char *)stream - offsetof(CompressedReader, content));
    return decoder_read(compressed->decoder, data, size);
}

static int content_seek(Stream *stream, uint64_t offset) {
    CompressedReader *compressed = (CompressedReader *)((char *)stream - offsetof(CompressedReader, content));
    return decoder_seek(compressed->decoder, offset);
}

// The place of a document is a byte of the content, unless the content is compressed, too.
static int use_points(CompressedReader *compressed, const Stream *stream, const SourceOptions *options) {
    Bytes head;
    if (!options->points || !stream->seek || stream->decompressed) return 0;
    if (stream_peek(&compressed->content, &head) < 0) return -1;
    if (codec_find(head)) return 0;
    decoder_use_points(compressed->decoder, options->points);
    if (decoder_has_point(compressed->decoder, stream->start.byte)) compressed->content.seek = content_seek;
    return 0;
}

int compressed_bid(Bytes head) { return codec_find(head) ? BID_MAGIC : BID_NONE; }

void compressed_close(FormatReader *reader) {
    CompressedReader *compressed = (CompressedReader *)reader;
    reader_close(compressed->inner);
    decoder_close(compressed->decoder);
    free(compressed);
}

FormatReader *compressed_open(Stream *stream, SourceOptions *options) {
    Bytes head;
    if (stream_peek(stream, &head) < 0) return NULL;
    CompressedReader *compressed = allocate_zeroed(1, sizeof *compressed);
    compressed->decoder = stream->decoder ? stream->decoder : decoder_open(stream, codec_find(head), options);
    stream->decoder = NULL; // it is ours now
    compressed->content.read = content_read;
    compressed->content.level = stream->level + 1, compressed->content.decompressed = true;
    compressed->content.is_listed = stream->is_listed;
    compressed->content.start = stream->start; // a place of the content
    memcpy(compressed->content.name, stream->name, sizeof compressed->content.name);
    memcpy(compressed->content.base, stream->base, sizeof compressed->content.base);
    codec_strip_extension(compressed->content.base);
    if (level_check(&compressed->content, options) == 0 && use_points(compressed, stream, options) == 0 &&
        reader_open(&compressed->inner, &compressed->content, options) == 0)
        return &compressed->reader;
    compressed_close(&compressed->reader);
    return NULL;
}

// Reads to the end, so that the last checksum is checked even when the inner format does not read that far.
static int drain(CompressedReader *compressed) {
    uint8_t rest[4096];
    ssize_t got;
    while ((got = stream_read(&compressed->content, rest, sizeof rest)) > 0) continue;
    return got < 0 ? -1 : 0;
}

int compressed_next(FormatReader *reader, Part *part) {
    CompressedReader *compressed = (CompressedReader *)reader;
    int status = compressed->inner ? reader_next(compressed->inner, part) : 0;
    return status ? status : drain(compressed);
}
