// A page's values are taken from it one by one; nothing of a page is expanded but a string that shares a prefix with
// the string before. Values left over at the end of a page are an error, as missing ones are; but some writers pad
// PLAIN values with zeros, fastparquet with 8 bytes.
#include "shardtool/parquet/parquet_column.h"
#include "common/err.h"
#include <inttypes.h>

void parquet_column_begin(ParquetColumnReader *reader, Stream *stream, const ParquetColumn *column,
                          const ParquetChunk *chunk) {
    reader->column = *column;
    reader->values_left = chunk->values;
    reader->has_dictionary = false;
    reader->page_left = 0;
    parquet_pages_begin(&reader->pages, stream, chunk, column->max_definition, column->max_repetition);
}

void parquet_column_close(ParquetColumnReader *reader) {
    parquet_pages_close(&reader->pages);
    buffer_close(&reader->dictionary);
    buffer_close(&reader->offsets);
    buffer_close(&reader->joined);
}

enum { PADDING_BYTES_MAX = 16 };

static size_t fixed_width(ParquetType type) { return type == PARQUET_INT32 || type == PARQUET_FLOAT ? 4 : 8; }

static bool take_string(Cursor *cursor, Bytes *string) {
    uint32_t size = 0;
    cursor_u32(cursor, &size);
    *string = (Bytes){cursor_take(cursor, size), size};
    return !cursor->failed;
}

static void get_number(const ParquetColumn *column, const uint8_t *at, ParquetValue *value) {
    float single;
    switch (column->type) {
    case PARQUET_INT32:
        value->integer = column->is_unsigned ? (int64_t)get_u32(at) : (int32_t)get_u32(at);
        break;
    case PARQUET_FLOAT:
        memcpy(&single, at, sizeof single);
        value->real = (double)single;
        break;
    default:
        memcpy(&value->integer, at, sizeof value->integer); // an INT64, or the bits of a DOUBLE
    }
}

// Dictionary

static int keep_dictionary(ParquetColumnReader *reader, const ParquetPage *page) {
    if (page->encoding != PARQUET_PLAIN && page->encoding != PARQUET_PLAIN_DICTIONARY)
        return fail(EX_DATA, "encoding %d (%s) is not supported for a dictionary", page->encoding,
                    parquet_encoding_name((int)page->encoding));
    bool strings = reader->column.type == PARQUET_BYTE_ARRAY;
    size_t least = strings ? sizeof(uint32_t) : fixed_width(reader->column.type);
    if (page->values > page->body.size / least)
        return fail(EX_DATA, "%" PRIu32 " values do not fit into a dictionary of %zu bytes", page->values,
                    page->body.size);
    reader->has_dictionary = true;
    reader->dictionary_values = page->values;
    reader->dictionary.size = reader->offsets.size = 0;
    if (strings) {
        Cursor cursor = cursor_init(page->body);
        buffer_reserve(&reader->offsets, page->values * sizeof(uint32_t));
        for (uint32_t i = 0; i < page->values; i++) {
            Bytes string;
            uint32_t offset = (uint32_t)(cursor.at - page->body.data);
            buffer_add(&reader->offsets, &offset, sizeof offset);
            if (!take_string(&cursor, &string))
                return fail(EX_DATA, "value %" PRIu32 " of the dictionary ends beyond the page", i);
        }
    }
    // The decompressed page becomes the dictionary; one that was stored as it is lies in the window and is copied.
    if (page->body.data == reader->pages.plain.data) {
        Buffer spare = reader->dictionary;
        reader->dictionary = reader->pages.plain;
        reader->dictionary.size = page->body.size;
        reader->pages.plain = spare;
    } else
        buffer_add(&reader->dictionary, page->body.data, page->body.size);
    return 0;
}

static bool look_up(const ParquetColumnReader *reader, uint32_t index, ParquetValue *value) {
    if (!reader->has_dictionary || index >= reader->dictionary_values) return false;
    if (reader->column.type == PARQUET_BYTE_ARRAY) {
        const uint8_t *at = reader->dictionary.data + get_u32(reader->offsets.data + index * sizeof(uint32_t));
        value->bytes = (Bytes){at + sizeof(uint32_t), get_u32(at)};
    } else
        get_number(&reader->column, reader->dictionary.data + index * fixed_width(reader->column.type), value);
    return true;
}

// Pages

// Whether a column of this type may have a page of this encoding, apart from PLAIN and dictionaries.
static bool is_encoding_of(ParquetType type, ParquetEncoding encoding) {
    switch (encoding) {
    case PARQUET_DELTA_BINARY_PACKED:
        return type == PARQUET_INT32 || type == PARQUET_INT64;
    case PARQUET_DELTA_LENGTH_BYTE_ARRAY:
    case PARQUET_DELTA_BYTE_ARRAY:
        return type == PARQUET_BYTE_ARRAY;
    case PARQUET_BYTE_STREAM_SPLIT:
        return type != PARQUET_BYTE_ARRAY && type != PARQUET_BOOLEAN;
    case PARQUET_RLE:
        return type == PARQUET_BOOLEAN;
    default:
        return false;
    }
}

