// Inputs: whatever the user names becomes documents, in order, each in one or more slices of borrowed bytes.
//
//   argument -> files -> Stream -> the format with the highest bid on its first bytes -> Parts
//
// An archive is a format whose members are streams again, so formats nest. A new format is one row in source.c.
#pragma once

#include "common/arena.h"
#include "common/bytes.h"
#include "common/file.h"

enum {
    SOURCE_HEAD_BYTES = 16384,    // what formats may bid on
    SOURCE_WINDOW_BYTES = 262144, // what readers hold of a stream
    SOURCE_DEPTH_MAX = 3          // archives in archives
};

typedef enum { DOCS_FILE, DOCS_LINES, DOCS_PARAGRAPHS } SourceDocs;

typedef struct {
    SourceDocs docs;        // how plain text is cut into documents
    const char *text_field; // dotted path of the text in a JSON line
    uint64_t max_bad;       // lines without it that are skipped before it is an error
    uint64_t bad;           // skipped so far
    char first_bad[512];    // why, and where
} SourceOptions;

// A slice of a document. Offload of one document follow each other; the last may be empty.
typedef struct {
    Bytes text; // borrowed until the next call
    bool first, last;
    uint64_t file, document; // where the document begins: of the files, of the file's documents
} Part;

// Bytes under a name. read gives fewer than `size` bytes only at the end, -1 after fail().
typedef struct Stream Stream;
struct Stream {
    ssize_t (*read)(Stream *stream, void *data, size_t size);
    char name[PATH_MAX_BYTES]; // printable
    size_t head_at, head_size;
    uint8_t head[SOURCE_HEAD_BYTES]; // peeked at, not yet read
};
int stream_peek(Stream *stream, Bytes *head); // the first bytes, as many as formats may bid on
ssize_t stream_read(Stream *stream, void *data, size_t size);
// Names a stream "outer" or "outer:member"; what a terminal should not see becomes '?'.
void stream_name(Stream *stream, const char *outer, const char *member);

// A format that reads streams. The reader is its own struct, whose first field is a FormatReader.
typedef struct FormatReader FormatReader;
typedef struct {
    const char *name;
    int (*bid)(Bytes head);                                                   // 0 = not mine; the highest bid reads
    FormatReader *(*open)(Stream *stream, SourceOptions *options, int depth); // NULL after fail()
    int (*next)(FormatReader *reader, Part *part);                            // 1, 0 at the end, -1 after fail()
    void (*close)(FormatReader *reader);
} Format;
struct FormatReader {
    const Format *format;
};
extern const Format format_text, format_jsonl, format_archive;

// Finds the format and opens its reader. *reader is NULL for an empty stream. 65 for what no format reads.
int reader_open(FormatReader **reader, Stream *stream, SourceOptions *options, int depth);
void reader_close(FormatReader *reader); // accepts NULL

// The files behind the arguments, in the order in which they are read.
typedef struct {
    const char *path; // "-" is standard input
    uint64_t bytes;   // 0 for what is no regular file
    bool regular;
    uint32_t argument;
} InputFile;

typedef struct {
    const char *path; // as typed
    uint64_t files, bytes;
    uint8_t digest[16]; // XXH3-128 over each file's path, size, first and last 64 KiB; zero for a stream
    bool stream;        // standard input or a pipe: nothing can be said about it beforehand
} InputArgument;

typedef struct {
    Arena arena;
    InputFile *files;
    InputArgument *arguments;
    uint64_t file_count, argument_count, bytes;
} Inputs;

// Sorts the arguments by bytes, walks directories in byte order of their paths (dot files are skipped, links to
// directories not followed). The same file twice is 2, a missing one 66, an unreadable one 77.
int inputs_open(Inputs *inputs, int count, char **arguments);
int inputs_digest(Inputs *inputs); // fills in the digests
void inputs_close(Inputs *inputs); // accepts a zeroed struct

// All documents of all files.
typedef struct Source Source;
Source *source_open(const Inputs *inputs, SourceOptions *options);
int source_next(Source *source, Part *part);      // 1, 0 at the end, -1 after fail()
uint64_t source_bytes_read(const Source *source); // of the files' bytes, for progress
void source_close(Source *source);                // accepts NULL
