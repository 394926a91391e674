// A page is a Thrift header and the stored bytes. In version 1 the levels are compressed with the values, in version 2
// they are before them as they are.
#include "shardtool/parquet/parquet_page.h"
#include "common/err.h"
#include "shardtool/parquet/thrift_compact.h"
#include <inttypes.h>
#include <zlib.h>

enum {
    READ_BYTES = 65536, // at least, of the file
    HEADER_BYTES_MAX = 16 << 20,
    LARGE_PAGE_BYTES = 64 << 20,
    HUGE_PAGE_BYTES = 256 << 20,
    HUGE_PAGE_RATIO = 100
};

typedef enum { PAGE_DATA, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_V2 } PageType;

typedef struct {
    int type, plain_bytes, stored_bytes, values, encoding;
    int level_encoding, repetition_encoding, nulls, definition_bytes, repetition_bytes; // of data pages
    bool has_crc, compressed, has_details;
    uint32_t crc;
} PageHeader;

unsigned parquet_level_width(unsigned max_level) {
    unsigned width = 0;
    while (max_level >> width) width++;
    return width;
}

void parquet_pages_begin(ParquetPageReader *reader, Stream *stream, const ParquetChunk *chunk, unsigned max_definition,
                         unsigned max_repetition) {
    reader->stream = stream, reader->chunk = *chunk;
    reader->max_definition = max_definition, reader->max_repetition = max_repetition;
    reader->at = reader->window_at = chunk->begin;
    reader->window.size = 0;
    parquet_decompressor_close(&reader->decompressor); // which threads read which chunks changes no byte
}

// Lends the next `size` bytes of the chunk, which must have as many left. Reads more than that if they are few.
static const uint8_t *lend(ParquetPageReader *reader, size_t size) {
    uint64_t skip = reader->at - reader->window_at;
    Buffer *window = &reader->window;
    if (skip + size <= window->size) return window->data + skip;
    if (skip > window->size) skip = window->size;
    window->size -= (size_t)skip;
    if (window->size) memmove(window->data, window->data + skip, window->size);
    reader->window_at = window->size ? reader->window_at + skip : reader->at;

    uint64_t left = reader->chunk.end - reader->window_at;
    size_t want = size < READ_BYTES ? READ_BYTES : size;
    if (want > left) want = (size_t)left;
    buffer_reserve(window, want - window->size);
    size_t more = want - window->size;
    ssize_t got = stream_read_at(reader->stream, reader->window_at + window->size, window->data + window->size, more);
    if (got < 0) return NULL;
    if ((size_t)got != more) {
        fail(EX_IO, "became shorter while it was read");
        return NULL;
    }
    window->size += more;
    return window->data;
}

// The struct of a data page of either version, or of a dictionary page.
static void read_details(ThriftReader *thrift, ThriftType type, PageHeader *header) {
    bool v2 = header->type == PAGE_DATA_V2;
    header->has_details = true;
    thrift_struct(thrift, type);
    for (ThriftField field = {0}; thrift_next(thrift, &field);) {
        if (field.id == 1)
            header->values = thrift_i32(thrift, field.type);
        else if (field.id == (v2 ? 4 : 2))
            header->encoding = thrift_i32(thrift, field.type);
        else if (field.id == 3 && header->type == PAGE_DATA)
            header->level_encoding = thrift_i32(thrift, field.type);
        else if (field.id == 4 && header->type == PAGE_DATA)
            header->repetition_encoding = thrift_i32(thrift, field.type);
        else if (field.id == 2 && v2)
            header->nulls = thrift_i32(thrift, field.type);
        else if (field.id == 5 && v2)
            header->definition_bytes = thrift_i32(thrift, field.type);
        else if (field.id == 6 && v2)
            header->repetition_bytes = thrift_i32(thrift, field.type);
        else if (field.id == 7 && v2)
            header->compressed = thrift_bool(thrift, field.type);
        else
            thrift_skip(thrift, field.type);
    }
}