// BYTE_STREAM_SPLIT: all first bytes of the values, then all second bytes, and so on. `plain` holds the first bytes.
static int open_split(ParquetColumnReader *reader) {
    Bytes body = reader->page.body;
    size_t width = fixed_width(reader->column.type);
    if (body.size % width) return fail(EX_DATA, "%zu bytes are not a whole number of values", body.size);
    reader->split_stride = body.size / width;
    reader->plain = cursor_init((Bytes){body.data, reader->split_stride});
    return 0;
}

// A page of nulls only may have no body at all; a value read from it is missing.
static int open_body(ParquetColumnReader *reader) {
    const ParquetPage *page = &reader->page;
    Bytes body = page->body;
    bool opened = true;
    reader->plain = cursor_init(body);
    reader->indices = (RleReader){.width = 0};
    reader->numbers = reader->prefixes = (DeltaReader){.left = 0};
    reader->joined.size = 0;
    if (page->encoding == PARQUET_PLAIN && reader->column.type == PARQUET_BOOLEAN) { // a bit each, the lowest first
        reader->plain = cursor_init((Bytes){body.data, 0});
        reader->indices = (RleReader){.width = 1, .packed = true, .run_left = 8 * (uint64_t)body.size, .bits = body};
    }
    if (page->encoding == PARQUET_PLAIN) return 0;
    if (reader->column.type != PARQUET_BOOLEAN &&
        (page->encoding == PARQUET_PLAIN_DICTIONARY || page->encoding == PARQUET_RLE_DICTIONARY)) {
        if (!body.size) return 0;
        if (*body.data > 32) return fail(EX_DATA, "dictionary indices of %u bits", *body.data);
        reader->indices = rle_open((Bytes){body.data + 1, body.size - 1}, *body.data);
        return 0;
    }
    if (!is_encoding_of(reader->column.type, page->encoding))
        return fail(EX_DATA, "encoding %d (%s) is not supported for %s", page->encoding,
                    parquet_encoding_name((int)page->encoding), parquet_type_name((int)reader->column.type));
    if (!body.size) return 0;
    if (page->encoding == PARQUET_BYTE_STREAM_SPLIT) return open_split(reader);
    if (page->encoding == PARQUET_RLE) { // after the number of its bytes
        if (body.size < sizeof(uint32_t)) return fail(EX_DATA, "its RLE values are malformed");
        reader->indices = rle_open((Bytes){body.data + sizeof(uint32_t), body.size - sizeof(uint32_t)}, 1);
        return 0;
    }
    if (page->encoding == PARQUET_DELTA_BYTE_ARRAY)
        opened = delta_open(&reader->prefixes, body, 32) && delta_rest(&reader->prefixes, &body);
    opened = opened && delta_open(&reader->numbers, body, reader->column.type == PARQUET_INT64 ? 64 : 32) &&
             delta_rest(&reader->numbers, &body);
    reader->plain = cursor_init(body);
    return opened ? 0 : fail(EX_DATA, "its %s values are malformed", parquet_encoding_name((int)page->encoding));
}

static RleReader open_levels(Bytes levels, unsigned max_level, bool packed) {
    const unsigned width = parquet_level_width(max_level);
    if (!levels.size) return (RleReader){.width = width};
    return packed ? rle_open_packed(levels, width) : rle_open(levels, width);
}

static int open_page(ParquetColumnReader *reader) {
    ParquetPage *page = &reader->page;
    if (page->values > reader->values_left)
        return fail(EX_DATA, "%" PRIu32 " values, but only %" PRIu64 " are left of the column", page->values,
                    reader->values_left);
    reader->levels = open_levels(page->levels, reader->column.max_definition, page->levels_packed);
    reader->repetition = open_levels(page->repetition, reader->column.max_repetition, page->repetition_packed);
    reader->page_left = page->values;
    reader->values_left -= page->values;
    reader->nulls = 0;
    return open_body(reader);
}

static int next_page(ParquetColumnReader *reader) {
    ParquetPage *page = &reader->page;
    int status = parquet_pages_next(&reader->pages, page);
    if (status < 0) return -1;
    if (status == 0) return fail(EX_DATA, "its pages end %" PRIu64 " values too early", reader->values_left);
    if (!page->dictionary)
        status = open_page(reader);
    else if (reader->has_dictionary)
        status = fail(EX_DATA, "a second dictionary");
    else
        status = keep_dictionary(reader, page);
    return status < 0 ? fail_in("page at byte %" PRIu64, page->offset) : 0;
}

// Values

