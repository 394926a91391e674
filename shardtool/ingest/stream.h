// A stream is a named sequence of bytes: a file, a pipe, a member of an archive, or the output of a codec.
#pragma once

#include "common/bytes.h"
#include "common/file/file.h"

enum {
    STREAM_HEAD_BYTES = 16384,    // the first bytes of a stream, from which its format is found
    STREAM_WINDOW_BYTES = 262144, // the part of a stream that a reader holds in memory
    STREAM_BASE_BYTES = 256       // the length of a file name
};

// A place in a file from which its reader can begin. All zero is the beginning. A place in a compressed file is one of
// its content: earlier content is decompressed and dropped, or skipped if there is an access point.
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
    bool has_place;          // a reader that begins at `place` returns `preceding` documents before this one
    ReadPlace place;
    uint64_t preceding;
    uint64_t replaced;      // places that were not UTF-8 and that the reader replaced since the part before
    uint64_t line;          // of a file of JSON lines, from 1; else 0
    uint64_t record;        // the line from 0, or `document`
    const char *member;     // of the archive; NULL in other files. Printable, borrowed until the next call
    uint64_t member_record; // the line of that member from 0, or its document
    Bytes kept;             // with the first part: the values of --keep (dataset/provenance.h)
} Part;

typedef struct Stream Stream;
struct Stream {
    // Returns fewer than `size` bytes only at the end, -1 after fail().
    ssize_t (*read)(Stream *stream, void *data, size_t size);
    // Reads at any offset, independently of `read`. NULL for pipes, members of archives and the output of codecs.
    ssize_t (*read_at)(Stream *stream, uint64_t offset, void *data, size_t size);
    int (*seek)(Stream *stream, uint64_t offset); // continues `read` at a byte; may be NULL
    ReadPlace start;                              // of the reader; the format is told by the first bytes
    uint64_t size;                                // in bytes, if there is read_at
    char name[PATH_MAX_BYTES];                    // printable
    char base[STREAM_BASE_BYTES];                 // the file name without the extensions of codecs that were decoded
    unsigned level;                               // the number of containers around it
    uint64_t number, offset;                      // of a member in its archive; of its header, in a tar
    bool decompressed;                            // the output of a codec
    bool is_listed;                               // found in a folder or an archive, not named by the user
    struct Decoder *decoder;                      // has decoded a part of it ahead; NULL for most streams
    size_t head_at, head_size;
    uint8_t head[STREAM_HEAD_BYTES]; // peeked at, not yet read
};
int stream_peek(Stream *stream, Bytes *head); // the first bytes, at most STREAM_HEAD_BYTES, without consuming them
ssize_t stream_read(Stream *stream, void *data, size_t size);
int stream_seek(Stream *stream, uint64_t offset); // without `seek`: before the first stream_read
// Only for streams with read_at. Fewer than `size` bytes only at the end.
ssize_t stream_read_at(Stream *stream, uint64_t offset, void *data, size_t size);
// Names a stream "outer" or "outer:member", its base by the last component; control characters become '?' in `name`.
void stream_name(Stream *stream, const char *outer, const char *member);

// A stream in an unlinked temporary file, for formats that are read from their end.
typedef struct {
    Stream stream; // has read_at
    int fd;
} SpooledStream;

SpooledStream *stream_spool(Stream *from);  // reads the rest of `from`; NULL after fail()
void spooled_close(SpooledStream *spooled); // accepts NULL
