// The shard format: written, read back, checked against libzstd's own view, and every damage found.
#include "dataset/ids.h"
#include "dataset/shard.h"
#include "tests/test.h"
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <zstd.h>

enum { EOT = 50256, VOCAB = 50257 };

static ShardParams params_of(uint64_t frame_tokens) {
    ShardParams params = {.frame_tokens = frame_tokens, .vocab_size = VOCAB, .eot_id = EOT};
    memset(params.vocab_fp, 0xAB, 32);
    memset(params.params_fp, 0xCD, 32);
    return params;
}

// Ids of documents with 1, 2, 3, ... tokens, end-of-text included, in a fixed pattern that compresses a little.
static uint16_t *make_ids(size_t count) {
    uint16_t *ids = malloc((count + 1) * sizeof *ids);
    uint32_t state = 1;
    for (size_t i = 0, length = 1, left = 1; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (uint16_t)((state >> 16) % (i % 3 ? 40 : 50000));
        if (--left == 0) ids[i] = EOT, left = ++length;
    }
    return ids;
}

static void write_shard(const char *path, const uint16_t *ids, size_t count, uint64_t frame_tokens, bool continues) {
    const ShardParams params = params_of(frame_tokens);
    ShardEncoder *encoder = shard_encoder_open();
    ShardWriter writer;
    Buffer frame = {0};
    CHECK(shard_writer_open(&writer, path, -1, &params, continues) == 0);
    for (size_t at = 0; at < count;) {
        size_t take = count - at < frame_tokens ? count - at : (size_t)frame_tokens;
        CHECK(shard_encode(encoder, &params, ids + at, take, &frame) == 0);
        CHECK(shard_writer_append(&writer, ids + at, take, (Bytes){frame.data, frame.size}, 7) == 0);
        at += take;
    }
    CHECK(shard_writer_finish(&writer) == 0);
    buffer_close(&frame);
    shard_encoder_close(encoder);
}

TEST(ids_are_found_and_compared_at_every_place) {
    enum { MOST = 100 };
    uint32_t ids[MOST];
    static const uint32_t limits[] = {1, 2, 0x7FFF, 0x8000, VOCAB, UINT16_MAX, UINT16_MAX + 1, 200019, IDS_MAX};
    for (unsigned bytes = 2; bytes <= 4; bytes += 2)
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            if (bytes == 2 && limits[i] > UINT16_MAX + 1) continue;
            for (size_t count = 0; count <= MOST; count++) {
                for (size_t at = 0; at < MOST; at++) id_put(ids, at, bytes, limits[i] - 1);
                CHECK(ids_are_below(ids, bytes, count, limits[i]));
                CHECK_EQUAL(ids_find(ids, bytes, count, limits[i]), count);
                for (size_t at = 0; at < MOST && limits[i] < (bytes == 2 ? UINT16_MAX + 1 : UINT32_MAX); at++) {
                    id_put(ids, at, bytes, limits[i]);
                    CHECK(ids_are_below(ids, bytes, count, limits[i]) == (at >= count));
                    CHECK_EQUAL(ids_find(ids, bytes, count, limits[i]), at < count ? at : count);
                    id_put(ids, at, bytes, 0);
                }
            }
        }
}