static PageHeader read_header(ThriftReader *thrift) {
    static const int details[] = {[PAGE_DATA] = 5, [PAGE_INDEX] = -1, [PAGE_DICTIONARY] = 7, [PAGE_DATA_V2] = 8};
    PageHeader header = {.type = -1, .values = -1, .encoding = -1, .nulls = -1, .compressed = true};
    header.plain_bytes = header.stored_bytes = -1;
    header.level_encoding = header.repetition_encoding = PARQUET_RLE;
    for (ThriftField field = {0}; thrift_next(thrift, &field);) {
        if (field.id == 1)
            header.type = thrift_i32(thrift, field.type);
        else if (field.id == 2)
            header.plain_bytes = thrift_i32(thrift, field.type);
        else if (field.id == 3)
            header.stored_bytes = thrift_i32(thrift, field.type);
        else if (field.id == 4)
            header.crc = (uint32_t)thrift_i32(thrift, field.type), header.has_crc = true;
        else if (header.type >= PAGE_DATA && header.type <= PAGE_DATA_V2 && field.id == details[header.type])
            read_details(thrift, field.type, &header);
        else
            thrift_skip(thrift, field.type);
    }
    return header;
}

// Reads the header at reader->at and passes it. Its length is not known before it is read.
static int next_header(ParquetPageReader *reader, PageHeader *header) {
    uint64_t left = reader->chunk.end - reader->at;
    if (left > HEADER_BYTES_MAX) left = HEADER_BYTES_MAX;
    for (uint64_t size = READ_BYTES;; size *= 2) {
        if (size > left) size = left;
        const uint8_t *data = lend(reader, (size_t)size);
        if (!data) return -1;
        ThriftReader thrift = {.cursor = cursor_init((Bytes){data, (size_t)size})};
        *header = read_header(&thrift);
        if (thrift.malformed || (thrift.cursor.failed && size == left))
            return fail(EX_DATA, "its header is malformed or cut short");
        if (thrift.cursor.failed) continue;
        reader->at += (uint64_t)(thrift.cursor.at - data);
        return 0;
    }
}

static int check_header(const ParquetPageReader *reader, const PageHeader *header) {
    if (header->type < PAGE_DATA || header->type > PAGE_DATA_V2)
        return fail(EX_DATA, "a page of unknown type %d", header->type);
    uint64_t left = reader->chunk.end - reader->at;
    if (header->stored_bytes < 0 || (uint64_t)header->stored_bytes > left)
        return fail(EX_DATA, "its %d bytes are not inside the column's, of which %" PRIu64 " are left",
                    header->stored_bytes, left);
    int size = header->plain_bytes;
    if (size < 0 || (size > LARGE_PAGE_BYTES && (uint64_t)size > reader->chunk.uncompressed_bytes) ||
        (size > HUGE_PAGE_BYTES && size / HUGE_PAGE_RATIO > header->stored_bytes))
        return fail(EX_DATA, "its header says %d bytes, which %d stored ones and the column's size do not allow", size,
                    header->stored_bytes);
    if (header->type == PAGE_INDEX) return 0;
    if (!header->has_details || header->values < 0) return fail(EX_DATA, "its header has no number of values");
    if (header->type == PAGE_DATA_V2 &&
        (header->nulls < 0 || header->nulls > header->values || header->definition_bytes < 0 ||
         header->repetition_bytes < 0 || (header->repetition_bytes && !reader->max_repetition) ||
         header->definition_bytes > header->stored_bytes - header->repetition_bytes ||
         header->definition_bytes > header->plain_bytes - header->repetition_bytes))
        return fail(EX_DATA, "its header has impossible sizes of levels or numbers of nulls");
    return 0;
}

