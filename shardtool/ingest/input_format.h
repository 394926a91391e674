// Input formats: a named stream of bytes is read by the format with the highest bid on its first bytes, which returns
// its documents, each in one or more parts.
//
// An archive is a format whose members are streams again, so formats nest. A new format is one row in
// input_formats.def and one file.
#pragma once

#include "common/bytes.h"
#include "common/cli/cli.h"
#include "common/file/file.h"
#include "shardtool/ingest/skips.h"

enum {
    SOURCE_HEAD_BYTES = 16384,    // the first bytes of a stream, on which formats bid
    SOURCE_WINDOW_BYTES = 262144, // the part of a stream that a reader holds in memory
    SOURCE_BASE_BYTES = 256,      // of a file name
    INPUT_FORMATS_MAX = 16        // rows of the table
};

typedef enum { DOCS_FILE, DOCS_LINES, DOCS_PARAGRAPHS } SourceDocs;

typedef struct {
    SourceDocs docs;         // how plain text is cut into documents
    const char *text_field;  // dotted path of the text in a JSON line
    const char *text_column; // dotted path of the text in a Parquet file
    StringList where;        // conditions on columns; rows of Parquet files that do not meet all are left out
    unsigned format;         // 0 = choose by content, else the number of the row among the INPUT_DOCUMENTS rows
    uint64_t max_depth;      // levels of containers; a compressed archive is one level
    uint64_t max_ratio;      // output per byte of input, 0 = no limit
    unsigned threads;        // that decode compressed members of archives ahead; 0 = one per core
    Skips skips;
    struct AccessPoints *points;             // of the input files, for a run that may be continued; else NULL
    uint64_t inputs_read[INPUT_FORMATS_MAX]; // files and members read, by row of the table
} SourceOptions;

// A place in a file from which its reader can begin. All zero is the beginning. A place in a compressed file is one of
// its content: earlier content is decompressed and dropped, or skipped where there is an access point.
typedef struct {
    uint64_t byte;   // from which the reader reads; 0 for formats with an index
    uint64_t number; // of the line, member or row group there
} ReadPlace;

// A part of a document. Parts of one document follow each other; the last may be empty.
typedef struct {
    Bytes text; // borrowed until the next call
    bool first, last;
    uint64_t skipped;        // documents of the file that the format left out before this one
    uint64_t file, document; // where the document begins: index of the file, document of that file from 0
    bool has_place;          // a reader that begins at `place` comes to this document after `behind` others
    ReadPlace place;
    uint64_t behind;
} Part;

// A named sequence of bytes. `read` returns fewer than `size` bytes only at the end, -1 after fail().
typedef struct Stream Stream;
struct Stream {
    ssize_t (*read)(Stream *stream, void *data, size_t size);
    // Reads at any offset, independently of `read`. NULL for pipes and members of archives.
    ssize_t (*read_at)(Stream *stream, uint64_t offset, void *data, size_t size);
    int (*seek)(Stream *stream, uint64_t offset); // continues `read` at a byte; may be NULL
    ReadPlace start;                              // for the reader of the stream; its format is that of the beginning
    uint64_t size;                                // in bytes, where there is read_at
    char name[PATH_MAX_BYTES];                    // printable
    char base[SOURCE_BASE_BYTES];                 // the file name without the extensions of codecs that were decoded
    unsigned level;                               // of containers around it
    uint64_t number, offset;                      // of a member in its archive; of its header, in a tar
    bool decompressed;                            // the output of a codec
    bool is_listed;                               // found in a folder or an archive, not named by the user
    struct Decoder *decoder;                      // has decoded a part of it ahead; NULL for most streams
    size_t head_at, head_size;
    uint8_t head[SOURCE_HEAD_BYTES]; // peeked at, not yet read
};
int stream_peek(Stream *stream, Bytes *head); // the first bytes, at most SOURCE_HEAD_BYTES, without consuming them
ssize_t stream_read(Stream *stream, void *data, size_t size);
int stream_seek(Stream *stream, uint64_t offset); // before the first stream_read
// Only for streams with read_at. Fewer than `size` bytes only at the end.
ssize_t stream_read_at(Stream *stream, uint64_t offset, void *data, size_t size);
// Names a stream "outer" or "outer:member", its base by the last component; control characters become '?' in `name`.
void stream_name(Stream *stream, const char *outer, const char *member);

// A format's reader is a struct of its own, whose first field is a FormatReader.
typedef enum { INPUT_CONTAINER, INPUT_DOCUMENTS } InputKind;
// Bids on the first bytes of a stream.
enum { BID_NONE, BID_TEXT = 10, BID_CONTENT = 50, BID_MAGIC = 100 };

typedef struct InputFormat InputFormat;
typedef struct {
    const InputFormat *format;
    bool in_document; // a part was returned, but not the last of its document
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

// For formats whose documents have no columns: 65 when there are conditions, which would be passed over in silence.
int refuse_conditions(const Stream *stream, const SourceOptions *options);

// Whether reader_open decompresses a stream that starts with `head`.
bool stream_is_compressed(const Stream *stream, Bytes head);
// Finds the format and opens its reader. *reader is NULL for an empty stream. 65 when no format reads it.
int reader_open(FormatReader **reader, Stream *stream, SourceOptions *options);
// The name of the format in row `row`, or NULL after the last row.
const char *input_format_name(unsigned row);
int reader_next(FormatReader *reader, Part *part);
// After reader_next or reader_open failed on a file or a member that its container can skip; `reader` may be NULL. -1
// when it may not be skipped. 1 when the document that was begun ends with *part, an empty part. Then, and with 0, the
// reader is to be closed.
int reader_skip(FormatReader *reader, const Stream *stream, SourceOptions *options, Part *part);
void reader_close(FormatReader *reader); // accepts NULL

// For containers: 65 when the stream is nested deeper than --max-depth, or when `out_bytes` of output from `in_bytes`
// of input exceed --max-ratio.
int level_check(const Stream *stream, const SourceOptions *options);
int ratio_check(const char *name, const SourceOptions *options, uint64_t in_bytes, uint64_t out_bytes);
