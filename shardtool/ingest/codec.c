// Each codec decodes one step and reports the end of each member or frame, so that the caller can tell the end of a
// stream from a truncated one.
#include "shardtool/ingest/codec.h"
#include "common/err.h"
#include "common/zstd/zstd_decoder.h"
#include <bzlib.h>
#include <limits.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum {
    XZ_MEMORY_MAX = (128 << 20) + (1 << 20), // a dictionary of 128 MiB
    ZSTD_WINDOW_LOG_MAX = 27                 // 128 MiB
};

static bool starts_with(Bytes head, const char *magic, size_t size) {
    return head.size >= size && !memcmp(head.data, magic, size);
}

static unsigned clamp_u32(size_t size) { return size > UINT_MAX ? UINT_MAX : (unsigned)size; }

static void advance(CodecStep *step, size_t read, size_t written) {
    step->in.data += read, step->in.size -= read;
    step->out += written, step->space -= written;
}

typedef struct {
    z_stream z;
    bool padding; // zeros after the last member, as on tapes
    bool begun;   // a member was decoded

    // A member that was begun elsewhere is decoded without its frame, so that its checksum is compared here.
    bool restored;
    uint32_t bits; // of the first byte of the input, which begin the block
    uint32_t crc, size;
    bool ended; // the content ended; the trailer follows
    unsigned trailer_size;
    uint8_t trailer[8];
} Gzip;

static bool gzip_matches(Bytes head) { return starts_with(head, "\x1F\x8B\x08", 3); }

static void *gzip_open(void) {
    Gzip *gzip = allocate_zeroed(1, sizeof *gzip);
    if (inflateInit2(&gzip->z, 15 + 16) != Z_OK) die(EX_MEMORY, "out of memory: gzip decoder"); // 16: gzip header
    return gzip;
}

static int inflate_step(Gzip *gzip, CodecStep *step) {
    uInt in = clamp_u32(step->in.size), space = clamp_u32(step->space);
    gzip->z.next_in = (Bytef *)(uintptr_t)step->in.data, gzip->z.avail_in = in;
    gzip->z.next_out = step->out, gzip->z.avail_out = space;
    int status = inflate(&gzip->z, step->blocks ? Z_BLOCK : Z_NO_FLUSH);
    if (status == Z_MEM_ERROR) die(EX_MEMORY, "out of memory: gzip decoder");
    advance(step, in - gzip->z.avail_in, space - gzip->z.avail_out);
    return status;
}

static bool gzip_save(void *state, CodecState *saved) {
    enum { BLOCK_ENDED = 128, LAST_BLOCK = 64, BITS = 7 }; // of data_type
    Gzip *gzip = state;
    if (!(gzip->z.data_type & BLOCK_ENDED) || gzip->z.data_type & LAST_BLOCK || !gzip->z.total_out) return false;
    saved->bits = (uint32_t)gzip->z.data_type & BITS;
    saved->crc = gzip->restored ? gzip->crc : (uint32_t)gzip->z.adler;
    saved->size = gzip->restored ? gzip->size : (uint32_t)gzip->z.total_out;
    return inflateGetDictionary(&gzip->z, saved->window, &saved->window_size) == Z_OK && saved->window_size;
}

static void gzip_restore(void *state, const CodecState *saved) {
    Gzip *gzip = state;
    inflateReset2(&gzip->z, -15);
    inflateSetDictionary(&gzip->z, saved->window, saved->window_size);
    gzip->restored = true, gzip->bits = saved->bits, gzip->crc = saved->crc, gzip->size = saved->size;
}

static CodecStatus gzip_decode_rest(Gzip *gzip, CodecStep *step) {
    if (gzip->bits && step->in.size) {
        inflatePrime(&gzip->z, (int)gzip->bits, *step->in.data >> (8 - gzip->bits));
        advance(step, 1, 0);
        gzip->bits = 0;
    }
    if (!gzip->ended) {
        const uint8_t *out = step->out;
        int status = inflate_step(gzip, step);
        gzip->crc = (uint32_t)crc32(gzip->crc, out, (uInt)(step->out - out));
        gzip->size += (uint32_t)(step->out - out);
        gzip->ended = status == Z_STREAM_END;
        step->error = gzip->z.msg ? gzip->z.msg : "damaged";
        if (!gzip->ended) return status == Z_OK || status == Z_BUF_ERROR ? CODEC_MORE : CODEC_BAD;
    }
    for (; step->in.size && gzip->trailer_size < sizeof gzip->trailer; advance(step, 1, 0))
        gzip->trailer[gzip->trailer_size++] = *step->in.data;
    if (gzip->trailer_size < sizeof gzip->trailer) return CODEC_MORE;
    step->error = "incorrect data check";
    if (get_u32(gzip->trailer) != gzip->crc || get_u32(gzip->trailer + 4) != gzip->size) return CODEC_BAD;
    inflateReset2(&gzip->z, 15 + 16);
    gzip->begun = true, gzip->restored = false;
    return CODEC_END;
}