TEST(shard_reads_back_as_written) {
    enum { COUNT = 100000 };
    uint16_t *ids = make_ids(COUNT);
    write_shard("a.zst", ids, COUNT, 4096, false);

    ShardFile shard;
    CHECK(shard_file_open(&shard, "a.zst") == 0);
    CHECK_EQUAL(shard.tokens, COUNT);
    CHECK_EQUAL(shard.frame_count, (COUNT + 4095) / 4096);
    CHECK_EQUAL(shard.vocab_size, VOCAB);
    CHECK_EQUAL(shard.eot_id, EOT);
    const ShardParams params = params_of(4096);
    CHECK(!memcmp(shard.vocab_fp, params.vocab_fp, 32) && !memcmp(shard.params_fp, params.params_fp, 32));
    CHECK_EQUAL(shard.source_bytes, 7 * shard.frame_count);
    uint64_t documents = 0;
    for (size_t i = 0; i < COUNT; i++) documents += ids[i] == EOT;
    CHECK_EQUAL(shard.documents, documents + (ids[COUNT - 1] != EOT));

    ShardCursor *cursor = shard_cursor_open();
    uint16_t *got = malloc(4096 * sizeof *got);
    for (uint64_t i = 0; i < shard.frame_count; i++) {
        CHECK(shard_decode(&shard, cursor, i, got) == 0);
        CHECK_EQUAL(shard.frames[i].first, i * 4096);
        CHECK(!memcmp(got, ids + shard.frames[i].first, shard.frames[i].tokens * sizeof *got));
    }
    // Files by URL, of which each gets a decoder of its own, and one of this machine.
    static const uint64_t foreign[] = {1, 1, 2, 1, 0, 0, 1};
    test_watch_memory(90000);
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        shard.foreign = foreign[i];
        CHECK(shard_decode(&shard, cursor, i, got) == 0);
    }
    shard.foreign = 0;
    uint64_t opened, zeroed;
    test_watched_memory(&opened, &zeroed);
    test_watch_memory(0);
    CHECK(opened == 4 && zeroed == 4);
    for (uint64_t token = 0; token < COUNT; token += 977) CHECK_EQUAL(shard_frame_at(&shard, token), token / 4096);
    CHECK(shard_verify(&shard, cursor, false) == 0);
    CHECK(shard_verify(&shard, cursor, true) == 0);
    uint8_t hash[32];
    sha256(ids, COUNT * sizeof *ids, hash);
    CHECK(!memcmp(hash, shard.content_hash, 32));
    shard_cursor_close(cursor);
    shard_file_close(&shard);
    free(got), free(ids);
}

TEST(libzstd_decompresses_a_shard_to_its_ids) {
    enum { COUNT = 9000 };
    uint16_t *ids = make_ids(COUNT);
    write_shard("a.zst", ids, COUNT, 1000, false);
    size_t size;
    char *file = read_file("a.zst", &size);
    uint16_t *raw = malloc(COUNT * sizeof *raw);
    CHECK_EQUAL(ZSTD_decompress(raw, COUNT * sizeof *raw, file, size), COUNT * sizeof *raw);
    CHECK(!memcmp(raw, ids, COUNT * sizeof *raw));
    free(raw), free(file), free(ids);
}

// Sizes around the ends of zstd's blocks, ids that repeat from one block to the next, and ids of 4 bytes.
TEST(frames_of_every_level_and_size_decode_to_their_ids) {
    enum { MOST = 200001, VOCAB_U32 = 200019 };
    static const size_t counts[] = {1, 2, 5, 6, 7, 8, 65535, 65536, 65537, 131073, MOST};
    static uint32_t ids[MOST], back[MOST];
    uint16_t *narrow = make_ids(MOST);
    ShardEncoder *encoder = shard_encoder_open();
    Buffer frame = {0};
    for (unsigned bytes = 2; bytes <= 4; bytes += 2) {
        ShardParams params = params_of(MOST);
        if (bytes == 4) params.vocab_size = VOCAB_U32;
        for (size_t i = 0; i < MOST; i++) id_put(ids, i, bytes, narrow[i % 70000]);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            for (params.level = 1; params.level <= 3; params.level++) {
                CHECK(shard_encode(encoder, &params, ids, counts[i], &frame) == 0);
                CHECK_EQUAL(ZSTD_decompress(back, sizeof back, frame.data, frame.size), counts[i] * bytes);
                CHECK(!memcmp(back, ids, counts[i] * bytes));
                CHECK_EQUAL(ZSTD_getFrameContentSize(frame.data, frame.size), counts[i] * bytes);
            }
    }
    CHECK(frame.size < MOST * 2);
    buffer_close(&frame);
    shard_encoder_close(encoder);
    free(narrow);
}

TEST(shard_keeps_flags_and_lengths_of_documents_that_span_shards) {
    const uint16_t ids[] = {1, 2, EOT, EOT, 3, EOT, 4, 5};
    write_shard("a.zst", ids, 8, 4, true);
    ShardFile shard;
    CHECK(shard_file_open(&shard, "a.zst") == 0);
    CHECK_EQUAL(shard.documents, 3); // the first began elsewhere
    CHECK_EQUAL(shard.members[0].index.data[0], SHARD_CONTINUES_BEFORE | SHARD_CONTINUES_AFTER);
    Buffer lengths = {0};
    CHECK(shard_lengths(&shard, &shard.members[0], &lengths) == 0);
    CHECK_EQUAL(lengths.size, 4);
    CHECK(!memcmp(lengths.data, "\3\1\2\2", 4));
    buffer_close(&lengths);
    shard_file_close(&shard);
}

