// Input formats: a named stream of bytes is read by the format with the highest bid on its first bytes, which returns
// its documents, each in one or more parts.
//
// An archive is a format whose members are streams again, so formats nest. A new format is one row in
// input_formats.def and one file.
#pragma once

#include "shardtool/ingest/source_options.h"

// A format's reader is a struct of its own, whose first field is a FormatReader.
typedef enum { INPUT_CONTAINER, INPUT_DOCUMENTS } InputKind;
// Bids on the first bytes of a stream.
enum { BID_NONE, BID_TEXT = 10, BID_CONTENT = 50, BID_MAGIC = 100 };

typedef struct InputFormat InputFormat;
typedef struct {
    const InputFormat *format;
    bool in_document;       // a part was returned, but not the last of its document
    bool has_returned;      // a part, at all
    SpooledStream *spooled; // that it reads, or NULL
} FormatReader;
struct InputFormat {
    const char *name, *title, *extensions;
    InputKind kind;
    bool needs_seek;                                               // requires Stream.read_at
    int (*bid)(Bytes head);                                        // BID_NONE ... BID_MAGIC
    FormatReader *(*open)(Stream *stream, SourceOptions *options); // NULL after fail()
    int (*next)(FormatReader *reader, Part *part);                 // 1, 0 at the end, -1 after fail()
    void (*close)(FormatReader *reader);
};

#define INPUT_FORMAT(name, ...)                                                                                        \
    int name##_bid(Bytes head);                                                                                        \
    FormatReader *name##_open(Stream *stream, SourceOptions *options);                                                 \
    int name##_next(FormatReader *reader, Part *part);                                                                 \
    void name##_close(FormatReader *reader);
#include "shardtool/ingest/input_formats.def"
#undef INPUT_FORMAT

// The row of the table for a format, whose `bid` ... `close` are the functions of that name.
#define INPUT_FORMAT_ROW(name, title, extensions, kind, needs_seek)                                                    \
    { #name, title, extensions, kind, needs_seek, name##_bid, name##_open, name##_next, name##_close }

// Whether reader_open decompresses a stream that starts with `head`.
bool stream_is_compressed(const Stream *stream, Bytes head);
// Finds the format and opens its reader. *reader is NULL for an empty stream. 65 when no format reads it.
int reader_open(FormatReader **reader, Stream *stream, SourceOptions *options);
// The name of the format in row `row`, or NULL after the last row.
const char *input_format_name(unsigned row);
int reader_next(FormatReader *reader, Part *part);
// Skips the rest of a file or a member after reader_next or reader_open failed; `reader` may be NULL. -1 when that is
// not allowed. 1 when the document that was begun ends with *part, an empty part. Unless -1, the reader must be closed.
int reader_skip(FormatReader *reader, const Stream *stream, SourceOptions *options, Part *part);
void reader_close(FormatReader *reader); // accepts NULL
