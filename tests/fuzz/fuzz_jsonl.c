// Reads any bytes as text, JSON lines or an archive: the reader returns whole documents or reports bad data.
#include "shardtool/ingest/input_format.h"
#include "tests/fuzz/fuzz.h"
#include "tests/memory_stream.h"

// The bits of the first byte choose the options.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static MemoryStream memory;
    if (!size) return 0;
    memory = memory_stream((Bytes){data + 1, size - 1});
    SourceOptions options = {.docs = (SourceDocs)(data[0] % 3), .text_field = data[0] & 4 ? "a.text" : "text"};
    options.skips.max = data[0] & 8 ? 1000 : 0;
    FormatReader *reader;
    Part part;
    bool open = false;
    int status = reader_open(&reader, &memory.stream, &options);
    if (status == 0 && reader) {
        while ((status = reader_next(reader, &part)) > 0) {
            if (part.first == open) abort();
            open = !part.last;
        }
        if (status == 0 && open) abort();
        reader_close(reader);
    }
    if (status < 0 && err_code() != EX_DATA) abort();
    err_clear();
    return 0;
}
