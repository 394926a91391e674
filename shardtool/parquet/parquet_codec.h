// Decompresses one Parquet page with the library of its codec.
#pragma once

#include "shardtool/parquet/parquet_footer.h"

typedef struct {
    void *zstd, *zlib; // contexts, opened by the first page that needs them
} ParquetDecompressor;

// Decompresses `page` into exactly `size` bytes at `out`. -1 after fail (65) when the codec refuses it or the size
// differs. One thread at a time.
int parquet_decompress(ParquetDecompressor *decompressor, ParquetCodec codec, Bytes page, uint8_t *out, size_t size);
void parquet_decompressor_close(ParquetDecompressor *decompressor); // accepts a zeroed struct
