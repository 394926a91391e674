// Decompresses a stream with its codec and checks that it is whole and no decompression bomb.
#include "shardtool/ingest/decoder.h"
#include "common/err.h"
#include "common/log.h"
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BLOCK_BYTES = 65536,
    SILENT_BYTES_MAX = 64 << 20 // more input without any output is damage or an attack
};

struct Decoder {
    Stream *outer;
    const SourceOptions *options;
    const Codec *codec;
    void *state;
    Bytes in;                                // unread bytes of block
    bool ended;                              // the outer stream has no more bytes
    bool complete;                           // the decoder is at the end of a member or frame
    uint64_t in_bytes, out_bytes, silent_in; // silent_in: read since the last output
    uint64_t verified;                       // bytes of content up to the last end of a member or frame
    uint64_t next_point;                     // bytes of content before the next access point
    AccessPoints *points;                    // of an input file; else NULL
    Bytes ahead;                             // decoded ahead and not yet read
    bool failed;                             // `error` follows the bytes of `ahead`
    Error error;
    uint8_t block[BLOCK_BYTES];
};

Decoder *decoder_open(Stream *outer, const Codec *codec, const SourceOptions *options) {
    Decoder *decoder = malloc(sizeof *decoder);
    if (!decoder) die(EX_MEMORY, "no memory for a decoder");
    memset(decoder, 0, offsetof(Decoder, block));
    decoder->outer = outer, decoder->codec = codec, decoder->options = options;
    decoder->state = codec->open();
    return decoder;
}

void decoder_close(Decoder *decoder) {
    if (!decoder) return;
    decoder->codec->close(decoder->state);
    free(decoder);
}

// The checksum of a frame is at its end. If it fails, any text of the frame may be wrong, also text read long ago.
static int fail_damaged(const Decoder *decoder, const char *why) {
    char text[80] = "";
    if (decoder->out_bytes > decoder->verified)
        snprintf(text, sizeof text, "; no checksum has verified its text from byte %" PRIu64 " on", decoder->verified);
    return fail(EX_DATA, "'%s': truncated or damaged at byte %" PRIu64 " (%s)%s", decoder->outer->name,
                decoder->in_bytes - decoder->in.size, why, text);
}

static int refill(Decoder *decoder) {
    ssize_t got = stream_read(decoder->outer, decoder->block, sizeof decoder->block);
    if (got < 0) return -1;
    decoder->in = (Bytes){decoder->block, (size_t)got};
    decoder->ended = got < (ssize_t)sizeof decoder->block;
    decoder->in_bytes += (uint64_t)got, decoder->silent_in += (uint64_t)got;
    if (decoder->silent_in > SILENT_BYTES_MAX) return fail_damaged(decoder, "64 MiB of input without output");
    return 0;
}

// zstd frames without checksum are common, xz streams rare: log the first input that has one.
static void note_unchecked(const Decoder *decoder) {
    static atomic_flag noted = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&noted)) return;
    log_line("'%s' is compressed without checksum: damage in it, and in other such inputs, cannot always be detected",
             decoder->outer->name);
}

static int check_ratio(Decoder *decoder, size_t more) {
    if (more) decoder->silent_in = 0;
    decoder->out_bytes += more;
    return ratio_check(decoder->outer->name, decoder->options, decoder->in_bytes, decoder->out_bytes);
}

static void add_point(Decoder *decoder, bool ended) {
    uint64_t in = decoder->in_bytes - decoder->in.size;
    if (access_points_add(decoder->points, in, decoder->out_bytes, decoder->codec, decoder->state, ended))
        decoder->next_point = decoder->out_bytes + ACCESS_POINT_BYTES;
}

