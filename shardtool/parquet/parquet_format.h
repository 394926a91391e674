// The numbers that Parquet's footer and page headers use, and their names for messages.
#pragma once

#define PARQUET_MAGIC           "PAR1"
#define PARQUET_MAGIC_ENCRYPTED "PARE"

typedef enum {
    PARQUET_BOOLEAN,
    PARQUET_INT32,
    PARQUET_INT64,
    PARQUET_INT96,
    PARQUET_FLOAT,
    PARQUET_DOUBLE,
    PARQUET_BYTE_ARRAY,
    PARQUET_FIXED_LEN_BYTE_ARRAY
} ParquetType;

typedef enum {
    PARQUET_UNCOMPRESSED,
    PARQUET_SNAPPY,
    PARQUET_GZIP,
    PARQUET_LZO,
    PARQUET_BROTLI,
    PARQUET_LZ4, // in Hadoop's frames
    PARQUET_ZSTD,
    PARQUET_LZ4_RAW
} ParquetCodec;

typedef enum {
    PARQUET_PLAIN,
    PARQUET_PLAIN_DICTIONARY = 2,
    PARQUET_RLE,
    PARQUET_BIT_PACKED,
    PARQUET_DELTA_BINARY_PACKED,
    PARQUET_DELTA_LENGTH_BYTE_ARRAY,
    PARQUET_DELTA_BYTE_ARRAY,
    PARQUET_RLE_DICTIONARY,
    PARQUET_BYTE_STREAM_SPLIT
} ParquetEncoding;

enum { PARQUET_CONVERTED_UINT_8 = 11, PARQUET_CONVERTED_UINT_64 = 14, PARQUET_CONVERTED_INT_64 = 18 };
enum { PARQUET_LOGICAL_INTEGER = 10 };

const char *parquet_type_name(int type);         // "BYTE_ARRAY"; "unknown" for a number without a name
const char *parquet_codec_name(int codec);       // "SNAPPY"
const char *parquet_encoding_name(int encoding); // "DELTA_BYTE_ARRAY"
// The type of values by the annotation of a column: "STRING", "DECIMAL"; NULL for integers of any width.
const char *parquet_converted_name(int converted); // ConvertedType, in older files
const char *parquet_logical_name(int logical);     // LogicalType