static CodecStatus gzip_decode(void *state, CodecStep *step) {
    Gzip *gzip = state;
    if (gzip->padding || (gzip->begun && gzip->z.total_in == 0 && step->in.size && *step->in.data == 0)) {
        gzip->padding = true;
        while (step->in.size && *step->in.data == 0) advance(step, 1, 0);
        if (!step->in.size) return CODEC_END;
        step->error = "data after the last gzip member";
        return CODEC_BAD;
    }
    if (gzip->restored) return gzip_decode_rest(gzip, step);
    int status = inflate_step(gzip, step);
    if (status == Z_STREAM_END) {
        inflateReset(&gzip->z);
        gzip->begun = true;
        return CODEC_END;
    }
    if (status == Z_OK || status == Z_BUF_ERROR) return CODEC_MORE;
    step->error = gzip->z.msg ? gzip->z.msg : "a gzip dictionary is needed";
    if (gzip->begun && !strcmp(step->error, "incorrect header check")) step->error = "data after the last gzip member";
    return CODEC_BAD;
}

static void gzip_close(void *state) {
    inflateEnd(&((Gzip *)state)->z);
    free(state);
}

static bool xz_matches(Bytes head) { return starts_with(head, "\xFD\x37\x7A\x58\x5A\x00", 6); }

static void *xz_open(void) {
    lzma_stream *xz = allocate_zeroed(1, sizeof *xz);
    if (lzma_stream_decoder(xz, XZ_MEMORY_MAX, LZMA_CONCATENATED | LZMA_TELL_NO_CHECK | LZMA_TELL_UNSUPPORTED_CHECK) !=
        LZMA_OK)
        die(EX_MEMORY, "out of memory: xz decoder");
    return xz;
}

static const char *xz_error(lzma_ret status) {
    switch (status) {
    case LZMA_MEMLIMIT_ERROR:
        return "its xz dictionary is larger than 128 MiB: xz -dc FILE | millrace tokenize -o DIR -";
    case LZMA_UNSUPPORTED_CHECK:
        return "its xz checksum type is not supported";
    case LZMA_OPTIONS_ERROR:
        return "its xz options are not supported";
    case LZMA_FORMAT_ERROR:
        return "data after the last xz stream";
    default:
        return "xz data or checksum error";
    }
}

static CodecStatus xz_decode(void *state, CodecStep *step) {
    lzma_stream *xz = state;
    xz->next_in = step->in.data, xz->avail_in = step->in.size;
    xz->next_out = step->out, xz->avail_out = step->space;
    lzma_ret status = lzma_code(xz, step->ended ? LZMA_FINISH : LZMA_RUN);
    advance(step, step->in.size - xz->avail_in, step->space - xz->avail_out);
    step->unchecked = status == LZMA_NO_CHECK;
    if (status == LZMA_STREAM_END) return CODEC_END;
    if (step->unchecked || status == LZMA_OK || status == LZMA_BUF_ERROR) return CODEC_MORE;
    if (status == LZMA_MEM_ERROR) die(EX_MEMORY, "out of memory: xz decoder");
    step->error = xz_error(status);
    step->whole = status == LZMA_MEMLIMIT_ERROR || status == LZMA_UNSUPPORTED_CHECK || status == LZMA_OPTIONS_ERROR;
    return CODEC_BAD;
}

static void xz_close(void *state) {
    lzma_end(state);
    free(state);
}

