// Reads the tables of shards: a block is decompressed and checked as a whole before its rows are returned.
#include "common/err.h"
#include "dataset/provenance.h"
#include "remote/url_map.h"
#include <zstd.h>

enum { HEAD_BYTES = SKIPPABLE_BYTES + 16 };

static uint64_t unzigzag(uint64_t n) { return n >> 1 ^ (0 - (n & 1)); }

// The rows, decompressed size and frame of the block at an offset. *end is the offset of the next.
static int read_head(const ProvenanceTable *table, size_t at, uint32_t *rows, uint32_t *raw, Bytes *frame,
                     size_t *end) {
    const uint8_t *head = table->bytes.data + at;
    const size_t left = table->bytes.size - at;
    if (left <= HEAD_BYTES || get_u32(head) != SHARD_DOCS_MAGIC || get_u32(head + 4) != 16 ||
        memcmp(head + 8, "SHRDDOC1", 8))
        return fail(EX_DATA, "'%s' offset %zu: no block", table->path, at);
    *rows = get_u32(head + 16), *raw = get_u32(head + 20);
    const size_t bytes = ZSTD_findFrameCompressedSize(head + HEAD_BYTES, left - HEAD_BYTES);
    if (ZSTD_isError(bytes) || !*rows || *rows > PROVENANCE_ROWS_MAX || *raw > PROVENANCE_RAW_MAX ||
        ZSTD_getFrameContentSize(head + HEAD_BYTES, left - HEAD_BYTES) != *raw)
        return fail(EX_DATA, "'%s' offset %zu: the block is truncated or its sizes are wrong", table->path, at);
    *frame = (Bytes){head + HEAD_BYTES, bytes}, *end = at + HEAD_BYTES + bytes;
    return 0;
}

int provenance_table_open(ProvenanceTable *table, const char *path, Bytes bytes) {
    *table = (ProvenanceTable){.path = path, .bytes = bytes};
    uint32_t rows = 0, raw;
    Bytes frame;
    for (size_t at = 0; at < bytes.size; table->rows += rows)
        if (read_head(table, at, &rows, &raw, &frame, &at) < 0) return -1;
    return 0;
}

void provenance_table_close(ProvenanceTable *table) {
    buffer_close(&table->raw);
    buffer_close(&table->inputs);
    buffer_close(&table->keys);
    *table = (ProvenanceTable){0};
}

static uint64_t count_of(const Buffer *names) { return names->size / sizeof(const char *); }
static const char *name_of(const Buffer *names, uint64_t i) { return ((const char **)(void *)names->data)[i]; }

static bool read_names(Cursor *rest, Buffer *names, uint64_t most) {
    names->size = 0;
    const uint64_t count = cursor_leb128(rest);
    if (count > most) return false;
    for (uint64_t i = 0; i < count; i++) {
        const char *name = (const char *)rest->at;
        const uint8_t *stop = rest->at < rest->end ? memchr(rest->at, 0, (size_t)(rest->end - rest->at)) : NULL;
        if (!stop || stop == rest->at || stop - rest->at >= PATH_MAX_BYTES) return false;
        buffer_add(names, &name, sizeof name);
        rest->at = stop + 1;
    }
    return !rest->failed;
}

// Reads the place of the next row. False at its end, or if the input does not exist.
static bool next_place(ProvenanceTable *table, bool *known) {
    const uint64_t input = cursor_leb128(&table->places);
    *known = input;
    if (!input) return !table->places.failed;
    table->input += unzigzag(input - 1);
    table->record += unzigzag(cursor_leb128(&table->places)) + 1;
    return !table->places.failed && table->input < count_of(&table->inputs);
}

static void rewind_block(ProvenanceTable *table, Cursor places, const Cursor *lengths, const uint8_t *const *values) {
    table->places = places, table->at = table->input = 0, table->record = UINT64_MAX;
    for (uint64_t k = 0; k < count_of(&table->keys); k++) table->lengths[k] = lengths[k], table->values[k] = values[k];
}

