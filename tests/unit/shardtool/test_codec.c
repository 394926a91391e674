// Codecs: every flipped bit and every truncation of a compressed stream is an error or leaves its content unchanged.
#include "common/bytes.h"
#include "shardtool/ingest/codec.h"
#include "shardtool/parquet/parquet_page.h"
#include "tests/unit/shardtool/fixture_documents.h"
#include <bzlib.h>
#include <lzma.h>
#include <malloc.h>
#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

static int read_text(Bytes input, Buffer *out) {
    SourceOptions options = {.max_depth = 3, .max_ratio = 1000};
    return read_documents(memory_stream(input), &options, out);
}

static void add_gzip(Buffer *out, const char *text) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)text, .avail_in = (uInt)strlen(text)};
    CHECK(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK);
    buffer_reserve(out, 4096);
    z.next_out = out->data + out->size, z.avail_out = 4096;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    out->size += z.total_out;
    deflateEnd(&z);
}

static void add_xz(Buffer *out, const char *text) {
    size_t size = 0;
    buffer_reserve(out, 4096);
    CHECK(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC64, NULL, (const uint8_t *)text, strlen(text), out->data + out->size,
                                  &size, 4096) == LZMA_OK);
    out->size += size;
}

static void add_zstd(Buffer *out, const char *text) {
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    buffer_reserve(out, 4096);
    out->size += ZSTD_compress2(context, out->data + out->size, 4096, text, strlen(text));
    ZSTD_freeCCtx(context);
}

static void add_bzip2(Buffer *out, const char *text) {
    unsigned size = 4096;
    buffer_reserve(out, size);
    CHECK(BZ2_bzBuffToBuffCompress((char *)out->data + out->size, &size, (char *)(uintptr_t)text,
                                   (unsigned)strlen(text), 9, 0, 0) == BZ_OK);
    out->size += size;
}

static const struct {
    const char *name;
    void (*add)(Buffer *out, const char *text);
} codecs[] = {
    {"gzip", add_gzip},
    {"xz", add_xz},
    {"zstd", add_zstd},
    {"bzip2", add_bzip2},
};
enum { CODECS = sizeof codecs / sizeof *codecs };

static const char *const parts[] = {"The quick brown fox jumps over the lazy dog, the dog, the lazy lazy dog.\n",
                                    "Pack my box with five dozen liquor jugs, five dozen, five dozen jugs!\n"};

static bool is_text(const Buffer *got, const char *want) {
    const size_t size = strlen(want);
    return got->size == size + 1 && !memcmp(got->data, want, size) && got->data[size] == 0xFF;
}

TEST(concatenated_members_of_every_codec_are_read_to_the_end) {
    Buffer input = {0}, got = {0};
    char both[256];
    snprintf(both, sizeof both, "%s%s", parts[0], parts[1]);
    for (int c = 0; c < CODECS; c++) {
        input.size = 0;
        codecs[c].add(&input, parts[0]);
        codecs[c].add(&input, parts[1]);
        CHECK(read_text((Bytes){input.data, input.size}, &got) == 0);
        CHECK(is_text(&got, both));
        buffer_add(&input, "garbage", 7);
        CHECK(read_text((Bytes){input.data, input.size}, &got) < 0);
        CHECK_ERROR(EX_DATA, "");
    }
    buffer_close(&input), buffer_close(&got);
}

TEST(every_flipped_bit_of_a_compressed_stream_is_an_error_or_harmless) {
    Buffer input = {0}, got = {0};
    for (int c = 0; c < CODECS; c++) {
        input.size = 0;
        codecs[c].add(&input, parts[0]);
        unsigned refused = 0;
        // A flip in the magic number makes it another kind of input.
        for (size_t bit = 8 * (c == 3 ? 10 : 6); bit < 8 * input.size; bit++) {
            input.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
            if (read_text((Bytes){input.data, input.size}, &got) < 0)
                refused++, CHECK_EQUAL(err_code(), EX_DATA), err_clear();
            else if (!is_text(&got, parts[0]))
                print_error("%s: bit %zu\n", codecs[c].name, bit), test_failed("an error", __FILE__, __LINE__);
            input.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
        CHECK(refused > 8 * 16);
    }
    buffer_close(&input), buffer_close(&got);
}

// fault 1
TEST(every_truncation_within_a_member_of_a_compressed_stream_is_an_error) {
    Buffer input = {0}, got = {0};
    for (int c = 0; c < CODECS; c++) {
        input.size = 0;
        codecs[c].add(&input, parts[0]);
        size_t first = input.size;
        codecs[c].add(&input, parts[1]);
        for (size_t size = 10; size < input.size; size++) {
            bool boundary = size == first; // nobody can see that a member is missing
            CHECK_EQUAL(read_text((Bytes){input.data, size}, &got), boundary ? 0 : -1);
            if (!boundary) CHECK_EQUAL(err_code(), EX_DATA);
            err_clear();
        }
    }
    buffer_close(&input), buffer_close(&got);
}

TEST(zeros_after_the_last_gzip_member_are_padding) {
    Buffer input = {0}, got = {0};
    static const uint8_t zeros[700];
    add_gzip(&input, parts[0]);
    buffer_add(&input, zeros, sizeof zeros);
    CHECK(read_text((Bytes){input.data, input.size}, &got) == 0 && is_text(&got, parts[0]));
    buffer_add(&input, "x", 1);
    CHECK(read_text((Bytes){input.data, input.size}, &got) < 0);
    CHECK_ERROR(EX_DATA, "data after the last gzip member");
    buffer_close(&input), buffer_close(&got);
}

// A member with a block for about each 127 bytes.
static void add_gzip_blocks(Buffer *out, Bytes text) {
    z_stream z = {.next_in = (Bytef *)(uintptr_t)text.data, .avail_in = (uInt)text.size};
    CHECK(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 1, Z_DEFAULT_STRATEGY) == Z_OK);
    buffer_reserve(out, text.size + 4096);
    z.next_out = out->data + out->size, z.avail_out = (uInt)text.size + 4096;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    out->size += z.total_out;
    deflateEnd(&z);
}

