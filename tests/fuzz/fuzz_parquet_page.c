// Any bytes as the pages of one column: values that lie in memory, or bad data. Four bytes choose codec, type, levels
// and the number of values.
#include "shardtool/parquet/parquet_column.h"
#include "tests/fuzz/fuzz.h"
#include "tests/memory_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static MemoryStream memory;
    static const ParquetType types[] = {PARQUET_BYTE_ARRAY, PARQUET_INT32,  PARQUET_INT64,
                                        PARQUET_FLOAT,      PARQUET_DOUBLE, PARQUET_BOOLEAN};
    if (size < 4) return 0;
    memory = memory_file((Bytes){data + 4, size - 4});
    ParquetColumn column = {.type = types[data[1] % 6],
                            .is_unsigned = data[1] & 8,
                            .max_definition = data[2] % 4,
                            .max_repetition = data[2] / 4 % 4};
    ParquetChunk chunk = {.end = size - 4, .values = data[3], .uncompressed_bytes = 1 << 20};
    chunk.codec = (ParquetCodec)(data[0] % 8);
    ParquetColumnReader reader = {.page_left = 0};
    parquet_column_begin(&reader, &memory.stream, &column, &chunk);
    ParquetValue value;
    uint64_t sum = 0, values = 0;
    int status;
    while ((status = parquet_column_next(&reader, &value)) > 0) {
        values++;
        if (value.null) continue;
        if (column.type != PARQUET_BYTE_ARRAY)
            sum += (uint64_t)value.integer;
        else
            for (size_t i = 0; i < value.bytes.size; i++) sum += value.bytes.data[i];
    }
    volatile uint64_t keep = sum;
    (void)keep;
    if (status == 0 ? values != chunk.values : err_code() != EX_DATA) abort();
    err_clear();
    parquet_column_close(&reader);
    return 0;
}
