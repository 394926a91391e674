// The footer is held as its bytes; the schema becomes a table of columns, and a row group is read again whenever one of
// its columns is looked up, so that a file of a million chunks costs no more memory than its footer.
#include "shardtool/ingest/parquet_footer.h"
#include "common/err.h"
#include "shardtool/ingest/thrift_compact.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

enum {
    MAGIC_BYTES = 4,
    TAIL_BYTES = 8,        // u32 length of the footer, magic
    DEPTH_MAX = 64,        // of the schema
    UNCOUNTED_BYTES = 100, // old writers left the dictionary page's header out of the size of a column
    LIST_BYTES = 300       // of a message, for the names of columns
};

static const char *name_of(const char *const *names, size_t count, int number) {
    return number >= 0 && (size_t)number < count && names[number] ? names[number] : "unknown";
}

const char *parquet_type_name(int type) {
    static const char *const names[] = {"BOOLEAN", "INT32",  "INT64",      "INT96",
                                        "FLOAT",   "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};
    return name_of(names, sizeof names / sizeof *names, type);
}

const char *parquet_codec_name(int codec) {
    static const char *const names[] = {"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"};
    return name_of(names, sizeof names / sizeof *names, codec);
}

const char *parquet_encoding_name(int encoding) {
    static const char *const names[] = {"PLAIN",
                                        NULL,
                                        "PLAIN_DICTIONARY",
                                        "RLE",
                                        "BIT_PACKED",
                                        "DELTA_BINARY_PACKED",
                                        "DELTA_LENGTH_BYTE_ARRAY",
                                        "DELTA_BYTE_ARRAY",
                                        "RLE_DICTIONARY",
                                        "BYTE_STREAM_SPLIT"};
    return name_of(names, sizeof names / sizeof *names, encoding);
}

static ParquetColumn *columns_of(const ParquetFooter *footer) { return (ParquetColumn *)(void *)footer->columns.data; }
static uint32_t column_count(const ParquetFooter *footer) {
    return (uint32_t)(footer->columns.size / sizeof(ParquetColumn));
}
static const ParquetSchemaElement *elements_of(const ParquetFooter *footer) {
    return (const ParquetSchemaElement *)(const void *)footer->elements.data;
}

size_t parquet_group_count(const ParquetFooter *footer) { return footer->groups.size / sizeof(ParquetRowGroup); }

const ParquetRowGroup *parquet_group(const ParquetFooter *footer, size_t group) {
    return (const ParquetRowGroup *)(const void *)footer->groups.data + group;
}

static int fail_file(const ParquetFooter *footer, const char *what) {
    return fail(EX_DATA, "'%s' %s", footer->stream->name, what);
}

// Schema

typedef struct {
    ParquetSchemaElement element;
    ParquetColumn column; // type, logical, is_unsigned
    bool has_type, bad_type;
    int repetition, children;
} SchemaNode;

static const char *const converted_names[] = {"STRING",
                                              "MAP",
                                              "MAP",
                                              "LIST",
                                              "ENUM",
                                              "DECIMAL",
                                              "DATE",
                                              "TIME",
                                              "TIME",
                                              "TIMESTAMP",
                                              "TIMESTAMP",
                                              "unsigned 8-bit",
                                              "unsigned 16-bit",
                                              "unsigned 32-bit",
                                              "unsigned 64-bit",
                                              NULL,
                                              NULL,
                                              NULL,
                                              NULL,
                                              "JSON",
                                              "BSON",
                                              "INTERVAL"};
enum { CONVERTED_UINT_8 = 11, CONVERTED_UINT_64 = 14, CONVERTED_INT_8 = 15, CONVERTED_INT_64 = 18 };
static const char *const logical_names[] = {NULL,   "STRING",    "MAP",     "LIST",     "ENUM",     "DECIMAL", "DATE",
                                            "TIME", "TIMESTAMP", NULL,      NULL,       "UNKNOWN",  "JSON",    "BSON",
                                            "UUID", "FLOAT16",   "VARIANT", "GEOMETRY", "GEOGRAPHY"};
enum { LOGICAL_INTEGER = 10 };

static void read_converted(SchemaNode *node, int converted) {
    node->column.is_unsigned = converted >= CONVERTED_UINT_8 && converted <= CONVERTED_UINT_64;
    if ((converted >= CONVERTED_INT_8 && converted <= CONVERTED_INT_64) || node->column.is_unsigned) return;
    node->column.logical = name_of(converted_names, sizeof converted_names / sizeof *converted_names, converted);
}

static void read_logical(ThriftReader *thrift, SchemaNode *node) {
    for (ThriftField kind = {0}; thrift_next(thrift, &kind);) {
        if (kind.id != LOGICAL_INTEGER) {
            node->column.logical = name_of(logical_names, sizeof logical_names / sizeof *logical_names, kind.id);
            thrift_skip(thrift, kind.type);
            continue;
        }
        node->column.logical = NULL;
        thrift_struct(thrift, kind.type);
        for (ThriftField field = {0}; thrift_next(thrift, &field);) {
            if (field.id == 2)
                node->column.is_unsigned = !thrift_bool(thrift, field.type);
            else
                thrift_skip(thrift, field.type);
        }
    }
}

static SchemaNode read_node(ThriftReader *thrift) {
    SchemaNode node = {.element = {.name = {(const uint8_t *)"", 0}}};
    bool has_logical = false;
    for (ThriftField field = {0}; thrift_next(thrift, &field);) {
        int type;
        switch (field.id) {
        case 1:
            type = thrift_i32(thrift, field.type);
            node.has_type = true;
            node.bad_type = type < PARQUET_BOOLEAN || type > PARQUET_FIXED_LEN_BYTE_ARRAY;
            node.column.type = (ParquetType)type;
            break;
        case 3:
            node.repetition = thrift_i32(thrift, field.type);
            break;
        case 4:
            node.element.name = thrift_binary(thrift, field.type);
            break;
        case 5:
            node.children = thrift_i32(thrift, field.type);
            break;
        case 6:
            type = thrift_i32(thrift, field.type);
            if (!has_logical) read_converted(&node, type);
            break;
        case 10:
            has_logical = true;
            thrift_struct(thrift, field.type);
            read_logical(thrift, &node);
            break;
        default:
            thrift_skip(thrift, field.type);
        }
    }
    return node;
}

typedef struct {
    int64_t children_left;
    uint32_t element;
    unsigned definition;
    bool repeated;
} SchemaLevel;

// The elements stand in depth-first order, each group before its children.
static int read_schema(ParquetFooter *footer, ThriftReader *thrift, ThriftType list) {
    enum { REQUIRED, OPTIONAL, REPEATED };
    SchemaLevel levels[DEPTH_MAX] = {{.children_left = 1}};
    int depth = 0;
    uint32_t count = thrift_list(thrift, list, THRIFT_STRUCT);
    for (uint32_t i = 0; i < count; i++) {
        SchemaNode node = read_node(thrift);
        if (thrift_failed(thrift)) return 0; // the caller says where
        while (depth > 0 && levels[depth].children_left == 0) depth--;
        SchemaLevel *level = &levels[depth];
        if (level->children_left-- == 0 || node.bad_type || node.children < 0 || (node.has_type && node.children) ||
            node.repetition < REQUIRED || node.repetition > REPEATED)
            return fail(EX_DATA, "'%s': element %" PRIu32 " of the schema is malformed", footer->stream->name, i);
        bool root = i == 0;
        node.element.parent = level->element;
        SchemaLevel next = {.children_left = node.children,
                            .element = i,
                            .definition = level->definition + (!root && node.repetition != REQUIRED),
                            .repeated = level->repeated || (!root && node.repetition == REPEATED)};
        buffer_add(&footer->elements, &node.element, sizeof node.element);
        if (node.has_type) {
            node.column.index = column_count(footer), node.column.element = i;
            node.column.max_definition = next.definition, node.column.repeated = next.repeated;
            buffer_add(&footer->columns, &node.column, sizeof node.column);
        } else if (++depth == DEPTH_MAX)
            return fail(EX_DATA, "'%s': the schema is more than %d levels deep", footer->stream->name, DEPTH_MAX);
        else
            levels[depth] = next;
    }
    for (; depth >= 0; depth--)
        if (levels[depth].children_left) return fail_file(footer, "has a schema that ends in the middle of a group");
    return 0;
}

// Row groups

static ParquetRowGroup read_group(const ParquetFooter *footer, ThriftReader *thrift) {
    ParquetRowGroup group = {0};
    for (ThriftField field = {0}; thrift_next(thrift, &field);) {
        if (field.id == 1) group.columns_at = (size_t)(thrift->cursor.at - footer->bytes.data);
        if (field.id == 3) {
            int64_t rows = thrift_i64(thrift, field.type);
            if (rows < 0) thrift->malformed = true;
            group.rows = (uint64_t)rows;
        } else {
            if (field.id == 1 && field.type != THRIFT_LIST) thrift->malformed = true;
            thrift_skip(thrift, field.type);
        }
    }
    return group;
}

static int read_groups(ParquetFooter *footer, ThriftReader *thrift, ThriftType list) {
    uint32_t count = thrift_list(thrift, list, THRIFT_STRUCT);
    for (uint32_t i = 0; i < count && !thrift_failed(thrift); i++) {
        ParquetRowGroup group = read_group(footer, thrift);
        if (!thrift_failed(thrift) && !group.columns_at)
            return fail(EX_DATA, "'%s': row group %" PRIu32 " has no columns", footer->stream->name, i);
        buffer_add(&footer->groups, &group, sizeof group);
    }
    return 0;
}

static int read_metadata(ParquetFooter *footer) {
    ThriftReader thrift = {.cursor = cursor_init((Bytes){footer->bytes.data, footer->bytes.size})};
    bool has_rows = false;
    int status = 0;
    for (ThriftField field = {0}; status == 0 && thrift_next(&thrift, &field);) {
        if (field.id == 2 && !footer->elements.size)
            status = read_schema(footer, &thrift, field.type);
        else if (field.id == 3) {
            int64_t rows = thrift_i64(&thrift, field.type);
            has_rows = rows >= 0;
            footer->rows = (uint64_t)rows;
        } else if (field.id == 4 && !footer->groups.size)
            status = read_groups(footer, &thrift, field.type);
        else
            thrift_skip(&thrift, field.type);
    }
    if (status < 0) return -1;
    if (thrift_failed(&thrift))
        return fail(EX_DATA, "'%s': the footer is malformed at byte %" PRIu64, footer->stream->name,
                    footer->begin + (uint64_t)(thrift.cursor.at - footer->bytes.data));
    if (!footer->elements.size || !has_rows)
        return fail_file(footer, "has a footer without a schema or a number of rows");
    uint64_t rows = 0;
    for (size_t i = 0; i < parquet_group_count(footer); i++) {
        uint64_t more = parquet_group(footer, i)->rows;
        if (more > footer->rows - rows) return fail_file(footer, "has row groups with more rows than the file");
        rows += more;
    }
    return rows == footer->rows ? 0 : fail_file(footer, "has row groups with fewer rows than the file");
}

static int read_exactly(Stream *stream, uint64_t offset, void *data, size_t size) {
    ssize_t got = stream_read_at(stream, offset, data, size);
    if (got < 0) return -1;
    return (size_t)got == size ? 0 : fail(EX_IO, "'%s' became shorter while it was read", stream->name);
}

int parquet_footer_open(ParquetFooter *footer, Stream *stream) {
    *footer = (ParquetFooter){.stream = stream};
    uint8_t magic[MAGIC_BYTES], tail[TAIL_BYTES];
    size_t size_of_magic = stream->size < MAGIC_BYTES ? (size_t)stream->size : MAGIC_BYTES;
    if (read_exactly(stream, 0, magic, size_of_magic) < 0) return -1;
    if (memcmp(magic, PARQUET_MAGIC, size_of_magic) && memcmp(magic, PARQUET_MAGIC_ENCRYPTED, size_of_magic))
        return fail_file(footer, "is not Parquet: the file does not begin with PAR1");
    if (stream->size < MAGIC_BYTES + TAIL_BYTES)
        return fail(EX_DATA, "'%s' is cut short: a Parquet file has at least 12 bytes, this one %" PRIu64, stream->name,
                    stream->size);
    if (read_exactly(stream, stream->size - TAIL_BYTES, tail, sizeof tail) < 0) return -1;
    if (!memcmp(tail + 4, PARQUET_MAGIC_ENCRYPTED, MAGIC_BYTES))
        return fail_file(footer, "has an encrypted footer: decrypt the file first");
    if (memcmp(tail + 4, PARQUET_MAGIC, MAGIC_BYTES))
        return fail_file(footer, "is cut short or overwritten: a Parquet file ends in PAR1");
    uint32_t size = get_u32(tail);
    if (size > stream->size - MAGIC_BYTES - TAIL_BYTES)
        return fail(EX_DATA, "'%s': a footer of %" PRIu32 " bytes does not fit into a file of %" PRIu64, stream->name,
                    size, stream->size);
    footer->begin = stream->size - TAIL_BYTES - size;
    buffer_reserve(&footer->bytes, size + 1ull); // never NULL
    footer->bytes.size = size;
    if (size && read_exactly(stream, footer->begin, footer->bytes.data, size) < 0) return -1;
    return read_metadata(footer);
}

void parquet_footer_close(ParquetFooter *footer) {
    buffer_close(&footer->bytes);
    buffer_close(&footer->elements);
    buffer_close(&footer->columns);
    buffer_close(&footer->groups);
}

// Columns

void parquet_column_path(const ParquetFooter *footer, const ParquetColumn *column, Buffer *path) {
    const ParquetSchemaElement *elements = elements_of(footer);
    uint32_t chain[DEPTH_MAX];
    int depth = 0;
    for (uint32_t at = column->element; at && depth < DEPTH_MAX; at = elements[at].parent) chain[depth++] = at;
    for (int i = depth - 1; i >= 0; i--) {
        Bytes name = elements[chain[i]].name;
        buffer_add(path, name.data, name.size);
        if (i) buffer_add(path, ".", 1);
    }
}

bool parquet_is_text(const ParquetColumn *column) {
    static const char *const kinds[] = {"STRING", "ENUM", "JSON"};
    bool text = !column->logical;
    for (size_t i = 0; !text && i < sizeof kinds / sizeof *kinds; i++) text = !strcmp(column->logical, kinds[i]);
    return text && column->type == PARQUET_BYTE_ARRAY;
}

// "id (STRING), score (DOUBLE) and 3 more", for a message.
static void print_columns(const ParquetFooter *footer, Buffer *text) {
    Buffer path = {0};
    uint32_t i = 0, count = column_count(footer);
    for (; i < count && text->size < LIST_BYTES; i++) {
        const ParquetColumn *column = &columns_of(footer)[i];
        path.size = 0;
        parquet_column_path(footer, column, &path);
        for (size_t at = 0; at < path.size; at++)
            if (iscntrl(path.data[at])) path.data[at] = '?';
        int length = path.size < 100 ? (int)path.size : 100;
        buffer_print(text, "%s%.*s (%s%s)", i ? ", " : "", length, length ? (const char *)path.data : "",
                     column->repeated ? "list of " : "",
                     column->logical ? column->logical : parquet_type_name((int)column->type));
    }
    if (i < count) buffer_print(text, " and %" PRIu32 " more", count - i);
    buffer_add(text, "", 1);
    buffer_close(&path);
}

static int fail_column(const ParquetFooter *footer, const char *path, const char *what) {
    Buffer text = {0};
    print_columns(footer, &text);
    fail(EX_DATA, "'%s' %s '%s'; its columns: %s", footer->stream->name, what, path, (const char *)text.data);
    buffer_close(&text);
    return -1;
}

int parquet_find_column(const ParquetFooter *footer, const char *wanted, ParquetColumn *column) {
    size_t size = strlen(wanted);
    unsigned found = 0, inside = 0;
    Buffer path = {0};
    for (uint32_t i = 0; i < column_count(footer); i++) {
        path.size = 0;
        parquet_column_path(footer, &columns_of(footer)[i], &path);
        if (path.size < size || memcmp(path.data, wanted, size)) continue;
        if (path.size == size)
            *column = columns_of(footer)[i], found++;
        else
            inside += path.data[size] == '.';
    }
    buffer_close(&path);
    if (found == 1 && !column->repeated) return 0;
    return fail_column(footer, wanted,
                       found > 1 ? "has more than one column"
                       : found   ? "has in every row a list, not one value, in column"
                       : inside  ? "has a group (a struct, a list or a map) and no column"
                                 : "has no column");
}

// Chunks

typedef struct {
    int64_t values, uncompressed, compressed, data_at, dictionary_at;
    int type, codec;
    bool present, path_differs;
} ChunkMetadata;

// Whether a list of names is the path of the column: a chunk of another column would be read as this one.
static bool path_fits(const ParquetFooter *footer, const ParquetColumn *column, ThriftReader *thrift, ThriftType list) {
    Buffer want = {0}, got = {0};
    uint32_t count = thrift_list(thrift, list, THRIFT_BINARY);
    for (uint32_t i = 0; i < count && !thrift_failed(thrift); i++) {
        Bytes name = thrift_binary(thrift, THRIFT_BINARY);
        if (i) buffer_add(&got, ".", 1);
        buffer_add(&got, name.data, name.size);
    }
    parquet_column_path(footer, column, &want);
    bool fits = want.size == got.size && (!want.size || !memcmp(want.data, got.data, want.size));
    buffer_close(&want);
    buffer_close(&got);
    return fits;
}

static ChunkMetadata read_chunk_metadata(const ParquetFooter *footer, const ParquetColumn *column,
                                         ThriftReader *thrift) {
    ChunkMetadata chunk = {.present = true, .type = -1, .codec = -1, .values = -1, .compressed = -1, .data_at = -1};
    for (ThriftField field = {0}; thrift_next(thrift, &field);) {
        switch (field.id) {
        case 1:
            chunk.type = thrift_i32(thrift, field.type);
            break;
        case 3:
            chunk.path_differs = !path_fits(footer, column, thrift, field.type);
            break;
        case 4:
            chunk.codec = thrift_i32(thrift, field.type);
            break;
        case 5:
            chunk.values = thrift_i64(thrift, field.type);
            break;
        case 6:
            chunk.uncompressed = thrift_i64(thrift, field.type);
            break;
        case 7:
            chunk.compressed = thrift_i64(thrift, field.type);
            break;
        case 9:
            chunk.data_at = thrift_i64(thrift, field.type);
            break;
        case 11:
            chunk.dictionary_at = thrift_i64(thrift, field.type);
            break;
        default:
            thrift_skip(thrift, field.type);
        }
    }
    return chunk;
}

static int check_chunk(const ParquetFooter *footer, const ParquetColumn *column, uint64_t rows,
                       const ChunkMetadata *got, ParquetChunk *chunk) {
    if (!got->present) return fail(EX_DATA, "the footer has no metadata of the column");
    if (got->type != (int)column->type || got->path_differs)
        return fail(EX_DATA, "the footer describes another column than the schema in this place");
    if (got->codec < 0 || got->codec > PARQUET_LZ4_RAW || got->codec == PARQUET_LZO)
        return fail(EX_DATA, "codec %d (%s) is not supported", got->codec, parquet_codec_name(got->codec));
    if (got->values < 0 || (uint64_t)got->values != rows)
        return fail(EX_DATA, "%" PRId64 " values for %" PRIu64 " rows", got->values, rows);
    *chunk = (ParquetChunk){.codec = (ParquetCodec)got->codec};
    if (!rows) return 0; // nothing will be read, and the offsets may be zero
    // Some writers give 0 as the offset of a dictionary that is not there.
    int64_t begin = got->dictionary_at > 0 && got->dictionary_at < got->data_at ? got->dictionary_at : got->data_at;
    if (begin < MAGIC_BYTES || got->compressed < 0 || (uint64_t)begin > footer->begin ||
        (uint64_t)got->compressed > footer->begin - (uint64_t)begin)
        return fail(EX_DATA, "%" PRId64 " bytes at offset %" PRId64 " are not inside the file", got->compressed, begin);
    if (got->uncompressed < 0) return fail(EX_DATA, "an uncompressed size of %" PRId64 " bytes", got->uncompressed);
    uint64_t end = (uint64_t)(begin + got->compressed) + UNCOUNTED_BYTES;
    chunk->begin = (uint64_t)begin, chunk->end = end < footer->begin ? end : footer->begin;
    chunk->values = rows, chunk->uncompressed_bytes = (uint64_t)got->uncompressed;
    return 0;
}

int parquet_find_chunk(const ParquetFooter *footer, size_t group, const ParquetColumn *column, ParquetChunk *chunk) {
    const ParquetRowGroup *row_group = parquet_group(footer, group);
    ThriftReader thrift = {.cursor = cursor_init((Bytes){footer->bytes.data, footer->bytes.size})};
    thrift.cursor.at += row_group->columns_at;
    uint32_t count = thrift_list(&thrift, THRIFT_LIST, THRIFT_STRUCT);
    if (count != column_count(footer))
        return fail(EX_DATA, "%" PRIu32 " columns, but the schema has %" PRIu32, count, column_count(footer));
    for (uint32_t i = 0; i < column->index; i++) thrift_skip(&thrift, THRIFT_STRUCT);

    ChunkMetadata metadata = {0};
    bool elsewhere = false, encrypted = false;
    for (ThriftField field = {0}; thrift_next(&thrift, &field);) {
        elsewhere |= field.id == 1, encrypted |= field.id == 8;
        if (field.id == 3) {
            thrift_struct(&thrift, field.type);
            metadata = read_chunk_metadata(footer, column, &thrift);
        } else
            thrift_skip(&thrift, field.type);
    }
    if (thrift_failed(&thrift)) return fail(EX_DATA, "its metadata in the footer is malformed");
    if (encrypted) return fail(EX_DATA, "the column is encrypted: decrypt the file first");
    if (elsewhere) return fail(EX_DATA, "the column is in another file");
    return check_chunk(footer, column, row_group->rows, &metadata, chunk);
}
