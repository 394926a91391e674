// The footer is held as its bytes, and a row group is read again whenever one of its columns is looked up, so that a
// file of a million chunks costs no more memory than its footer.
#include "shardtool/parquet/parquet_footer.h"
#include "common/err.h"
#include <inttypes.h>

enum {
    MAGIC_BYTES = 4,
    TAIL_BYTES = 8,       // u32 length of the footer, magic
    UNCOUNTED_BYTES = 100 // old writers left the dictionary page's header out of the size of a column
};

size_t parquet_group_count(const ParquetFooter *footer) { return footer->groups.size / sizeof(ParquetRowGroup); }

const ParquetRowGroup *parquet_group(const ParquetFooter *footer, size_t group) {
    return (const ParquetRowGroup *)(const void *)footer->groups.data + group;
}

static int fail_file(const ParquetFooter *footer, const char *what) {
    return fail(EX_DATA, "'%s' %s", footer->stream->name, what);
}

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
        if (field.id == 2 && !footer->schema.elements.size)
            status = parquet_schema_read(&footer->schema, &thrift, field.type);
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
    if (!footer->schema.elements.size || !has_rows)
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
    *footer = (ParquetFooter){.stream = stream, .schema.file = stream->name};
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
    parquet_schema_close(&footer->schema);
    buffer_close(&footer->groups);
}

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
    parquet_column_path(&footer->schema, column, &want);
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
    const bool repeated = column->max_repetition;
    if (got->values < 0 || (uint64_t)got->values < rows || (!repeated && (uint64_t)got->values != rows))
        return fail(EX_DATA, "%" PRId64 " values for %" PRIu64 " rows", got->values, rows);
    *chunk = (ParquetChunk){.codec = (ParquetCodec)got->codec};
    if (!rows) return 0; // nothing will be read, and the offsets may be zero
    // Some writers store 0 as the offset of a missing dictionary.
    int64_t begin = got->dictionary_at > 0 && got->dictionary_at < got->data_at ? got->dictionary_at : got->data_at;
    if (begin < MAGIC_BYTES || got->compressed < 0 || (uint64_t)begin > footer->begin ||
        (uint64_t)got->compressed > footer->begin - (uint64_t)begin)
        return fail(EX_DATA, "%" PRId64 " bytes at offset %" PRId64 " are not inside the file", got->compressed, begin);
    if (got->uncompressed < 0) return fail(EX_DATA, "an uncompressed size of %" PRId64 " bytes", got->uncompressed);
    uint64_t end = (uint64_t)(begin + got->compressed) + UNCOUNTED_BYTES;
    chunk->begin = (uint64_t)begin, chunk->end = end < footer->begin ? end : footer->begin;
    chunk->values = (uint64_t)got->values, chunk->uncompressed_bytes = (uint64_t)got->uncompressed;
    return 0;
}

int parquet_find_chunk(const ParquetFooter *footer, size_t group, const ParquetColumn *column, ParquetChunk *chunk) {
    const ParquetRowGroup *row_group = parquet_group(footer, group);
    ThriftReader thrift = {.cursor = cursor_init((Bytes){footer->bytes.data, footer->bytes.size})};
    thrift.cursor.at += row_group->columns_at;
    uint32_t count = thrift_list(&thrift, THRIFT_LIST, THRIFT_STRUCT);
    if (count != parquet_column_count(&footer->schema))
        return fail(EX_DATA, "%" PRIu32 " columns, but the schema has %" PRIu32, count,
                    parquet_column_count(&footer->schema));
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