// In DELTA_LENGTH_BYTE_ARRAY a string is its length and its bytes; in DELTA_BYTE_ARRAY these are a suffix, which
// follows a prefix of the value before.
static bool take_delta_string(ParquetColumnReader *reader, Bytes *string) {
    int64_t size, prefix;
    if (!delta_next(&reader->numbers, &size) || size < 0) return false;
    const uint8_t *suffix = cursor_take(&reader->plain, (size_t)size);
    *string = (Bytes){suffix, (size_t)size};
    if (!suffix) return false;
    if (reader->page.encoding == PARQUET_DELTA_LENGTH_BYTE_ARRAY) return true;
    if (!delta_next(&reader->prefixes, &prefix) || prefix < 0 || (uint64_t)prefix > reader->joined.size) return false;
    reader->joined.size = (size_t)prefix;
    buffer_reserve(&reader->joined, (size_t)size + 1); // never NULL
    buffer_add(&reader->joined, suffix, (size_t)size);
    *string = (Bytes){reader->joined.data, reader->joined.size};
    return true;
}

static bool take_split_number(ParquetColumnReader *reader, ParquetValue *value) {
    uint8_t bytes[8];
    const uint8_t *at = cursor_take(&reader->plain, 1);
    if (!at) return false;
    for (size_t i = 0; i < fixed_width(reader->column.type); i++) bytes[i] = at[i * reader->split_stride];
    get_number(&reader->column, bytes, value);
    return true;
}

static bool take_value(ParquetColumnReader *reader, ParquetValue *value) {
    uint32_t index;
    const uint8_t *at;
    if (reader->column.type == PARQUET_BOOLEAN) {
        value->integer = rle_next(&reader->indices, &index) ? (int64_t)index : -1;
        return value->integer >= 0;
    }
    switch (reader->page.encoding) {
    case PARQUET_PLAIN:
        if (reader->column.type == PARQUET_BYTE_ARRAY) return take_string(&reader->plain, &value->bytes);
        at = cursor_take(&reader->plain, fixed_width(reader->column.type));
        if (at) get_number(&reader->column, at, value);
        return at;
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
        return rle_next(&reader->indices, &index) && look_up(reader, index, value);
    case PARQUET_DELTA_BINARY_PACKED:
        if (!delta_next(&reader->numbers, &value->integer)) return false;
        if (reader->column.type == PARQUET_INT32 && reader->column.is_unsigned)
            value->integer = (int64_t)(uint32_t)value->integer;
        return true;
    case PARQUET_BYTE_STREAM_SPLIT:
        return take_split_number(reader, value);
    default:
        return take_delta_string(reader, &value->bytes);
    }
}

static bool is_padding(Cursor rest) {
    if (rest.end - rest.at > PADDING_BYTES_MAX) return false;
    while (rest.at < rest.end && !*rest.at) rest.at++;
    return rest.at == rest.end;
}

static bool page_is_used_up(const ParquetColumnReader *reader) {
    // pyarrow 22 counts none in a page of dictionary indices whose lists are all null.
    if (reader->page.nulls >= 0 && !reader->column.max_repetition && (uint64_t)reader->page.nulls != reader->nulls)
        return false;
    switch (reader->page.encoding) {
    case PARQUET_PLAIN:
        return is_padding(reader->plain);
    case PARQUET_PLAIN_DICTIONARY:
    case PARQUET_RLE_DICTIONARY:
    case PARQUET_RLE:
        return true; // the last run may be longer
    case PARQUET_DELTA_BINARY_PACKED:
        return !reader->numbers.left;
    default:
        return reader->plain.at == reader->plain.end && !reader->numbers.left && !reader->prefixes.left;
    }
}

static int take_row(ParquetColumnReader *reader, ParquetValue *value) {
    const ParquetColumn *column = &reader->column;
    uint32_t level = column->max_definition, repetition = 0;
    if ((level && !rle_next(&reader->levels, &level)) ||
        (column->max_repetition && !rle_next(&reader->repetition, &repetition)))
        return fail(EX_DATA, "its levels end too early");
    if (level > column->max_definition || repetition > column->max_repetition)
        return fail(EX_DATA, "a level of %" PRIu32, level > column->max_definition ? level : repetition);
    value->null = level < column->max_definition, value->definition = level, value->repetition = repetition;
    reader->nulls += value->null;
    if (!value->null && !take_value(reader, value))
        return fail(EX_DATA, "value %" PRIu32 " is missing or malformed (%s)", reader->page.values - reader->page_left,
                    parquet_encoding_name((int)reader->page.encoding));
    reader->page_left--;
    if (!reader->page_left && !page_is_used_up(reader))
        return fail(EX_DATA, "it has more values or other nulls than its header says");
    return 1;
}

int parquet_column_next(ParquetColumnReader *reader, ParquetValue *value) {
    while (!reader->page_left) {
        if (!reader->values_left) return 0;
        if (next_page(reader) < 0) return -1;
    }
    int status = take_row(reader, value);
    return status < 0 ? fail_in("page at byte %" PRIu64, reader->page.offset) : status;
}
