// Scans JSON lines in a window of a stream: what a line holds, as events in their order, and the place of each byte.
//
// The grammar is that of Python's json module: strict strings, NaN and Infinity allowed, a lone surrogate becomes
// U+FFFD. Bytes that are not UTF-8 pass through; the tokenizer handles them.
//
//     for each event of jsonl_scan_next(scan):
//         SCAN_STRING:         scan->capture = NULL, or the buffer to which the string is appended
//         SCAN_MORE:           jsonl_scan_refill(scan), or the end of the stream
//         SCAN_BAD:            jsonl_scan_skip(scan)
//         SCAN_LINE, SCAN_GAP: jsonl_scan_begin_line(scan)
#pragma once

#include "common/bytes.h"
#include "shardtool/ingest/stream.h"

enum {
    SCAN_DEPTH_MAX = 1024,
    SCAN_KEY_BYTES_MAX = 4096, // a longer key is cut after the piece of the window that exceeds this
};

typedef enum {
    SCAN_MORE,   // the window holds no further event
    SCAN_KEY,    // `key`, of the object at `depth`
    SCAN_STRING, // a value that begins
    SCAN_PART,   // what is captured of a string has reached 1 MiB: the buffer may be emptied
    SCAN_SCALAR, // a number, a word or null, which begins with the byte `scalar`
    SCAN_OPEN,   // an object or an array begins, whose elements are at `depth`
    SCAN_CLOSE,  // the same ends
    SCAN_LINE,   // the line end after an object
    SCAN_GAP,    // the line end of an empty line, or of one that was skipped
    SCAN_BAD,    // `bad` is the reason, without a place
    SCAN_ON      // bytes that are not an event; never returned
} ScanEvent;

// The unread bytes are [at, end) of `bytes`.
typedef struct {
    Stream *stream;
    bool ended; // the window holds the end of the stream
    size_t at, end;
    uint64_t start;                         // offset in the stream of bytes[0]
    uint64_t line, line_at;                 // its number from 1, its offset in the stream
    uint8_t bytes[STREAM_WINDOW_BYTES + 1]; // and a line end after the last line
} JsonlWindow;

typedef struct {
    JsonlWindow window;
    unsigned state;                            // where in the grammar
    unsigned depth;                            // of open objects and arrays
    uint64_t objects[SCAN_DEPTH_MAX / 64 + 1]; // one bit per level: 1 = object, 0 = array
    bool is_key;                               // the current string is a key
    Buffer *capture;                           // destination of the current string, NULL = skip it
    Buffer key;
    uint8_t scalar;
    const char *bad;
    bool keeps;  // lines that are longer than the window, up to 256 MiB
    Buffer kept; // the part of the line that has left the window
} JsonlScan;

// Begins at stream->start; `scan` is zero. -1 after fail().
int jsonl_scan_open(JsonlScan *scan, Stream *stream, bool keeps);
void jsonl_scan_close(JsonlScan *scan);

ScanEvent jsonl_scan_next(JsonlScan *scan);
int jsonl_scan_refill(JsonlScan *scan);      // 1, 0 when the stream has ended, -1 after fail()
void jsonl_scan_skip(JsonlScan *scan);       // the rest of the line
void jsonl_scan_begin_line(JsonlScan *scan); // after its predecessor's line end

// The line up to the unread bytes, borrowed until the next event; its data is NULL if it began before the window.
Bytes jsonl_scan_line(const JsonlScan *scan);
// With `keeps`, once, at SCAN_LINE: the line without its end.
Bytes jsonl_scan_whole_line(JsonlScan *scan);