// Decodes `input` in small steps up to its end. CODEC_BAD or the last status.
static CodecStatus decode_rest(const Codec *codec, void *state, Bytes input, Buffer *out) {
    CodecStatus status = CODEC_MORE;
    for (size_t done = 0, next; done < input.size && status != CODEC_BAD; done = next) {
        next = done + 13 < input.size ? done + 13 : input.size;
        CodecStep step = {.in = {input.data + done, next - done}, .ended = next == input.size, .space = 1};
        while (status != CODEC_BAD && (step.in.size || !step.space)) {
            buffer_reserve(out, 50);
            step.out = out->data + out->size, step.space = 50;
            status = codec->decode(state, &step);
            out->size += 50 - step.space;
        }
    }
    return status;
}

TEST(decoding_begins_at_each_block_of_a_gzip_member_and_checks_its_checksum) {
    Buffer text = {0}, input = {0}, got = {0};
    for (unsigned i = 0; text.size < 50000; i++) buffer_print(&text, "%u words %x ", i, i * 2654435761u);
    add_gzip_blocks(&input, (Bytes){text.data, text.size});
    size_t member = input.size;
    add_gzip(&input, parts[0]); // another member follows
    const Codec *codec = codec_find((Bytes){input.data, input.size});
    void *whole = codec->open();
    uint8_t *out = allocate_zeroed(1, text.size);
    CodecStep step = {.in = {input.data, member}, .out = out, .space = text.size, .blocks = true};
    CodecState *saved = allocate_zeroed(1, sizeof *saved);
    unsigned places = 0;
    while (codec->decode(whole, &step) == CODEC_MORE) {
        if (!codec->save(whole, saved)) continue;
        size_t in = (size_t)(step.in.data - input.data) - (saved->bits > 0), before = text.size - step.space;
        void *rest = codec->open();
        codec->restore(rest, saved);
        got.size = 0;
        CHECK(decode_rest(codec, rest, (Bytes){input.data + in, input.size - in}, &got) == CODEC_END);
        CHECK_EQUAL(got.size, text.size - before + strlen(parts[0]));
        CHECK(!memcmp(got.data, text.data + before, text.size - before));
        codec->close(rest);
        saved->crc ^= 1u << places++ % 32;
        rest = codec->open();
        codec->restore(rest, saved);
        CHECK(decode_rest(codec, rest, (Bytes){input.data + in, member - in}, &got) == CODEC_BAD);
        codec->close(rest);
    }
    CHECK(places > 50);
    codec->close(whole);
    free(saved), free(out);
    buffer_close(&text), buffer_close(&input), buffer_close(&got);
}

// The decoders, and buffers of their windows, that a file gets: how many, and that each begins as zeros although malloc
// gives other bytes.
TEST(zstd_decoders_begin_as_zeros_and_serve_one_file) {
    enum { BYTES = 1 << 20, LEAST = 90000 }; // a decoder has 96 KB
    mallopt(M_PERTURB, 0x5A);
    uint8_t *plain = malloc(BYTES), *out = malloc(BYTES), *zstd = malloc(ZSTD_compressBound(BYTES));
    for (size_t i = 0; i < BYTES; i++) plain[i] = (uint8_t)(i * i >> 8);
    const Bytes file = {zstd, ZSTD_compress(zstd, ZSTD_compressBound(BYTES), plain, BYTES, 1)};
    const Codec *codec = codec_find(file);
    uint64_t count, zeroed;
    for (int i = 0; i < 2; i++) { // in steps, so that it needs a window
        test_watch_memory(LEAST);
        void *decoder = codec->open();
        CodecStep step = {.in = file, .ended = true, .out = out, .space = BYTES / 2};
        CHECK(codec->decode(decoder, &step) == CODEC_MORE);
        step.space += BYTES / 2;
        CHECK(codec->decode(decoder, &step) == CODEC_END && !memcmp(out, plain, BYTES));
        codec->close(decoder);
        test_watched_memory(&count, &zeroed);
        CHECK(count == 2 && zeroed == 2);
    }
    ParquetPageReader reader = {0};
    const ParquetChunk chunk = {0};
    for (int i = 0; i < 2; i++) { // one for all pages of a chunk
        test_watch_memory(LEAST);
        parquet_pages_begin(&reader, NULL, &chunk, 0, 0);
        for (int page = 0; page < 2; page++)
            CHECK(parquet_decompress(&reader.decompressor, PARQUET_ZSTD, file, out, BYTES) == 0);
        test_watched_memory(&count, &zeroed);
        CHECK(count == 1 && zeroed == 1 && !memcmp(out, plain, BYTES));
    }
    parquet_pages_close(&reader);
    test_watch_memory(0);
    mallopt(M_PERTURB, 0);
    free(plain), free(out), free(zstd);
}
