// Tables of documents: written, read back in order and at any place, and every damage found.
#include "common/file/file.h"
#include "dataset/provenance.h"
#include "tests/test.h"

enum { ROWS = 40000 };

// Row i as the table is given it: nothing of each 7th, inputs in turns, records up and down, values of all sizes.
static void make_row(Buffer *row, uint64_t i) {
    char name[64] = {0}, key[32];
    row->size = 0;
    if (i % 7 == 3) return;
    snprintf(name, sizeof name, "in/%llu.parquet", (unsigned long long)(i * i % 97));
    provenance_begin(row, name, i % 5 ? i : UINT64_MAX - i);
    if (i % 2) provenance_add(row, "url", (Bytes){(const uint8_t *)name, i % sizeof name});
    snprintf(key, sizeof key, "key%llu", (unsigned long long)(i / 100)); // more than one block takes
    if (i % 3 == 1) provenance_add(row, key, (Bytes){0});
}

static ProvenanceFile write_table(const char *path, uint64_t rows) {
    ProvenanceWriter writer = {0};
    ProvenanceFile file = {0};
    Buffer row = {0};
    snprintf(writer.path, sizeof writer.path, "%s", path);
    for (uint64_t i = 0; i < rows; i++) {
        make_row(&row, i);
        CHECK_EQUAL(provenance_writer_add(&writer, (Bytes){row.data, row.size}), 0);
    }
    CHECK_EQUAL(provenance_writer_finish(&writer, &file), 0);
    buffer_close(&row);
    return file;
}

// The values of a row come in the order of the keys of its block.
static void check_row(ProvenanceTable *table, uint64_t number) {
    Buffer made = {0}, got = {0};
    Provenance want, read;
    Bytes value, other;
    const char *key;
    make_row(&made, number);
    CHECK_EQUAL(provenance_table_row(table, number, &got), 0);
    CHECK_EQUAL(got.size, made.size);
    if (provenance_parse((Bytes){made.data, made.size}, &want)) {
        CHECK(provenance_parse((Bytes){got.data, got.size}, &read));
        CHECK(!strcmp(want.input, read.input) && want.record == read.record);
        while (provenance_next_value(&want.values, &key, &value))
            CHECK(provenance_find_value(&read, key, &other) && other.size == value.size &&
                  (!value.size || !memcmp(other.data, value.data, value.size)));
    }
    buffer_close(&made);
    buffer_close(&got);
}

TEST(provenance_rows_read_back_in_order_and_at_any_place) {
    const ProvenanceFile file = write_table("table.docs", ROWS);
    ProvenanceTable table;
    Buffer bytes = {0};
    CHECK_EQUAL(provenance_table_read(&table, &bytes, "table.docs", &file, ROWS), 0);
    for (uint64_t i = 0; i < ROWS; i++) check_row(&table, i);
    for (uint64_t i = 0; i < 60; i++) check_row(&table, i * 7919 % ROWS);
    provenance_table_close(&table);
    buffer_close(&bytes);
    CHECK(provenance_check("table.docs", &file, ROWS - 1) < 0);
    CHECK_ERROR(EX_DATA, "its number of documents differs");
}

TEST(provenance_without_a_known_row_has_no_file) {
    ProvenanceWriter writer = {.path = "empty.docs"};
    ProvenanceFile file = {0};
    for (int i = 0; i < ROWS; i++) CHECK_EQUAL(provenance_writer_add(&writer, (Bytes){0}), 0);
    CHECK_EQUAL(provenance_writer_finish(&writer, &file), 0);
    CHECK_EQUAL(file.bytes, 0);
    CHECK(!file_exists("empty.docs"));
}

TEST(provenance_finds_flipped_bits_and_truncation) {
    const ProvenanceFile file = write_table("small.docs", 12);
    Buffer good = {0};
    CHECK_EQUAL(file_read(&good, "small.docs", 1 << 20), 0);
    CHECK_EQUAL(good.size, file.bytes);
    for (size_t bit = 0; bit < 8 * good.size; bit += 3) {
        good.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        write_file("bad.docs", good.data, good.size);
        CHECK(provenance_check("bad.docs", &file, 12) < 0);
        CHECK_ERROR(EX_DATA, "is not the table of documents that the manifest lists");
        good.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t size = 0; size < good.size; size++) {
        write_file("bad.docs", good.data, size);
        CHECK(provenance_check("bad.docs", &file, 12) < 0);
        CHECK_ERROR(EX_DATA, "");
    }
    buffer_close(&good);
}
