// The tokenizer against the ids of tiktoken for 2,000 texts (tests/data/tokenizer_vectors.jsonl), and its other
// guarantees.
#include "common/hash.h"
#include "common/rng.h"
#include "tests/test.h"
#include "tokenizer/files/vocab_file.h"
#include "tokenizer/tokenizer.h"
#include <jansson.h>
#include <pthread.h>
#include <sys/resource.h>
#include <xxhash.h>

static const Vocab *vocab;

typedef struct {
    Buffer text;
    uint16_t *ids;
    size_t count;
    bool known; // else only count and sha are given
    char sha[65];
} Vector;

static Vector *vectors;
static size_t vector_count;

static void vector_read(Vector *vector, json_t *line) {
    *vector = (Vector){0};
    json_t *ids = json_object_get(line, "ids"), *repeat = json_object_get(line, "rep");
    const char *hex = json_string_value(json_object_get(line, "hex"));
    if (repeat) {
        json_t *unit = json_array_get(repeat, 0);
        for (json_int_t i = json_integer_value(json_array_get(repeat, 1)); i > 0; i--)
            buffer_add(&vector->text, json_string_value(unit), json_string_length(unit));
    } else if (hex) {
        size_t size = strlen(hex) / 2;
        buffer_reserve(&vector->text, size + 1);
        CHECK(hex_decode(vector->text.data, hex, size) == 0);
        vector->text.size = size;
    } else {
        json_t *text = json_object_get(line, "text");
        buffer_add(&vector->text, json_string_value(text), json_string_length(text));
    }
    vector->known = ids;
    vector->count = ids ? json_array_size(ids) : (size_t)json_integer_value(json_object_get(line, "nids"));
    if (!ids) snprintf(vector->sha, sizeof vector->sha, "%s", json_string_value(json_object_get(line, "sha")));
    vector->ids = calloc(vector->count + 1, 2);
    for (size_t i = 0; ids && i < vector->count; i++)
        vector->ids[i] = (uint16_t)json_integer_value(json_array_get(ids, i));
}

// Opens the vocabulary and reads the vectors, once for all tests.
static void prepare(void) {
    if (vectors) return;
    vocab = vocab_open();
    CHECK(vocab);
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer_vectors.jsonl", test_data);
    FILE *file = fopen(path, "r");
    CHECK(file);
    vectors = calloc(2000, sizeof *vectors);
    json_t *line;
    while ((line = json_loadf(file, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL))) {
        CHECK(vector_count < 2000);
        vector_read(&vectors[vector_count++], line);
        json_decref(line);
    }
    fclose(file);
    CHECK_EQUAL(vector_count, 2000);
}

static void check_ids(const Vector *vector, const uint16_t *ids, ssize_t count) {
    size_t index = (size_t)(vector - vectors);
    if (count != (ssize_t)vector->count) print_error("vector %zu\n", index);
    CHECK_EQUAL(count, vector->count);
    if (!vector->known) {
        uint8_t digest[32];
        char hex[65];
        sha256(ids, vector->count * 2, digest);
        hex_encode(hex, digest, sizeof digest);
        CHECK_TEXT(hex, vector->sha);
    } else {
        bool same = !memcmp(ids, vector->ids, vector->count * 2);
        if (!same) print_error("vector %zu\n", index);
        CHECK(same);
    }
}

static uint16_t *ids_for(size_t bytes) {
    uint16_t *ids = malloc(encoder_ids_max(bytes) * 2);
    if (!ids) abort();
    return ids;
}

// An encoder on the portable path, whatever the test's own is.
static Encoder *portable_encoder(InvalidUtf8 invalid) {
    const Isa isa = cpu_isa();
    test_cap_isa(ISA_PORTABLE);
    Encoder *encoder = encoder_open(vocab, invalid);
    test_cap_isa(isa);
    return encoder;
}