// Walks over the columns of the open block, and moves to its first row. False if a byte is missing or left over.
static bool check_block(ProvenanceTable *table) {
    Cursor rest = cursor_init((Bytes){table->raw.data, table->raw.size});
    if (!read_names(&rest, &table->inputs, PROVENANCE_ROWS_MAX) ||
        !read_names(&rest, &table->keys, PROVENANCE_KEYS_MAX))
        return false;
    const Cursor places = rest;
    Cursor lengths[PROVENANCE_KEYS_MAX] = {{0}};
    const uint8_t *values[PROVENANCE_KEYS_MAX] = {0};
    rewind_block(table, places, lengths, values);
    bool known;
    for (uint64_t i = 0; i < table->block_rows; i++)
        if (!next_place(table, &known)) return false;
    rest = table->places;
    for (uint64_t k = 0; k < count_of(&table->keys); k++) {
        uint64_t bytes = 0;
        lengths[k] = rest;
        for (uint64_t i = 0; i < table->block_rows; i++) {
            const uint64_t length = cursor_leb128(&rest);
            if (length > 1 + PROVENANCE_VALUE_MAX) return false;
            bytes += length - (length > 0);
        }
        values[k] = rest.at;
        if (rest.failed || !cursor_take(&rest, bytes)) return false;
    }
    rewind_block(table, places, lengths, values);
    return rest.at == rest.end;
}

static int open_block(ProvenanceTable *table) {
    uint32_t rows = 0, raw;
    Bytes frame;
    const size_t at = table->next;
    table->first += table->block_rows, table->block_rows = 0;
    if (read_head(table, at, &rows, &raw, &frame, &table->next) < 0) return -1;
    table->raw.size = 0;
    buffer_reserve(&table->raw, raw + !raw);
    const size_t got = ZSTD_decompress(table->raw.data, raw, frame.data, frame.size);
    table->block_rows = rows, table->raw.size = raw;
    if (got == raw && check_block(table)) return 0;
    table->next = at, table->block_rows = 0;
    return fail(EX_DATA, "'%s' offset %zu: the block is damaged", table->path, at);
}

static int find_block(ProvenanceTable *table, uint64_t number) {
    if (number < table->first) table->next = 0, table->first = table->block_rows = 0;
    uint32_t rows = 0, raw;
    Bytes frame;
    size_t end;
    if (table->block_rows && number < table->first + table->block_rows) {
        if (number >= table->first + table->at) return 0;
        return check_block(table) ? 0 : fail(EX_BUG, "a block changed"); // back to its first row
    }
    for (;;) { // blocks before it are passed without a look at their bytes
        if (read_head(table, table->next, &rows, &raw, &frame, &end) < 0) return -1;
        if (number < table->first + table->block_rows + rows) return open_block(table);
        table->first += table->block_rows, table->block_rows = rows, table->next = end;
    }
}

// Reads the next row of the block into `row`, or passes over it if that is NULL.
static void next_row(ProvenanceTable *table, Buffer *row) {
    bool known;
    next_place(table, &known);
    if (row) row->size = 0;
    if (row && known) provenance_begin(row, name_of(&table->inputs, table->input), table->record);
    for (uint64_t k = 0; k < count_of(&table->keys); k++) {
        const uint64_t length = cursor_leb128(&table->lengths[k]);
        if (row && known && length)
            provenance_add(row, name_of(&table->keys, k), (Bytes){table->values[k], length - 1});
        table->values[k] += length - (length > 0);
    }
    table->at++;
}

int provenance_table_row(ProvenanceTable *table, uint64_t number, Buffer *row) {
    assert(number < table->rows);
    if (find_block(table, number) < 0) return -1;
    while (table->first + table->at < number) next_row(table, NULL);
    next_row(table, row);
    return 0;
}

int provenance_table_read(ProvenanceTable *table, Buffer *bytes, const char *path, const ProvenanceFile *file,
                          uint64_t documents) {
    *table = (ProvenanceTable){0};
    bytes->size = 0;
    if (url_map_read(bytes, path, file->bytes) < 0) return -1;
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(bytes->data, bytes->size));
    if (bytes->size != file->bytes || memcmp(&hash, file->hash, sizeof file->hash))
        return fail(EX_DATA, "'%s' is not the table of documents that the manifest lists: copy it again", path);
    if (provenance_table_open(table, path, (Bytes){bytes->data, bytes->size}) < 0) return -1;
    if (table->rows == documents) return 0;
    return fail(EX_DATA, "'%s': its number of documents differs from the manifest", path);
}

int provenance_check(const char *path, const ProvenanceFile *file, uint64_t documents) {
    ProvenanceTable table;
    Buffer bytes = {0}, row = {0};
    int status = provenance_table_read(&table, &bytes, path, file, documents);
    for (uint64_t i = 0; status == 0 && i < table.rows; i++) status = provenance_table_row(&table, i, &row);
    provenance_table_close(&table);
    buffer_close(&bytes);
    buffer_close(&row);
    return status;
}
