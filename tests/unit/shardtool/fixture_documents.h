// The documents that the reader of a format finds in memory.
#pragma once

#include "shardtool/ingest/input_format.h"
#include "tests/memory_stream.h"
#include "tests/test.h"

// All documents in one buffer, each ended by a byte 0xFF. Returns -1 after fail().
static inline int read_documents(MemoryStream memory, SourceOptions *options, Buffer *out) {
    FormatReader *reader;
    int status = reader_open(&reader, &memory.stream, options);
    Part part;
    bool open = false;
    out->size = 0;
    while (status == 0 && reader && (status = reader_next(reader, &part)) > 0) {
        CHECK_EQUAL(part.first, !open);
        open = !part.last;
        buffer_add(out, part.text.data, part.text.size);
        if (part.last) buffer_add(out, "\xFF", 1);
        status = 0;
    }
    CHECK(status < 0 || !open);
    reader_close(reader);
    return status;
}