TEST_ON_EACH_ISA(tokenizer_gives_the_ids_of_tiktoken) {
    prepare();
    Encoder *encoder = encoder_open(vocab, INVALID_REPLACE);
    for (size_t pass = 0; pass < 2; pass++) // in the second pass every piece is in the cache
        for (Vector *v = vectors; v < vectors + vector_count; v++) {
            // a copy of exact size, so that the sanitizer detects reads past the end
            uint8_t *exact = malloc(v->text.size + !v->text.size);
            uint16_t *ids = ids_for(v->text.size);
            memcpy(exact, v->text.data ? v->text.data : exact, v->text.size);
            check_ids(v, ids, encoder_encode(encoder, (Bytes){exact, v->text.size}, ids));
            free(exact);
            free(ids);
        }
    CHECK(encoder_replaced(encoder) > 0);
    encoder_close(encoder);
}

TEST(tokenizer_gives_the_same_ids_for_a_document_in_parts) {
    prepare();
    Encoder *encoder = encoder_open(vocab, INVALID_REPLACE);
    for (Vector *v = vectors; v < vectors + vector_count; v++) {
        size_t size = v->text.size, step = size > 5000 ? size / 3 : 1;
        uint16_t *ids = ids_for(size);
        for (size_t cut = 0; cut <= size; cut += step) { // every split in two
            ssize_t first = encoder_encode_part(encoder, (Bytes){v->text.data, cut}, false, ids);
            CHECK(first >= 0);
            ssize_t rest =
                encoder_encode_part(encoder, (Bytes){size ? v->text.data + cut : NULL, size - cut}, true, ids + first);
            CHECK(rest >= 0);
            check_ids(v, ids, first + rest);
        }
        for (size_t part = 1; part <= 7 && size < 5000; part++) { // and into many
            uint16_t *out = ids;
            for (size_t at = 0; at < size; at += part) {
                size_t bytes = part < size - at ? part : size - at;
                ssize_t count = encoder_encode_part(encoder, (Bytes){v->text.data + at, bytes}, false, out);
                CHECK(count >= 0);
                out += count;
            }
            ssize_t count = encoder_encode_part(encoder, (Bytes){0}, true, out);
            CHECK(count >= 0);
            check_ids(v, ids, out + count - ids);
            CHECK_EQUAL(encoder_held_bytes(encoder), 0);
        }
        free(ids);
    }
    encoder_close(encoder);
}

TEST(tokenizer_holds_back_little_of_a_document_in_parts) {
    prepare();
    Encoder *encoder = encoder_open(vocab, INVALID_REPLACE);
    uint16_t *ids = ids_for(1000);
    for (int i = 0; i < 1000; i++) {
        CHECK(encoder_encode_part(encoder, (Bytes){(const uint8_t *)"many words, none of them long ", 30}, false,
                                  ids) >= 0);
        CHECK(encoder_held_bytes(encoder) <= 30);
    }
    for (int i = 0; i < 1000; i++) { // no white space, no ASCII
        const char *text = "\xE4\xB8\xAD\xE6\x96\x87\xE3\x80\x82\xE4\xBD\xA0\xE5\xA5\xBD";
        CHECK(encoder_encode_part(encoder, (Bytes){(const uint8_t *)text, 15}, false, ids) >= 0);
        CHECK(encoder_held_bytes(encoder) <= 40);
    }
    free(ids);
    encoder_close(encoder);
}

// fault 10
TEST(tokenizer_refuses_invalid_utf8_with_its_offset) {
    prepare();
    Encoder *encoder = encoder_open(vocab, INVALID_FAIL);
    uint16_t ids[256];
    CHECK_EQUAL(encoder_encode(encoder, (Bytes){(const uint8_t *)"ab \xE4\xB8 c", 7}, ids), -1);
    CHECK_ERROR(EX_DATA, "invalid UTF-8 at byte 3");
    // the offset counts from the start of the document, in several parts too
    CHECK(encoder_encode_part(encoder, (Bytes){(const uint8_t *)"one two three ", 14}, false, ids) > 0);
    CHECK_EQUAL(encoder_encode_part(encoder, (Bytes){(const uint8_t *)"x\xFF", 2}, true, ids), -1);
    CHECK_ERROR(EX_DATA, "invalid UTF-8 at byte 15");
    // the encoder can be used for the next document
    CHECK_EQUAL(encoder_encode(encoder, (Bytes){(const uint8_t *)"hello", 5}, ids), 1);
    CHECK_EQUAL(ids[0], 31373);
    encoder_close(encoder);
}