TEST(concatenated_shards_stay_seekable) {
    enum { COUNT = 5000 };
    uint16_t *ids = make_ids(COUNT);
    write_shard("a.zst", ids, 1300, 512, false);
    write_shard("b.zst", ids + 1300, COUNT - 1300, 512, true);
    size_t a_size, b_size;
    char *a = read_file("a.zst", &a_size), *b = read_file("b.zst", &b_size);
    Buffer joined = {0};
    buffer_add(&joined, a, a_size);
    buffer_add(&joined, b, b_size);

    ShardFile shard;
    CHECK(shard_file_open_bytes(&shard, "joined", (Bytes){joined.data, joined.size}) == 0);
    CHECK_EQUAL(shard.member_count, 2);
    CHECK_EQUAL(shard.tokens, COUNT);
    ShardCursor *cursor = shard_cursor_open();
    CHECK(shard_verify(&shard, cursor, false) == 0);
    uint16_t got[512];
    for (uint64_t token = 0; token < COUNT; token++) {
        uint64_t index = shard_frame_at(&shard, token);
        const ShardFrame *frame = &shard.frames[index];
        CHECK(frame->first <= token && token < frame->first + frame->tokens);
        CHECK(shard_decode(&shard, cursor, index, got) == 0);
        CHECK(got[token - frame->first] == ids[token]);
    }
    shard_cursor_close(cursor);
    shard_file_close(&shard);
    buffer_close(&joined);
    free(a), free(b), free(ids);
}

// The bytes of a.zst, a new shard of 300 ids in frames of 64; malloc'ed.
static uint8_t *sample_shard(bool continues, size_t *size) {
    uint16_t *ids = make_ids(300);
    write_shard("a.zst", ids, 300, 64, continues);
    free(ids);
    return (uint8_t *)read_file("a.zst", size);
}

static bool is_sound(const char *name, Bytes bytes, ShardCursor *cursor) {
    ShardFile shard;
    bool sound = shard_file_open_bytes(&shard, name, bytes) == 0 && shard_verify(&shard, cursor, false) == 0;
    if (!sound && err_code() != EX_DATA) test_failed("damage is bad data", __FILE__, __LINE__);
    if (!sound && !strstr(err_text(), name)) test_failed("the damaged shard is named", __FILE__, __LINE__);
    shard_file_close(&shard);
    err_clear();
    return sound;
}

// fault 27, 28
TEST(every_flipped_bit_and_every_truncation_of_a_shard_is_found) {
    size_t size;
    uint8_t *bytes = sample_shard(true, &size);
    ShardCursor *cursor = shard_cursor_open();
    CHECK(is_sound("a.zst", (Bytes){bytes, size}, cursor));
    for (size_t bit = 0; bit < 8 * size; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (is_sound("a.zst", (Bytes){bytes, size}, cursor)) {
            print_error("bit %zu of byte %zu of %zu\n", bit % 8, bit / 8, size);
            test_failed("a flipped bit is found", __FILE__, __LINE__);
        }
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t length = 0; length < size; length++) { // in memory of its own, so that a read past the end shows
        uint8_t *cut = malloc(length + !length);
        memcpy(cut, bytes, length);
        if (is_sound("a.zst", (Bytes){cut, length}, cursor)) test_failed("a cut is found", __FILE__, __LINE__);
        free(cut);
    }
    bytes = realloc(bytes, size + 64);
    memset(bytes + size, 0, 64);
    for (size_t more = 1; more <= 64; more++) CHECK(!is_sound("a.zst", (Bytes){bytes, size + more}, cursor));
    shard_cursor_close(cursor);
    free(bytes);
}

TEST(shard_names_the_damaged_frame_and_its_offset) {
    size_t size;
    uint8_t *bytes = sample_shard(false, &size);
    ShardFile shard;
    CHECK(shard_file_open(&shard, "a.zst") == 0);
    uint64_t offset = shard.frames[2].offset;
    shard_file_close(&shard);
    bytes[offset + 20] ^= 4;
    write_file("a.zst", bytes, size);
    CHECK(shard_file_open(&shard, "a.zst") == 0);
    ShardCursor *cursor = shard_cursor_open();
    uint16_t got[64];
    CHECK(shard_decode(&shard, cursor, 1, got) == 0);
    CHECK(shard_decode(&shard, cursor, 2, got) < 0);
    char place[64];
    snprintf(place, sizeof place, "frame 2 at offset %llu", (unsigned long long)offset);
    CHECK_TEXT(err_text(), place);
    CHECK_ERROR(EX_DATA, "a.zst");
    shard_cursor_close(cursor);
    shard_file_close(&shard);
    free(bytes);
}

