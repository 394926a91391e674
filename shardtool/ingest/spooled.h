// A stream in a temporary file, for formats that are read from their end.
#pragma once

#include "shardtool/ingest/input_format.h"

typedef struct {
    Stream stream; // has read_at
    int fd;
} SpooledStream;

SpooledStream *stream_spool(Stream *from);  // reads the rest of `from`; NULL after fail()
void spooled_close(SpooledStream *spooled); // accepts NULL