TEST(tokenizer_counts_replaced_bytes) {
    prepare();
    Encoder *encoder = encoder_open(vocab, INVALID_REPLACE);
    uint16_t ids[256];
    // tiktoken's ids of b"a\xff\xed\xa0\x80\xe4\xb8b\xf0\x9f".decode("utf-8", "replace"), which holds six U+FFFD
    const uint16_t want[] = {64, 12100, 4210, 65, 4210};
    const char text[] = "a\xFF\xED\xA0\x80\xE4\xB8"
                        "b\xF0\x9F";
    CHECK_EQUAL(encoder_encode(encoder, (Bytes){(const uint8_t *)text, sizeof text - 1}, ids), 5);
    CHECK(!memcmp(ids, want, sizeof want));
    CHECK_EQUAL(encoder_replaced(encoder), 6);
    encoder_close(encoder);
}

// fault 12
TEST(tokenizer_encodes_the_end_of_text_marker_as_text) {
    prepare();
    Encoder *encoder = encoder_open(vocab, INVALID_FAIL);
    uint16_t ids[128], want[] = {27, 91, 437, 1659, 5239, 91, 29};
    CHECK_EQUAL(encoder_encode(encoder, (Bytes){(const uint8_t *)"<|endoftext|>", 13}, ids), 7);
    CHECK(!memcmp(ids, want, sizeof want));
    encoder_close(encoder);
    Buffer back = {0};
    CHECK_EQUAL(vocab_decode(vocab, &(uint16_t){TOKEN_END_OF_TEXT}, 1, &back), 0);
    CHECK(back.size == 13 && !memcmp(back.data, "<|endoftext|>", 13));
    CHECK_EQUAL(vocab_decode(vocab, &(uint16_t){TOKEN_COUNT}, 1, &back), -1);
    CHECK_ERROR(EX_DATA, "50257");
    buffer_close(&back);
}

TEST(tokenizer_merges_are_the_published_ones) {
    prepare();
    Buffer text = {0};
    uint8_t digest[32];
    char hex[65];
    vocab_print_merges(vocab, &text);
    sha256(text.data, text.size, digest);
    hex_encode(hex, digest, sizeof digest);
    CHECK_TEXT(hex, "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"); // of OpenAI's vocab.bpe
    buffer_close(&text);
}

// hashlib.sha256 over the same bytes, built from encoder.json's content (tests/oracle/tokenizer/test_tokenizer.py
// computes it too)
TEST(tokenizer_fingerprint_matches_the_shard_format) {
    prepare();
    uint8_t fingerprint[32];
    char hex[65];
    vocab_fingerprint(vocab, fingerprint);
    hex_encode(hex, fingerprint, sizeof fingerprint);
    CHECK_TEXT(hex, "4a155e7ccd300e17a6ae4acfecc77a9abd086ff78a6f5b52c536499071748e6c");
    CHECK(vocab_is_gpt2_fingerprint(fingerprint));
    fingerprint[31] ^= 1;
    CHECK(!vocab_is_gpt2_fingerprint(fingerprint));
}

// fault 11
TEST(tokenizer_encodes_a_very_long_word_in_linear_time) {
    prepare();
    enum { SIZE = 4 << 20 };
    uint8_t *text = malloc(SIZE);
    uint16_t *ids = ids_for(SIZE);
    Encoder *encoder = encoder_open(vocab, INVALID_REPLACE);
    Buffer back = {0};
    for (const char *unit = "a0^- \n"; *unit; unit++) {
        memset(text, *unit, SIZE);
        ssize_t count = encoder_encode(encoder, (Bytes){text, SIZE}, ids); // quadratic would take hours
        CHECK(count > 0);
        back.size = 0;
        CHECK(vocab_decode(vocab, ids, (size_t)count, &back) == 0);
        CHECK(back.size == SIZE && !memcmp(back.data, text, SIZE));
    }
    buffer_close(&back);
    encoder_close(encoder);
    free(text);
    free(ids);
}