// Decompresses stored bytes after `prefix` bytes that are as they are.
static int decompress_body(ParquetPageReader *reader, const PageHeader *header, Bytes stored, size_t prefix,
                           Bytes *body) {
    size_t size = (size_t)header->plain_bytes - prefix;
    stored.data += prefix, stored.size -= prefix;
    if (reader->chunk.codec == PARQUET_UNCOMPRESSED || !header->compressed) {
        *body = stored;
        return stored.size == size ? 0 : fail(EX_DATA, "%zu bytes, not compressed, for %zu", stored.size, size);
    }
    reader->plain.size = 0;
    buffer_reserve(&reader->plain, size + 1); // never NULL
    *body = (Bytes){reader->plain.data, size};
    if (!size) return 0; // writers store an empty page in different ways
    return parquet_decompress(&reader->decompressor, reader->chunk.codec, stored, reader->plain.data, size);
}

// Version 1: u32 length and RLE, or packed bits, before the values.
static int split_levels(ParquetPage *page, unsigned max_level, int encoding, Bytes *levels) {
    if (!max_level || !page->values) return 0;
    Cursor cursor = cursor_init(page->body);
    uint64_t size = ((uint64_t)page->values * parquet_level_width(max_level) + 7) / 8;
    if (encoding != PARQUET_BIT_PACKED) {
        uint32_t length = 0;
        if (encoding != PARQUET_RLE)
            return fail(EX_DATA, "encoding %d (%s) is not supported for levels", encoding,
                        parquet_encoding_name(encoding));
        cursor_u32(&cursor, &length);
        size = length;
    }
    *levels = (Bytes){cursor_take(&cursor, (size_t)size), (size_t)size};
    if (cursor.failed) return fail(EX_DATA, "its levels end beyond the page");
    page->body = (Bytes){cursor.at, (size_t)(cursor.end - cursor.at)};
    return 0;
}

static int read_page(ParquetPageReader *reader, const PageHeader *header, ParquetPage *page) {
    Bytes stored = {lend(reader, (size_t)header->stored_bytes), (size_t)header->stored_bytes};
    if (!stored.data && header->stored_bytes) return -1;
    if (header->has_crc && crc32_z(0, stored.data, stored.size) != header->crc)
        return fail(EX_DATA, "its checksum does not fit: the page is damaged");
    page->dictionary = header->type == PAGE_DICTIONARY;
    page->values = (uint32_t)header->values;
    page->nulls = header->type == PAGE_DATA_V2 ? header->nulls : -1;
    page->encoding = (ParquetEncoding)header->encoding;
    if (header->type == PAGE_DATA_V2) {
        page->repetition = (Bytes){stored.data, (size_t)header->repetition_bytes};
        page->levels = (Bytes){stored.data + page->repetition.size, (size_t)header->definition_bytes};
    }
    if (decompress_body(reader, header, stored, page->repetition.size + page->levels.size, &page->body) < 0) return -1;
    reader->at += (uint64_t)header->stored_bytes;
    if (header->type != PAGE_DATA) return 0;
    page->repetition_packed = header->repetition_encoding == PARQUET_BIT_PACKED;
    page->levels_packed = header->level_encoding == PARQUET_BIT_PACKED;
    if (split_levels(page, reader->max_repetition, header->repetition_encoding, &page->repetition) < 0) return -1;
    return split_levels(page, reader->max_definition, header->level_encoding, &page->levels);
}

int parquet_pages_next(ParquetPageReader *reader, ParquetPage *page) {
    for (;;) {
        if (reader->at == reader->chunk.end) return 0;
        PageHeader header = {0};
        *page = (ParquetPage){.offset = reader->at};
        int status = next_header(reader, &header);
        if (status == 0) status = check_header(reader, &header);
        if (status == 0 && header.type == PAGE_INDEX) {
            reader->at += (uint64_t)header.stored_bytes;
            continue;
        }
        if (status == 0) status = read_page(reader, &header, page);
        return status < 0 ? fail_in("page at byte %" PRIu64, page->offset) : 1;
    }
}

void parquet_pages_close(ParquetPageReader *reader) {
    buffer_close(&reader->window);
    buffer_close(&reader->plain);
    parquet_decompressor_close(&reader->decompressor);
}
