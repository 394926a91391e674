// Thrift's compact protocol: a field is one byte, id delta and type, and its value; integers are zigzag varints.
#include "shardtool/parquet/thrift_compact.h"

enum { SKIP_DEPTH_MAX = 32 };

static void expect(ThriftReader *reader, bool fits) {
    if (!fits && !thrift_failed(reader)) reader->malformed = true;
}

static uint64_t read_unsigned(ThriftReader *reader) {
    if (thrift_failed(reader)) return 0;
    const uint8_t *begin = reader->cursor.at;
    uint64_t value = cursor_leb128(&reader->cursor);
    // A varint without an end in ten bytes is malformed; one that only runs into the end of the bytes is cut short.
    if (reader->cursor.failed && reader->cursor.end - begin >= 10) reader->malformed = true;
    return value;
}

bool thrift_next(ThriftReader *reader, ThriftField *field) {
    uint8_t byte;
    if (thrift_failed(reader) || !cursor_u8(&reader->cursor, &byte)) return false;
    if (byte == THRIFT_STOP) return false;
    ThriftType type = (ThriftType)(byte & 0x0F);
    expect(reader, type >= THRIFT_TRUE && type <= THRIFT_STRUCT);
    int id = byte >> 4 ? field->id + (byte >> 4) : thrift_i32(reader, THRIFT_I32);
    expect(reader, id >= 0 && id <= INT16_MAX);
    *field = (ThriftField){id, type};
    return !thrift_failed(reader);
}

bool thrift_bool(ThriftReader *reader, ThriftType type) {
    expect(reader, type == THRIFT_TRUE || type == THRIFT_FALSE);
    return type == THRIFT_TRUE;
}

int64_t thrift_i64(ThriftReader *reader, ThriftType type) {
    uint8_t byte = 0;
    if (type == THRIFT_BYTE) return !thrift_failed(reader) && cursor_u8(&reader->cursor, &byte) ? (int8_t)byte : 0;
    expect(reader, type >= THRIFT_I16 && type <= THRIFT_I64);
    return zigzag_decode(read_unsigned(reader));
}

int32_t thrift_i32(ThriftReader *reader, ThriftType type) {
    int64_t value = thrift_i64(reader, type);
    expect(reader, value >= INT32_MIN && value <= INT32_MAX);
    return thrift_failed(reader) ? 0 : (int32_t)value;
}

Bytes thrift_binary(ThriftReader *reader, ThriftType type) {
    expect(reader, type == THRIFT_BINARY);
    uint64_t size = read_unsigned(reader);
    expect(reader, size <= INT32_MAX);
    if (thrift_failed(reader)) return (Bytes){NULL, 0};
    const uint8_t *data = cursor_take(&reader->cursor, (size_t)size);
    return (Bytes){data, data ? (size_t)size : 0};
}

void thrift_struct(ThriftReader *reader, ThriftType type) { expect(reader, type == THRIFT_STRUCT); }

static uint32_t read_list(ThriftReader *reader, ThriftType *element) {
    uint8_t byte;
    *element = THRIFT_STOP;
    if (thrift_failed(reader) || !cursor_u8(&reader->cursor, &byte)) return 0;
    uint64_t count = byte >> 4 < 15 ? byte >> 4 : read_unsigned(reader);
    *element = (ThriftType)(byte & 0x0F);
    expect(reader, count <= INT32_MAX);
    if (!thrift_failed(reader) && count > (uint64_t)(reader->cursor.end - reader->cursor.at))
        reader->cursor.failed = true;
    return thrift_failed(reader) ? 0 : (uint32_t)count;
}

uint32_t thrift_list(ThriftReader *reader, ThriftType type, ThriftType element) {
    ThriftType got;
    expect(reader, type == THRIFT_LIST);
    uint32_t count = read_list(reader, &got);
    expect(reader, !count || got == element);
    return thrift_failed(reader) ? 0 : count;
}

static void skip_value(ThriftReader *reader, ThriftType type, bool in_list, int depth);

static void skip_struct(ThriftReader *reader, int depth) {
    for (ThriftField field = {0}; thrift_next(reader, &field);) skip_value(reader, field.type, false, depth + 1);
}

static void skip_list(ThriftReader *reader, int depth) {
    ThriftType element;
    uint32_t count = read_list(reader, &element);
    for (uint32_t i = 0; i < count && !thrift_failed(reader); i++) skip_value(reader, element, true, depth + 1);
}

static void skip_map(ThriftReader *reader, int depth) {
    uint8_t types;
    uint64_t count = read_unsigned(reader);
    if (!count || thrift_failed(reader) || !cursor_u8(&reader->cursor, &types)) return;
    for (uint64_t i = 0; i < count && !thrift_failed(reader); i++) {
        skip_value(reader, (ThriftType)(types >> 4), true, depth + 1);
        skip_value(reader, (ThriftType)(types & 0x0F), true, depth + 1);
    }
}

// A boolean occupies one byte in a list or a map and none in a field.
static void skip_value(ThriftReader *reader, ThriftType type, bool in_list, int depth) {
    uint8_t byte;
    if (thrift_failed(reader)) return;
    expect(reader, depth <= SKIP_DEPTH_MAX && type >= THRIFT_TRUE && type <= THRIFT_STRUCT);
    if (thrift_failed(reader)) return;
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE:
        if (in_list) cursor_u8(&reader->cursor, &byte);
        return;
    case THRIFT_DOUBLE:
        cursor_take(&reader->cursor, 8);
        return;
    case THRIFT_BINARY:
        thrift_binary(reader, type);
        return;
    case THRIFT_LIST:
    case THRIFT_SET:
        skip_list(reader, depth);
        return;
    case THRIFT_MAP:
        skip_map(reader, depth);
        return;
    case THRIFT_STRUCT:
        skip_struct(reader, depth);
        return;
    default:
        thrift_i64(reader, type);
        return;
    }
}

void thrift_skip(ThriftReader *reader, ThriftType type) { skip_value(reader, type, false, 0); }