// Random vectors in one document, so that each meets many neighbours.
static Buffer long_document(size_t size) {
    Buffer text = {0};
    for (uint64_t i = 0; text.size < size; i++) {
        const Vector *v = &vectors[rng_u64(1, 0, i) % vector_count];
        if (v->text.size < 5000) buffer_add(&text, v->text.data, v->text.size);
    }
    return text;
}

TEST_ON_EACH_ISA(tokenizer_gives_the_same_ids_whole_and_in_parts) {
    prepare();
    Buffer text = long_document(2 << 20);
    uint16_t *want = ids_for(text.size), *ids = ids_for(text.size);
    for (InvalidUtf8 invalid = INVALID_REPLACE; invalid <= INVALID_BYTES; invalid += INVALID_BYTES - INVALID_REPLACE) {
        Encoder *encoder = portable_encoder(invalid);
        ssize_t count = encoder_encode(encoder, (Bytes){text.data, text.size}, want);
        CHECK(count > 0);
        encoder_close(encoder);
        encoder = encoder_open(vocab, invalid);
        CHECK_EQUAL(encoder_encode(encoder, (Bytes){text.data, text.size}, ids), count);
        CHECK(!memcmp(ids, want, (size_t)count * 2));
        uint16_t *out = ids;
        uint64_t turn = 0;
        for (size_t at = 0, size; at < text.size; at += size) {
            size = rng_u64(2, 0, turn++) % 100000 + 1;
            if (size > text.size - at) size = text.size - at;
            ssize_t more = encoder_encode_part(encoder, (Bytes){text.data + at, size}, at + size == text.size, out);
            CHECK(more >= 0);
            out += more;
        }
        CHECK_EQUAL(out - ids, count);
        CHECK(!memcmp(ids, want, (size_t)count * 2));
        encoder_close(encoder);
    }
    buffer_close(&text);
    free(want);
    free(ids);
}

static void *encode_in_thread(void *wanted) {
    Encoder *encoder = encoder_open(vocab, INVALID_REPLACE);
    bool same = true;
    for (Vector *v = vectors; v < vectors + vector_count; v++) {
        uint16_t *ids = ids_for(v->text.size);
        ssize_t count = encoder_encode(encoder, (Bytes){v->text.data, v->text.size}, ids);
        same &= count == (ssize_t)v->count && (!v->known || !memcmp(ids, v->ids, v->count * 2));
        free(ids);
    }
    encoder_close(encoder);
    return same ? wanted : NULL;
}

TEST(tokenizer_threads_share_the_vocabulary) {
    prepare();
    pthread_t threads[3];
    char right[1]; // a thread returns its address if all ids were equal
    for (int i = 0; i < 3; i++) CHECK(!pthread_create(&threads[i], NULL, encode_in_thread, right));
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        CHECK(result == right);
    }
}

TEST_CI(tokenizer_memory_stays_below_its_limit) {
    prepare();
    enum { SIZE = 1 << 20, CAP_KB = 72 << 10 };
    uint8_t *text = malloc(SIZE);
    uint16_t *ids = ids_for(SIZE);
    memset(text, 0, SIZE);
    memset(ids, 0, encoder_ids_max(SIZE) * 2);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    Encoder *encoder = encoder_open(vocab, INVALID_REPLACE);
    for (uint64_t turn = 0; turn < 24; turn++) { // words of all sizes that never repeat
        for (size_t i = 0; i < SIZE; i++) {
            uint64_t random = rng_u64(turn, 0, i);
            text[i] = random % 11 == 0 || (random >> 32) % 64 == 0 ? ' ' : (uint8_t)('a' + (random >> 8) % 26);
        }
        CHECK(encoder_encode(encoder, (Bytes){text, SIZE}, ids) > 0);
    }
    getrusage(RUSAGE_SELF, &after);
#ifndef __SANITIZE_THREAD__ // which uses several bytes for each
    CHECK(after.ru_maxrss - before.ru_maxrss < CAP_KB);
#endif
    encoder_close(encoder);
    free(text);
    free(ids);
}
