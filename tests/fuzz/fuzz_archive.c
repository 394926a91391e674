// Reads any bytes as an archive or a compressed file, forward or with seeks: whole documents, or bad data. The bits of
// the first byte choose the options; its upper half names the file.
#include "shardtool/ingest/input_format.h"
#include "tests/fuzz/fuzz.h"
#include "tests/memory_stream.h"

// Documents must begin and end in turn, also where damaged members are skipped.
static int read_documents(FormatReader *reader, uint64_t left) {
    Part part;
    bool open = false;
    int status = 0;
    while (left && (status = reader_next(reader, &part)) > 0) {
        if (part.first == open && (part.first || part.text.size)) abort();
        open = !part.last;
        left = left > part.text.size + 1 ? left - part.text.size - 1 : 0;
    }
    if (status == 0 && left && open) abort();
    return status > 0 ? 0 : status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"input", "a.tar", "a.zip", "a.tar.gz", "a.jsonl", "a.txt", "a.xz", "a.parquet"};
    static MemoryStream memory;
    if (!size) return 0;
    const Bytes bytes = {data + 1, size - 1};
    memory = data[0] & 1 ? memory_file(bytes) : memory_stream(bytes);
    memory.stream.is_listed = data[0] & 8;
    stream_name(&memory.stream, names[data[0] >> 4 & 7], NULL);
    SourceOptions options = {.text_field = "text", .text_column = "text", .max_depth = 3, .max_ratio = 1000};
    options.threads = 1, options.skips.max_share = data[0] & 2 ? 1 : 0;
    if (data[0] & 4) options.docs = DOCS_LINES;
    FormatReader *reader = NULL;
    int status = reader_open(&reader, &memory.stream, &options);
    if (status == 0 && reader) status = read_documents(reader, 1 << 22);
    reader_close(reader);
    skips_abandon(&options.skips);
    if (status < 0 && err_code() != EX_DATA) abort();
    err_clear();
    return 0;
}