static bool zstd_matches(Bytes head) {
    return head.size >= 4 && (get_u32(head.data) == ZSTD_MAGICNUMBER ||
                              (get_u32(head.data) & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START);
}

typedef struct {
    ZSTD_DCtx *context;
    bool in_frame;
} Zstd;

static void *zstd_open(void) {
    Zstd *zstd = allocate_zeroed(1, sizeof *zstd);
    zstd->context = zstd_decoder_open();
    ZSTD_DCtx_setParameter(zstd->context, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX);
    return zstd;
}

static bool has_no_checksum(Bytes frame) {
    enum { CHECKSUM_FLAG = 4 };
    return frame.size >= 5 && get_u32(frame.data) == ZSTD_MAGICNUMBER && !(frame.data[4] & CHECKSUM_FLAG);
}

static CodecStatus zstd_decode(void *state, CodecStep *step) {
    Zstd *zstd = state;
    step->unchecked = !zstd->in_frame && has_no_checksum(step->in);
    ZSTD_inBuffer in = {step->in.data, step->in.size, 0};
    ZSTD_outBuffer out = {step->out, step->space, 0};
    size_t status = ZSTD_decompressStream(zstd->context, &out, &in);
    advance(step, in.pos, out.pos);
    if (ZSTD_isError(status)) {
        switch (ZSTD_getErrorCode(status)) {
        case ZSTD_error_memory_allocation:
            die(EX_MEMORY, "out of memory: zstd decoder");
        case ZSTD_error_frameParameter_windowTooLarge:
            step->whole = true;
            step->error =
                "its zstd window is larger than 128 MiB: zstd -dc --long=31 FILE | millrace tokenize -o DIR -";
            break;
        case ZSTD_error_dictionary_wrong:
            step->whole = true;
            step->error =
                "a zstd frame was made with a dictionary: zstd -dc -D DICTIONARY FILE | millrace tokenize -o DIR -";
            break;
        case ZSTD_error_prefix_unknown:
            step->error = "data after the last zstd frame";
            break;
        default:
            step->error = ZSTD_getErrorName(status);
        }
        return CODEC_BAD;
    }
    zstd->in_frame = status != 0;
    return status == 0 ? CODEC_END : CODEC_MORE;
}

static void zstd_close(void *state) {
    ZSTD_freeDCtx(((Zstd *)state)->context);
    free(state);
}

static bool bzip2_matches(Bytes head) {
    return head.size >= 10 && starts_with(head, "BZh", 3) && head.data[3] >= '1' && head.data[3] <= '9' &&
           (!memcmp(head.data + 4, "\x31\x41\x59\x26\x53\x59", 6) ||
            !memcmp(head.data + 4, "\x17\x72\x45\x38\x50\x90", 6));
}

typedef struct {
    bz_stream bz;
    bool begun; // a stream was decoded
} Bzip2;

static void *bzip2_open(void) {
    Bzip2 *bzip2 = allocate_zeroed(1, sizeof *bzip2);
    if (BZ2_bzDecompressInit(&bzip2->bz, 0, 0) != BZ_OK) die(EX_MEMORY, "out of memory: bzip2 decoder");
    return bzip2;
}

static CodecStatus bzip2_decode(void *state, CodecStep *step) {
    Bzip2 *bzip2 = state;
    unsigned in = clamp_u32(step->in.size), space = clamp_u32(step->space);
    bzip2->bz.next_in = (char *)(uintptr_t)step->in.data, bzip2->bz.avail_in = in;
    bzip2->bz.next_out = (char *)step->out, bzip2->bz.avail_out = space;
    int status = BZ2_bzDecompress(&bzip2->bz);
    advance(step, in - bzip2->bz.avail_in, space - bzip2->bz.avail_out);
    if (status == BZ_STREAM_END) {
        BZ2_bzDecompressEnd(&bzip2->bz);
        bzip2->bz = (bz_stream){0};
        if (BZ2_bzDecompressInit(&bzip2->bz, 0, 0) != BZ_OK) die(EX_MEMORY, "out of memory: bzip2 decoder");
        bzip2->begun = true;
        return CODEC_END;
    }
    if (status == BZ_OK) return CODEC_MORE;
    if (status == BZ_MEM_ERROR) die(EX_MEMORY, "out of memory: bzip2 decoder");
    step->error = status == BZ_DATA_ERROR_MAGIC && bzip2->begun ? "data after the last bzip2 stream"
                                                                : "bzip2 data or checksum error";
    return CODEC_BAD;
}

static void bzip2_close(void *state) {
    BZ2_bzDecompressEnd(&((Bzip2 *)state)->bz);
    free(state);
}

static const Codec codecs[] = {
    {"gzip", "gz tgz", gzip_matches, gzip_open, gzip_decode, gzip_close, gzip_save, gzip_restore},
    {"xz", "xz txz", xz_matches, xz_open, xz_decode, xz_close, NULL, NULL},
    {"zstd", "zst zstd tzst", zstd_matches, zstd_open, zstd_decode, zstd_close, NULL, NULL},
    {"bzip2", "bz2 tbz2 tbz", bzip2_matches, bzip2_open, bzip2_decode, bzip2_close, NULL, NULL},
};
enum { CODEC_COUNT = sizeof codecs / sizeof *codecs };

const Codec *codec_find(Bytes head) {
    for (int i = 0; i < CODEC_COUNT; i++)
        if (codecs[i].matches(head)) return &codecs[i];
    return NULL;
}

bool extension_is_one_of(const char *extensions, const char *extension) {
    size_t length = strlen(extension);
    for (const char *at = extensions; *at; at += strspn(at, " ")) {
        size_t size = strcspn(at, " ");
        if (size == length && !strncasecmp(at, extension, length)) return true;
        at += size;
    }
    return false;
}

bool codec_strip_extension(char *name) {
    char *dot = strrchr(name, '.');
    if (!dot) return false;
    for (int i = 0; i < CODEC_COUNT; i++) {
        if (!extension_is_one_of(codecs[i].extensions, dot + 1)) continue;
        bool tar = dot[1] == 't' || dot[1] == 'T'; // tgz, txz, tzst, tbz2
        snprintf(dot, strlen(dot) + 1, "%s", tar ? ".tar" : "");
        return true;
    }
    return false;
}