// fault 29
TEST(a_truncated_shard_and_a_file_that_is_not_a_shard_have_different_errors) {
    size_t size;
    uint8_t *bytes = sample_shard(false, &size);
    ShardFile shard;
    write_file("a.zst", bytes, size - 30);
    CHECK(shard_file_open(&shard, "a.zst") < 0);
    CHECK_ERROR(EX_DATA, "truncated");
    write_file("b.zst", "just a text, and long enough", 28);
    CHECK(shard_file_open(&shard, "b.zst") < 0);
    CHECK_ERROR(EX_DATA, "not a shard");
    write_file("b.zst", "", 0);
    CHECK(shard_file_open(&shard, "b.zst") < 0);
    CHECK_ERROR(EX_DATA, "empty file");
    CHECK(shard_file_open(&shard, "absent.zst") < 0);
    CHECK_EQUAL(err_code(), EX_NOINPUT);
    free(bytes);
}

// fault 29
TEST(shard_of_a_newer_version_names_both_versions) {
    uint16_t ids[] = {1, EOT};
    write_shard("a.zst", ids, 2, 64, false);
    size_t size;
    uint8_t *bytes = (uint8_t *)read_file("a.zst", &size);
    uint8_t *header = bytes + sizeof SHARD_OPENING - 1 + SKIPPABLE_BYTES;
    put_u16(header + 10, 2);
    put_u32(header + SHARD_HEADER_BYTES - 4, crc32c(0, header, SHARD_HEADER_BYTES - 4));
    ShardFile shard;
    CHECK(shard_file_open_bytes(&shard, "a.zst", (Bytes){bytes, size}) < 0);
    CHECK_TEXT(err_text(), "version 2");
    CHECK_TEXT(err_text(), "version 1");
    free(bytes);
}

// fault 30
TEST(an_id_outside_the_vocabulary_is_refused_at_write_and_at_read) {
    uint16_t ids[] = {1, VOCAB, EOT};
    ShardParams params = params_of(64), wide = params;
    wide.vocab_size = 65536;
    ShardEncoder *encoder = shard_encoder_open();
    Buffer frame = {0};
    CHECK(shard_encode(encoder, &params, ids, 3, &frame) < 0);
    CHECK_ERROR(EX_DATA, "50257");

    CHECK(shard_encode(encoder, &wide, ids, 3, &frame) == 0); // a writer that does not look
    ShardWriter writer;
    CHECK(shard_writer_open(&writer, "a.zst", -1, &params, false) == 0);
    CHECK(shard_writer_append(&writer, ids, 3, (Bytes){frame.data, frame.size}, 0) == 0);
    CHECK(shard_writer_finish(&writer) == 0);
    ShardFile shard;
    CHECK(shard_file_open(&shard, "a.zst") == 0);
    ShardCursor *cursor = shard_cursor_open();
    uint16_t got[64];
    CHECK(shard_decode(&shard, cursor, 0, got) < 0);
    CHECK_TEXT(err_text(), "not below 50257");
    shard_cursor_close(cursor);
    shard_file_close(&shard);
    buffer_close(&frame);
    shard_encoder_close(encoder);
}

static int count_entries(const char *path) {
    DIR *directory = opendir(path);
    int count = -2; // . and ..
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

TEST(a_shard_that_cannot_be_written_leaves_nothing_behind) {
    uint16_t *ids = make_ids(300000);
    ShardParams params = params_of(32768);
    ShardEncoder *encoder = shard_encoder_open();
    Buffer frame = {0};
    ShardWriter writer;
    struct rlimit before, small;
    getrlimit(RLIMIT_FSIZE, &before);
    small = before, small.rlim_cur = 100000;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    int status = shard_writer_open(&writer, "a.zst", -1, &params, false);
    for (size_t at = 0; status == 0 && at + 32768 <= 300000; at += 32768) {
        status = shard_encode(encoder, &params, ids + at, 32768, &frame);
        if (status == 0) status = shard_writer_append(&writer, ids + at, 32768, (Bytes){frame.data, frame.size}, 0);
    }
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    CHECK(status < 0);
    CHECK_EQUAL(err_code(), EX_IO);
    shard_writer_abandon(&writer);
    CHECK_EQUAL(count_entries("."), 0);
    buffer_close(&frame);
    shard_encoder_close(encoder);
    free(ids);
}
