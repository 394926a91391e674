// Reads Thrift's compact protocol, in which Parquet's footer and page headers are written, from borrowed foreign bytes.
//
// A call that cannot be answered (the bytes end, a value is malformed or of another type) returns zero and marks the
// reader as failed; every later call returns zero too. The caller reads a whole struct and checks once.
#pragma once

#include "common/bytes.h"

// Types of fields and of list elements. A boolean field has its value in its type.
typedef enum {
    THRIFT_STOP,
    THRIFT_TRUE,
    THRIFT_FALSE,
    THRIFT_BYTE,
    THRIFT_I16,
    THRIFT_I32,
    THRIFT_I64,
    THRIFT_DOUBLE,
    THRIFT_BINARY,
    THRIFT_LIST,
    THRIFT_SET,
    THRIFT_MAP,
    THRIFT_STRUCT
} ThriftType;

typedef struct {
    Cursor cursor;
    bool malformed; // a value is wrong; when only cursor.failed is set, the bytes ended too early
} ThriftReader;

// Zeroed before the first field of a struct; ids are relative to the field before.
typedef struct {
    int id;
    ThriftType type;
} ThriftField;

static inline bool thrift_failed(const ThriftReader *reader) { return reader->malformed || reader->cursor.failed; }

// The next field of a struct; false at its end. The caller reads or skips each field's value before the next call.
bool thrift_next(ThriftReader *reader, ThriftField *field);

// Values. `type` is the type found in the bytes; the reader fails when the call reads another type.
bool thrift_bool(ThriftReader *reader, ThriftType type);
int32_t thrift_i32(ThriftReader *reader, ThriftType type); // also of a byte and an i16
int64_t thrift_i64(ThriftReader *reader, ThriftType type); // any integer
Bytes thrift_binary(ThriftReader *reader, ThriftType type);
void thrift_struct(ThriftReader *reader, ThriftType type); // only checks; thrift_next reads the fields
// The number of elements, each of type `element` and at least one of the bytes left.
uint32_t thrift_list(ThriftReader *reader, ThriftType type, ThriftType element);
void thrift_skip(ThriftReader *reader, ThriftType type); // the value of a field, at most 32 levels deep

static inline int64_t zigzag_decode(uint64_t v) { return (int64_t)(v >> 1 ^ (0 - (v & 1))); }
