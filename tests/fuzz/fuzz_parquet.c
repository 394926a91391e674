// Any bytes as a Parquet file: whole documents or conversations, or bad data. The input is the file without its last
// eight bytes, before which a footer's length has to be right: its last two bytes are that length.
#include "shardtool/ingest/input_format.h"
#include "tests/fuzz/fuzz.h"
#include "tests/memory_stream.h"
#include <stdlib.h>

static int read_documents(Stream *stream, SourceOptions *options, uint64_t *left) {
    Part part;
    FormatReader *reader = parquet_open(stream, options);
    int status = reader ? 0 : -1;
    // Few bytes can be many rows: that is not an error, and not worth the time.
    while (status == 0 && *left && (status = parquet_next(reader, &part)) > 0) {
        uint64_t sum = 0;
        for (size_t i = 0; i < part.text.size; i++) sum += part.text.data[i]; // every byte can be read
        volatile uint64_t keep = sum;
        (void)keep;
        *left = *left > part.text.size + 1 ? *left - part.text.size - 1 : 0;
        status = 0;
    }
    if (reader) parquet_close(reader);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static MemoryStream memory;
    static const char *const conditions[] = {"n>=3 and text!='x'", "b=true"};
    if (size < 2) return 0;
    Buffer file = {0};
    uint32_t footer_bytes = get_u16(data + size - 2);
    buffer_add(&file, data, size - 2);
    buffer_add(&file, &footer_bytes, sizeof footer_bytes);
    buffer_add(&file, "PAR1", 4);
    memory = memory_file((Bytes){file.data, file.size});
    for (size_t i = 0; i < 6; i++) {
        const size_t count = i % 3;
        SourceOptions options = {.text_column = "text", .skips.max_share = 1, .turns = i > 2};
        uint64_t left = 1 << 20;
        options.where.count = count;
        memcpy(options.where.items, conditions, count * sizeof *conditions);
        if (read_documents(&memory.stream, &options, &left) < 0 && err_code() != EX_DATA && err_code() != EX_USAGE)
            abort();
        for (size_t j = 0; j < options.ignored.count; j++) free((char *)(uintptr_t)options.ignored.items[j]);
        err_clear();
    }
    buffer_close(&file);
    return 0;
}
