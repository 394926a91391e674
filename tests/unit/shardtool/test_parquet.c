// The Parquet reader on files that no library writes: each field of a small file can be given a false value.
#include "shardtool/parquet/parquet_column.h"
#include "shardtool/parquet/thrift_compact.h"
#include "shardtool/where/where.h"
#include "tests/unit/shardtool/fixture_documents.h"

static Bytes bytes_of(const void *data, size_t size) { return (Bytes){data, size}; }

// Thrift

static void put_varint(Buffer *out, uint64_t value) {
    for (; value >= 0x80; value >>= 7) buffer_add(out, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
    buffer_add(out, &(uint8_t){(uint8_t)value}, 1);
}
static void put_zigzag(Buffer *out, int64_t value) { put_varint(out, (uint64_t)value << 1 ^ (uint64_t)(value >> 63)); }
static void put_byte(Buffer *out, unsigned byte) { buffer_add(out, &(uint8_t){(uint8_t)byte}, 1); }
// Fields are written with their whole id, so that their order is free.
static void put_field(Buffer *out, int id, ThriftType type) { put_byte(out, type), put_zigzag(out, id); }
static void put_integer(Buffer *out, int id, int64_t value) { put_field(out, id, THRIFT_I64), put_zigzag(out, value); }
static void put_string(Buffer *out, const char *text) {
    put_varint(out, strlen(text)), buffer_add(out, text, strlen(text));
}
static void put_list(Buffer *out, int id, unsigned count, ThriftType element) {
    put_field(out, id, THRIFT_LIST), put_byte(out, count << 4 | element);
}
static void put_stop(Buffer *out) { put_byte(out, THRIFT_STOP); }

TEST(thrift_skips_every_type_and_stops_at_the_end_of_the_bytes) {
    Buffer out = {0};
    put_field(&out, 1, THRIFT_MAP), put_varint(&out, 2), put_byte(&out, THRIFT_BINARY << 4 | THRIFT_LIST);
    for (int i = 0; i < 2; i++)
        put_string(&out, "key"), put_byte(&out, 3 << 4 | THRIFT_TRUE), buffer_add(&out, "\1\2\1", 3);
    put_field(&out, 2, THRIFT_STRUCT), put_integer(&out, 1, -1), put_field(&out, 2, THRIFT_FALSE), put_stop(&out);
    put_field(&out, 3, THRIFT_DOUBLE), buffer_add(&out, "12345678", 8);
    put_field(&out, 4, THRIFT_SET), put_byte(&out, 1 << 4 | THRIFT_BYTE), put_byte(&out, 7);
    put_integer(&out, 5, INT64_MIN);
    put_stop(&out);
    for (size_t size = 0; size <= out.size; size++) {
        ThriftReader thrift = {.cursor = cursor_init(bytes_of(out.data, size))};
        int64_t last = 0;
        for (ThriftField field = {0}; thrift_next(&thrift, &field);) {
            if (field.id == 5)
                last = thrift_i64(&thrift, field.type);
            else
                thrift_skip(&thrift, field.type);
        }
        CHECK(!thrift.malformed);
        CHECK_EQUAL(thrift.cursor.failed, size < out.size);
        CHECK(last == (size >= out.size - 1 ? INT64_MIN : 0));
    }
    buffer_close(&out);
}

TEST(thrift_refuses_deep_nesting_wrong_types_and_endless_numbers) {
    uint8_t deep[200], endless[20];
    memset(deep, 1 << 4 | THRIFT_LIST, sizeof deep);
    memset(endless, 0xFF, sizeof endless);
    ThriftReader thrift = {.cursor = cursor_init(bytes_of(deep, sizeof deep))};
    thrift_skip(&thrift, THRIFT_LIST);
    CHECK(thrift.malformed);
    thrift = (ThriftReader){.cursor = cursor_init(bytes_of(endless, sizeof endless))};
    thrift_i64(&thrift, THRIFT_I64);
    CHECK(thrift.malformed);
    thrift = (ThriftReader){.cursor = cursor_init(bytes_of("\2", 1))};
    CHECK_EQUAL(thrift_i64(&thrift, THRIFT_BINARY), 0);
    CHECK(thrift.malformed);
}

// Encodings, with the examples of Parquet's Encodings.md

TEST(rle_reads_the_examples_of_the_specification) {
    uint32_t value;
    RleReader packed = rle_open(bytes_of("\x03\x88\xC6\xFA", 4), 3);
    RleReader old = rle_open_packed(bytes_of("\x05\x39\x77", 3), 3);
    for (uint32_t i = 0; i < 8; i++) {
        CHECK(rle_next(&packed, &value));
        CHECK_EQUAL(value, i);
        CHECK(rle_next(&old, &value));
        CHECK_EQUAL(value, i);
    }
    CHECK(!rle_next(&packed, &value) && !rle_next(&old, &value));
}

TEST(rle_mixes_runs_and_refuses_what_is_cut_short_or_too_wide) {
    static const uint8_t bytes[] = {5 << 1, 0xFF, 0x01, 0, 0, 0, 1 << 1 | 1, 1,    2,   3,
                                    4,      5,    6,    7, 8, 9, 2 << 1,     0xFF, 0x02};
    uint32_t value;
    RleReader rle = rle_open(bytes_of(bytes, sizeof bytes), 9);
    for (int i = 0; i < 5; i++) CHECK(rle_next(&rle, &value) && value == 0x1FF);
    for (int i = 0; i < 8; i++) CHECK(rle_next(&rle, &value) && value == (get_u16(bytes + 7 + i) >> i & 0x1FF));
    CHECK(!rle_next(&rle, &value)); // 0x2FF has ten bits
    RleReader wide = rle_open(bytes_of("\x02\x01\x02\x03\x84\x03\x01\x02\x03\x04\x05", 11), 32);
    CHECK(rle_next(&wide, &value) && value == 0x84030201u);
    CHECK(rle_next(&wide, &value) && value == 0x04030201u && !rle_next(&wide, &value)); // a group without its padding
    RleReader none = rle_open(bytes_of("\xFE\xFF\xFF\xFF\x0F", 5), 0);
    for (int i = 0; i < 1000; i++) CHECK(rle_next(&none, &value) && value == 0);
    RleReader endless = rle_open(bytes_of("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 11), 8);
    CHECK(!rle_next(&endless, &value));
}

TEST(delta_reads_the_examples_of_the_specification) {
    static const int64_t want[2][8] = {{1, 2, 3, 4, 5}, {7, 5, 3, 1, 2, 3, 4, 5}};
    static const size_t counts[] = {5, 8};
    // Block of 128, 4 miniblocks; the second example packs differences 0 and 3 beyond -2 into 2 bits each.
    Buffer bytes[2] = {{0}, {0}};
    buffer_add(&bytes[0], "\x80\x01\x04\x05\x02\x02\0\0\0\0rest", 14);
    buffer_add(&bytes[1], "\x80\x01\x04\x08\x0E\x03\x02\0\0\0\xC0\x3F\0\0\0\0\0\0rest", 22);
    for (int i = 0; i < 2; i++) {
        DeltaReader delta;
        Bytes rest;
        int64_t value;
        CHECK(delta_open(&delta, bytes_of(bytes[i].data, bytes[i].size), 32));
        for (size_t j = 0; j < counts[i]; j++) {
            CHECK(delta_rest(&delta, &rest) && rest.size == 4 && !memcmp(rest.data, "rest", 4));
            CHECK(delta_next(&delta, &value));
            CHECK_EQUAL(value, want[i][j]);
        }
        CHECK(!delta_next(&delta, &value));
        for (size_t size = 0; size < bytes[i].size - 4; size++) {
            bool opened = delta_open(&delta, bytes_of(bytes[i].data, size), 32);
            CHECK(!opened || !delta_rest(&delta, &rest));
        }
        buffer_close(&bytes[i]);
    }
}

TEST(delta_refuses_impossible_blocks) {
    static const char *const headers[] = {"\x81\x01\x04\x05\x02", "\x80\x01\x03\x05\x02", "\x80\x01\x08\x05\x02",
                                          "\x80\x80\x80\x80\x80\x80\x01\x01\x05\x02"};
    DeltaReader delta;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        CHECK(!delta_open(&delta, bytes_of(headers[i], strlen(headers[i])), 64));
    Bytes rest; // a miniblock of 33 bits in a column of 32
    CHECK(delta_open(&delta, bytes_of("\x80\x01\x04\x05\x02\x02\x21\0\0\0aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 43), 32));
    CHECK(!delta_rest(&delta, &rest));
}

// Conditions

TEST(conditions_are_parsed_or_refused_with_the_position) {
    static const struct {
        const char *text, *name, *value; // of the last comparison
        WhereOperator op;
        unsigned count;
    } rows[] = {
        {"language_score>=0.65", "language_score", "0.65", WHERE_GREATER_EQUAL, 1},
        {" a.b == \" x \" ", "a.b", " x ", WHERE_EQUAL, 1},
        {"a!=''", "a", "", WHERE_NOT_EQUAL, 1},
        {"a<>b", "a", "b", WHERE_NOT_EQUAL, 1},
        {"a<-1", "a", "-1", WHERE_LESS, 1},
        {"a <= 'b=c'", "a", "b=c", WHERE_LESS_EQUAL, 1},
        {"a>b", "a", "b", WHERE_GREATER, 1},
        {"a=1 and b = 'c and d''e' AND \"f \"\"g\" = and", "f \"g", "and", WHERE_EQUAL, 3},
        {"a='b'and\"c\"=\"d'\"", "c", "d'", WHERE_EQUAL, 2},
    };
    WhereList list;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(where_parse(&list, &(StringList){{rows[i].text}, 1}) == 0);
        const Where *last = &list.items[list.count - 1];
        CHECK(list.count == rows[i].count && last->op == rows[i].op);
        CHECK(!strcmp(last->name, rows[i].name) && !strcmp(last->value, rows[i].value));
    }
    static const struct {
        const char *text, *message;
    } wrong[] = {
        {"", "character 1: expected the name"},
        {"a", "character 2: expected one of = == != <> < <= > >="},
        {"==1", "character 1: expected the name"},
        {"'a'=1", "character 1: expected the name"},
        {"a=>1", "character 3: expected a value"},
        {"a===1", "character 4: expected a value"},
        {"a!1", "character 2: expected one of"},
        {"a b=1", "character 3: expected one of"},
        {"a >= ", "character 6: expected a value"},
        {"a<=b=c", "character 5: expected 'and' or the end"},
        {"a=1 or b=2", "character 5: expected 'and' or the end"},
        {"a=1 and (b=2)", "character 9: expected the name"},
        {"a=1 and", "character 5: expected 'and' or the end"},
        {"a=1 andb=2", "character 5: expected 'and' or the end"},
        {"a==de&b>0.65", "character 6: expected 'and' or the end"},
        {"a='it's'", "character 7: expected 'and' or the end"},
        {"a='b", "character 3: expected a closing quote"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(where_parse(&list, &(StringList){{wrong[i].text}, 1}) < 0);
        CHECK_ERROR(EX_USAGE, wrong[i].message);
    }
    char long_word[300] = "a='";
    memset(long_word + 3, 'x', 256), strcpy(long_word + 259, "'");
    CHECK(where_parse(&list, &(StringList){{long_word}, 1}) < 0);
    CHECK_ERROR(EX_USAGE, "character 3: expected at most 255 bytes");
}

// Whole files: "PAR1", one page of column `text`, the footer. Every number can be replaced by a false one.
typedef struct {
    const char *name, *body;
    int64_t body_bytes, values, rows, group_rows, chunk_values, type, physical, codec, encoding, page_type;
    int64_t plain_bytes, stored_bytes, crc, data_at, chunk_bytes, children, repetition, footer_bytes, converted;
    const char *path;
    bool encrypted, elsewhere, no_metadata, has_crc, many_columns;
} FakeFile;

static const FakeFile right_file = {.name = "text",
                                    .path = "text",
                                    .body = "\2\0\0\0hi\3\0\0\0you",
                                    .body_bytes = 13,
                                    .values = 2,
                                    .rows = 2,
                                    .group_rows = 2,
                                    .chunk_values = 2,
                                    .type = PARQUET_BYTE_ARRAY,
                                    .physical = PARQUET_BYTE_ARRAY,
                                    .plain_bytes = 13,
                                    .stored_bytes = 13,
                                    .data_at = 4,
                                    .chunk_bytes = -1,
                                    .children = 1,
                                    .footer_bytes = -1,
                                    .converted = -1};

static void put_column(Buffer *out, const FakeFile *file, int64_t chunk_bytes) {
    if (file->elsewhere) put_field(out, 1, THRIFT_BINARY), put_string(out, "other.parquet");
    if (!file->no_metadata) {
        put_field(out, 3, THRIFT_STRUCT);
        put_integer(out, 1, file->physical);
        put_list(out, 3, 1, THRIFT_BINARY), put_string(out, file->path);
        put_integer(out, 4, file->codec);
        put_integer(out, 5, file->chunk_values);
        put_integer(out, 6, 1000);
        put_integer(out, 7, chunk_bytes);
        put_integer(out, 9, file->data_at);
        put_stop(out);
    }
    if (file->encrypted) put_field(out, 8, THRIFT_STRUCT), put_stop(out);
    put_stop(out);
}

static Buffer write_fake(const FakeFile *file) {
    Buffer out = {0};
    buffer_add(&out, "PAR1", 4);
    put_integer(&out, 1, file->page_type);
    put_integer(&out, 2, file->plain_bytes);
    put_integer(&out, 3, file->stored_bytes);
    if (file->has_crc) put_integer(&out, 4, file->crc);
    put_field(&out, file->page_type == 2 ? 7 : 5, THRIFT_STRUCT);
    put_integer(&out, 1, file->values);
    put_integer(&out, 2, file->encoding);
    put_integer(&out, 3, PARQUET_RLE);
    put_stop(&out), put_stop(&out);
    buffer_add(&out, file->body, (size_t)file->body_bytes);
    int64_t chunk_bytes = file->chunk_bytes < 0 ? (int64_t)out.size - 4 : file->chunk_bytes;

    size_t footer_at = out.size;
    put_list(&out, 2, 2, THRIFT_STRUCT);
    put_field(&out, 4, THRIFT_BINARY), put_string(&out, "schema"), put_integer(&out, 5, file->children), put_stop(&out);
    put_integer(&out, 1, file->type), put_integer(&out, 3, file->repetition);
    if (file->converted >= 0) put_integer(&out, 6, file->converted);
    put_field(&out, 4, THRIFT_BINARY), put_string(&out, file->name), put_stop(&out);
    put_integer(&out, 3, file->rows);
    put_list(&out, 4, 1, THRIFT_STRUCT);
    put_list(&out, 1, file->many_columns ? 2 : 1, THRIFT_STRUCT), put_column(&out, file, chunk_bytes);
    if (file->many_columns) put_column(&out, file, chunk_bytes);
    put_integer(&out, 3, file->group_rows), put_stop(&out);
    put_stop(&out);
    uint32_t footer_bytes = file->footer_bytes < 0 ? (uint32_t)(out.size - footer_at) : (uint32_t)file->footer_bytes;
    buffer_add(&out, &footer_bytes, 4);
    buffer_add(&out, "PAR1", 4);
    return out;
}

static int read_all(Bytes file, Buffer *texts) {
    SourceOptions options = {.text_column = "text"};
    return read_documents(memory_file(file), &options, texts);
}

static void set_body(FakeFile *file, const char *body, int64_t bytes) {
    file->body = body, file->body_bytes = file->plain_bytes = file->stored_bytes = bytes;
}

// Writes the file, and expects its two texts.
static void check_read(const FakeFile *fake) {
    Buffer file = write_fake(fake), texts = {0};
    CHECK(read_all(bytes_of(file.data, file.size), &texts) == 0);
    CHECK(texts.size == 7 && !memcmp(texts.data, "hi\xFFyou\xFF", 7));
    buffer_close(&file), buffer_close(&texts);
}

TEST(a_parquet_file_written_by_hand_is_read) {
    check_read(&right_file);
    FakeFile optional = right_file; // levels 1, 1 in a run
    optional.repetition = 1;
    set_body(&optional, "\2\0\0\0\4\1\2\0\0\0hi\3\0\0\0you", 19);
    check_read(&optional);
}

// Writes the file, expects 65 with `why`, and restores the right values.
static void check_refused(FakeFile *fake, const char *why) {
    Buffer file = write_fake(fake), texts = {0};
    CHECK(read_all(bytes_of(file.data, file.size), &texts) < 0);
    CHECK_TEXT(err_text(), why);
    CHECK_ERROR(EX_DATA, "'memory'");
    buffer_close(&file), buffer_close(&texts);
    *fake = right_file;
}

TEST(a_page_may_end_in_16_zeros_and_in_nothing_else) {
    static const char body[13 + 17] = "\2\0\0\0hi\3\0\0\0you";
    FakeFile fake = right_file;
    set_body(&fake, body, 13 + 16);
    check_read(&fake);
    set_body(&fake, body, 13 + 17), check_refused(&fake, "more values");
    set_body(&fake, "\2\0\0\0hi\3\0\0\0you\0\0\0\1", 13 + 4), check_refused(&fake, "more values");
}

// fault 5
TEST(a_parquet_footer_with_false_values_is_refused) {
    FakeFile fake = right_file;
    fake.footer_bytes = INT32_MAX, check_refused(&fake, "a footer of 2147483647 bytes does not fit");
    fake.footer_bytes = 0, check_refused(&fake, "the footer is malformed");
    fake.footer_bytes = 20, check_refused(&fake, "a footer without a schema");
    fake.children = 2, check_refused(&fake, "in the middle of a group");
    fake.children = 0, check_refused(&fake, "element 1 of the schema");
    fake.children = -1, check_refused(&fake, "element 0 of the schema");
    fake.type = 8, check_refused(&fake, "element 1 of the schema");
    fake.repetition = 3, check_refused(&fake, "element 1 of the schema");
    fake.rows = 1, check_refused(&fake, "more rows than the file");
    fake.rows = 3, check_refused(&fake, "fewer rows than the file");
    fake.group_rows = -2, check_refused(&fake, "the footer is malformed");
    fake.many_columns = true, check_refused(&fake, "2 columns, but the schema has 1");
    fake.chunk_values = 3, check_refused(&fake, "row group 0, column 'text': 3 values for 2 rows");
    fake.physical = PARQUET_INT64, check_refused(&fake, "another column");
    fake.path = "id", check_refused(&fake, "another column");
    fake.no_metadata = true, check_refused(&fake, "no metadata");
    fake.data_at = 3, check_refused(&fake, "at offset 3 are not inside the file");
    fake.data_at = INT64_MAX, check_refused(&fake, "are not inside the file");
    fake.chunk_bytes = INT64_MAX, check_refused(&fake, "9223372036854775807 bytes at offset 4");
    fake.chunk_bytes = 2000, check_refused(&fake, "2000 bytes at offset 4 are not inside the file");
}

// fault 6
TEST(an_unsupported_feature_of_parquet_is_refused_by_name) {
    FakeFile fake = right_file;
    fake.name = fake.path = "words", check_refused(&fake, "has no column 'text'; its columns: words (BYTE_ARRAY)");
    fake.converted = 5, check_refused(&fake, "column 'text' is DECIMAL, not text");
    fake.type = fake.physical = PARQUET_INT64, check_refused(&fake, "column 'text' is INT64");
    fake.repetition = 2, check_refused(&fake, "a list, not one value");
    fake.codec = PARQUET_LZO, check_refused(&fake, "codec 3 (LZO)");
    fake.codec = 99, check_refused(&fake, "codec 99 (unknown)");
    fake.encoding = PARQUET_BYTE_STREAM_SPLIT, check_refused(&fake, "encoding 9 (BYTE_STREAM_SPLIT) is not supported");
    fake.encoding = 1, check_refused(&fake, "encoding 1 (unknown)");
    fake.encoding = PARQUET_DELTA_BINARY_PACKED,
    check_refused(&fake, "(DELTA_BINARY_PACKED) is not supported for BYTE_ARRAY");
    fake.encrypted = true, check_refused(&fake, "the column is encrypted");
    fake.elsewhere = true, check_refused(&fake, "in another file");
    fake.page_type = 7, check_refused(&fake, "a page of unknown type 7");
}

// fault 7
TEST(a_parquet_page_with_false_values_is_refused) {
    FakeFile fake = right_file;
    fake.stored_bytes = 14, check_refused(&fake, "page at byte 4: its 14 bytes are not inside");
    fake.stored_bytes = INT32_MAX, check_refused(&fake, "its 2147483647 bytes are not inside the column's");
    fake.stored_bytes = -1, check_refused(&fake, "its -1 bytes are not inside");
    fake.plain_bytes = 12, check_refused(&fake, "13 bytes, not compressed, for 12");
    fake.plain_bytes = INT32_MAX, fake.codec = PARQUET_SNAPPY, check_refused(&fake, "says 2147483647 bytes");
    fake.plain_bytes = 60 << 20, fake.codec = PARQUET_ZSTD, check_refused(&fake, "13 bytes of ZSTD do not decompress");
    fake.plain_bytes = -1, check_refused(&fake, "says -1 bytes");
    fake.values = 3, check_refused(&fake, "3 values, but only 2 are left");
    fake.values = 1, check_refused(&fake, "more values");
    fake.values = -1, check_refused(&fake, "no number of values");
    fake.has_crc = true, fake.crc = 1, check_refused(&fake, "its checksum does not fit");
    fake.body = "\2\0\0\0hi\4\0\0\0you", check_refused(&fake, "value 1 is missing or malformed (PLAIN)");
    fake.body = "\xFF\xFF\xFF\xFFhi\3\0\0\0you", check_refused(&fake, "value 0 is missing or malformed");
    fake.encoding = PARQUET_RLE_DICTIONARY, check_refused(&fake, "value 0 is missing or malformed (RLE_DICTIONARY)");
    fake.encoding = PARQUET_RLE_DICTIONARY, fake.body = "\x21\0\0\0hi\3\0\0\0you";
    check_refused(&fake, "dictionary indices of 33 bits");
    fake.encoding = PARQUET_DELTA_BYTE_ARRAY, check_refused(&fake, "its DELTA_BYTE_ARRAY values are malformed");
    fake.page_type = 2, fake.values = 4, check_refused(&fake, "4 values do not fit into a dictionary of 13 bytes");
    fake.page_type = 2, fake.values = 3, check_refused(&fake, "value 2 of the dictionary ends beyond the page");
    fake.page_type = 2, check_refused(&fake, "its pages end 2 values too early");
    fake.repetition = 1, check_refused(&fake, "its levels end too early"); // the first string is taken for the levels
}

static void check_prefixes(Bytes file) {
    Buffer texts = {0};
    for (size_t size = 4; size < file.size; size++) {
        CHECK(read_all(bytes_of(file.data, size), &texts) < 0);
        CHECK_ERROR(EX_DATA, "cut short");
    }
    buffer_close(&texts);
}

static Bytes small_file(void) {
    char path[PATH_MAX_BYTES];
    size_t size;
    snprintf(path, sizeof path, "%s/small.parquet", test_data);
    char *data = read_file(path, &size);
    return bytes_of(data, size);
}

// fault 5
TEST(every_prefix_of_a_parquet_file_is_refused) {
    Buffer file = write_fake(&right_file);
    check_prefixes(bytes_of(file.data, file.size));
    check_prefixes(small_file());
    buffer_close(&file);
}

// The file has one text that is null. A flip that makes another text null was found.
TEST(a_flipped_bit_of_a_parquet_file_is_found_or_changes_no_text) {
    Bytes small = small_file();
    uint8_t *file = malloc(small.size);
    memcpy(file, small.data, small.size);
    const SourceOptions options = {.text_column = "text"};
    SourceOptions honest_options = options;
    Buffer want = {0}, texts = {0};
    CHECK(read_documents(memory_file(small), &honest_options, &want) == 0);
    for (size_t bit = 4 * 8; bit < small.size * 8; bit++) {
        SourceOptions flipped = options;
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
        int status = read_documents(memory_file(bytes_of(file, small.size)), &flipped, &texts);
        bool found = status < 0 || flipped.skips.nulls != honest_options.skips.nulls ||
                     strcmp(flipped.skips.first, honest_options.skips.first);
        if (status < 0) CHECK_EQUAL(err_code(), EX_DATA);
        if (!found && (texts.size != want.size || memcmp(texts.data, want.data, want.size))) {
            print_error("bit %zu of byte %zu: other texts\n", bit % 8, bit / 8);
            test_failed("the same texts", __FILE__, __LINE__);
        }
        err_clear();
        file[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    free(file);
    buffer_close(&want), buffer_close(&texts);
}
