// Tables of names.
#include "shardtool/parquet/parquet_format.h"
#include <stddef.h>

#define NAME_OF(names, number) name_of(names, sizeof names / sizeof *names, number)

static const char *name_of(const char *const *names, size_t count, int number) {
    return number >= 0 && (size_t)number < count && names[number] ? names[number] : "unknown";
}

const char *parquet_type_name(int type) {
    static const char *const names[] = {"BOOLEAN", "INT32",  "INT64",      "INT96",
                                        "FLOAT",   "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};
    return NAME_OF(names, type);
}

const char *parquet_codec_name(int codec) {
    static const char *const names[] = {"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"};
    return NAME_OF(names, codec);
}

const char *parquet_encoding_name(int encoding) {
    static const char *const names[] = {[PARQUET_PLAIN] = "PLAIN",
                                        [PARQUET_PLAIN_DICTIONARY] = "PLAIN_DICTIONARY",
                                        [PARQUET_RLE] = "RLE",
                                        [PARQUET_BIT_PACKED] = "BIT_PACKED",
                                        [PARQUET_DELTA_BINARY_PACKED] = "DELTA_BINARY_PACKED",
                                        [PARQUET_DELTA_LENGTH_BYTE_ARRAY] = "DELTA_LENGTH_BYTE_ARRAY",
                                        [PARQUET_DELTA_BYTE_ARRAY] = "DELTA_BYTE_ARRAY",
                                        [PARQUET_RLE_DICTIONARY] = "RLE_DICTIONARY",
                                        [PARQUET_BYTE_STREAM_SPLIT] = "BYTE_STREAM_SPLIT"};
    return NAME_OF(names, encoding);
}

const char *parquet_converted_name(int converted) {
    static const char *const names[] = {
        [0] = "STRING",     [1] = "MAP",   [2] = "MAP",   [3] = "LIST",     [4] = "ENUM",
        [5] = "DECIMAL",    [6] = "DATE",  [7] = "TIME",  [8] = "TIME",     [9] = "TIMESTAMP",
        [10] = "TIMESTAMP", [19] = "JSON", [20] = "BSON", [21] = "INTERVAL"};
    return converted >= PARQUET_CONVERTED_UINT_8 && converted <= PARQUET_CONVERTED_INT_64 ? NULL
                                                                                          : NAME_OF(names, converted);
}

const char *parquet_logical_name(int logical) {
    static const char *const names[] = {
        [1] = "STRING",   [2] = "MAP",       [3] = "LIST",      [4] = "ENUM",      [5] = "DECIMAL", [6] = "DATE",
        [7] = "TIME",     [8] = "TIMESTAMP", [11] = "UNKNOWN",  [12] = "JSON",     [13] = "BSON",   [14] = "UUID",
        [15] = "FLOAT16", [16] = "VARIANT",  [17] = "GEOMETRY", [18] = "GEOGRAPHY"};
    return logical == PARQUET_LOGICAL_INTEGER ? NULL : NAME_OF(names, logical);
}
