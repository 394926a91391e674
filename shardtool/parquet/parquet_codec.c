// One function per codec. Each is given the room that the page header declares and must fill it exactly.
#include "shardtool/parquet/parquet_codec.h"
#include "common/err.h"
#include "common/zstd/zstd_decoder.h"
#include <brotli/decode.h>
#include <limits.h>
#include <lz4.h>
#include <snappy-c.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

static bool copy_page(Bytes page, uint8_t *out, size_t size) {
    if (page.size != size) return false;
    memcpy(out, page.data, size);
    return true;
}

static bool decompress_snappy(Bytes page, uint8_t *out, size_t size) {
    size_t length;
    return snappy_uncompressed_length((const char *)page.data, page.size, &length) == SNAPPY_OK && length == size &&
           snappy_uncompress((const char *)page.data, page.size, (char *)out, &length) == SNAPPY_OK && length == size;
}

// A page may be several gzip members.
static bool decompress_gzip(ParquetDecompressor *decompressor, Bytes page, uint8_t *out, size_t size) {
    enum { GZIP_OR_ZLIB = 32 };
    if (page.size > UINT_MAX || size > UINT_MAX) return false;
    z_stream *zlib = decompressor->zlib;
    if (!zlib) {
        decompressor->zlib = zlib = allocate_zeroed(1, sizeof *zlib);
        if (inflateInit2(zlib, MAX_WBITS + GZIP_OR_ZLIB) != Z_OK) die(EX_MEMORY, "no memory for zlib");
    }
    zlib->next_in = (Bytef *)(uintptr_t)page.data, zlib->avail_in = (uInt)page.size;
    zlib->next_out = out, zlib->avail_out = (uInt)size;
    do {
        if (inflateReset(zlib) != Z_OK || inflate(zlib, Z_FINISH) != Z_STREAM_END) return false;
    } while (zlib->avail_in && zlib->avail_out);
    return !zlib->avail_in && !zlib->avail_out;
}

static bool decompress_zstd(ParquetDecompressor *decompressor, Bytes page, uint8_t *out, size_t size) {
    if (!decompressor->zstd) decompressor->zstd = zstd_decoder_open();
    return ZSTD_decompressDCtx(decompressor->zstd, out, size, page.data, page.size) == size;
}

static bool decompress_brotli(Bytes page, uint8_t *out, size_t size) {
    size_t length = size;
    return BrotliDecoderDecompress(page.size, page.data, &length, out) == BROTLI_DECODER_RESULT_SUCCESS &&
           length == size;
}

static bool decompress_lz4_block(Bytes page, uint8_t *out, size_t size) {
    if (page.size > INT_MAX || size > INT_MAX) return false;
    int got = LZ4_decompress_safe((const char *)page.data, (char *)out, (int)page.size, (int)size);
    return got >= 0 && (size_t)got == size;
}

static uint32_t get_big_endian(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

// Hadoop's frames: u32 uncompressed size, u32 compressed size, both big-endian, one LZ4 block.
static bool decompress_lz4_hadoop(Bytes page, uint8_t *out, size_t size) {
    enum { FRAME_HEADER_BYTES = 8 };
    while (page.size >= FRAME_HEADER_BYTES) {
        uint32_t plain = get_big_endian(page.data), stored = get_big_endian(page.data + 4);
        page.data += FRAME_HEADER_BYTES, page.size -= FRAME_HEADER_BYTES;
        if (stored > page.size || plain > size || !decompress_lz4_block((Bytes){page.data, stored}, out, plain))
            return false;
        page.data += stored, page.size -= stored;
        out += plain, size -= plain;
    }
    return !page.size && !size;
}

int parquet_decompress(ParquetDecompressor *decompressor, ParquetCodec codec, Bytes page, uint8_t *out, size_t size) {
    bool fits = false;
    switch (codec) {
    case PARQUET_UNCOMPRESSED:
        fits = copy_page(page, out, size);
        break;
    case PARQUET_SNAPPY:
        fits = decompress_snappy(page, out, size);
        break;
    case PARQUET_GZIP:
        fits = decompress_gzip(decompressor, page, out, size);
        break;
    case PARQUET_BROTLI:
        fits = decompress_brotli(page, out, size);
        break;
    case PARQUET_LZ4: // writers that are not Hadoop used this number for a plain block
        fits = decompress_lz4_hadoop(page, out, size) || decompress_lz4_block(page, out, size);
        break;
    case PARQUET_ZSTD:
        fits = decompress_zstd(decompressor, page, out, size);
        break;
    case PARQUET_LZ4_RAW:
        fits = decompress_lz4_block(page, out, size);
        break;
    case PARQUET_LZO: // refused with the footer
        break;
    }
    if (fits) return 0;
    return fail(EX_DATA, "%zu bytes of %s do not decompress to %zu bytes", page.size, parquet_codec_name((int)codec),
                size);
}

void parquet_decompressor_close(ParquetDecompressor *decompressor) {
    if (decompressor->zlib) inflateEnd(decompressor->zlib);
    free(decompressor->zlib);
    ZSTD_freeDCtx(decompressor->zstd);
    *decompressor = (ParquetDecompressor){0};
}