// Fewer than `size` bytes only at the end. With -1, *done is the number of bytes before the error.
static int decode(Decoder *decoder, uint8_t *data, size_t size, size_t *done) {
    CodecStep step = {.out = data, .space = size};
    *done = 0;
    while (step.space) {
        if (!decoder->in.size && !decoder->ended && refill(decoder) < 0) return -1;
        if (!decoder->in.size && decoder->ended && decoder->complete) break;
        step.in = decoder->in, step.ended = decoder->ended;
        step.blocks = decoder->points && decoder->out_bytes >= decoder->next_point;
        size_t space = step.space, unread = step.in.size;
        CodecStatus status = decoder->codec->decode(decoder->state, &step);
        decoder->in = step.in;
        decoder->complete = status == CODEC_END;
        *done = size - step.space;
        if (step.unchecked) note_unchecked(decoder);
        if (status == CODEC_BAD) {
            decoder->out_bytes += space - step.space;
            if (!step.whole) return fail_damaged(decoder, step.error);
            return fail(EX_DATA, "'%s' at byte %" PRIu64 ": %s", decoder->outer->name,
                        decoder->in_bytes - decoder->in.size, step.error);
        }
        if (check_ratio(decoder, space - step.space) < 0) return -1;
        if (decoder->complete) decoder->verified = decoder->out_bytes;
        if (step.blocks) add_point(decoder, status == CODEC_END);
        if (status == CODEC_MORE && decoder->ended && unread == step.in.size && space == step.space)
            return fail_damaged(decoder, "the input ends within the compressed data");
    }
    return 0;
}

void decoder_run_ahead(Decoder *decoder, Buffer *out, size_t limit) {
    enum { STEP_BYTES = 1 << 18 };
    size_t got = STEP_BYTES;
    out->size = 0;
    while (got == STEP_BYTES && out->size < limit && !decoder->failed) {
        buffer_reserve(out, STEP_BYTES);
        decoder->failed = decode(decoder, out->data + out->size, STEP_BYTES, &got) < 0;
        out->size += got;
    }
    if (decoder->failed) err_take(&decoder->error);
    decoder->ahead = (Bytes){out->data, out->size};
}

ssize_t decoder_read(Decoder *decoder, void *data, size_t size) {
    size_t take = decoder->ahead.size < size ? decoder->ahead.size : size, more = 0;
    if (take) {
        memcpy(data, decoder->ahead.data, take);
        decoder->ahead.data += take, decoder->ahead.size -= take;
    }
    if (take == size) return (ssize_t)take;
    if (decoder->failed) {
        err_give(&decoder->error);
        return -1;
    }
    return decode(decoder, (uint8_t *)data + take, size - take, &more) < 0 ? -1 : (ssize_t)(take + more);
}

void decoder_use_points(Decoder *decoder, AccessPoints *points) {
    decoder->points = points;
    decoder->next_point = decoder->out_bytes + ACCESS_POINT_BYTES;
}

bool decoder_has_point(const Decoder *decoder, uint64_t offset) {
    const AccessPoint *start = decoder->points ? decoder->points->start : NULL;
    return start && start->file == decoder->points->file && start->out <= offset &&
           (!start->state.window_size || decoder->codec->restore);
}

int decoder_seek(Decoder *decoder, uint64_t offset) {
    const AccessPoint *point = decoder->points->start;
    const CodecState *state = &point->state;
    if (stream_seek(decoder->outer, point->in - (state->bits > 0)) < 0) return -1;
    decoder->codec->close(decoder->state);
    decoder->state = decoder->codec->open();
    if (state->window_size) decoder->codec->restore(decoder->state, state);
    decoder->in = (Bytes){0}, decoder->ended = false, decoder->complete = !state->window_size;
    decoder->in_bytes = point->in - (state->bits > 0), decoder->out_bytes = point->out;
    decoder->next_point = point->out + ACCESS_POINT_BYTES;
    uint8_t dropped[65536];
    while (decoder->out_bytes < offset) {
        uint64_t left = offset - decoder->out_bytes;
        size_t size = left < sizeof dropped ? (size_t)left : sizeof dropped, got;
        if (decode(decoder, dropped, size, &got) < 0) return -1;
        if (got < size) return fail(EX_IO, "'%s' ends before the place of a finished shard", decoder->outer->name);
    }
    return 0;
}
