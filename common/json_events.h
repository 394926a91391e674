// Reads JSON in a window that moves over it: what it holds, as events in their order.
//
// The grammar is that of Python's json module: strict strings, NaN and Infinity allowed, a lone surrogate becomes
// U+FFFD. Bytes that are not UTF-8 pass through. The text is one object or array; with `lines` it has an object in each
// line, with `arrays` an object or an array, or nothing.
//
//     for each event of json_events_next(json):
//         EVENT_STRING:           json->capture = NULL, or the buffer to which the string is appended
//         EVENT_MORE, EVENT_PART: move the bytes from `at` on to the front of the window, and add more, or end
//         EVENT_BAD:              the end, or json_events_skip_line
//         EVENT_LINE, EVENT_GAP:  json_events_begin_line
#pragma once

#include "common/bytes.h"

enum {
    JSON_DEPTH_MAX = 1024,
    JSON_KEY_BYTES_MAX = 4096, // a longer key is cut after the piece of the window that exceeds this
};

typedef enum {
    EVENT_MORE,   // the window holds no further event
    EVENT_KEY,    // `key`, of the object at `depth`
    EVENT_STRING, // a value that begins
    EVENT_PART,   // as EVENT_MORE; what is captured of a string has reached 1 MiB: the buffer may be emptied
    EVENT_TEXT,   // a string ends that is captured
    EVENT_SCALAR, // `scalar`: a number, true, false, null, NaN or Infinity
    EVENT_OPEN,   // an object or an array begins, whose elements are at `depth`
    EVENT_CLOSE,  // the same ends
    EVENT_LINE,   // the line end after an object
    EVENT_GAP,    // the line end of an empty line, or of one that was skipped
    EVENT_BAD,    // `bad` is the reason, without a place
    EVENT_ON      // bytes that are not an event; never returned
} JsonEvent;

// Zero, but for what the caller sets: the window, of which [at, end) is unread, `ended` and `lines`.
typedef struct {
    const uint8_t *bytes;
    size_t at, end;
    bool ended; // the text ends with the window; with `lines`, at a line end
    bool lines, arrays;
    unsigned state;                            // where in the grammar
    unsigned depth;                            // of open objects and arrays
    uint64_t objects[JSON_DEPTH_MAX / 64 + 1]; // one bit per level: 1 = object, 0 = array
    bool is_key;                               // the current string is a key
    Buffer *capture;                           // destination of the current string, NULL = skip it
    Buffer key;
    Bytes scalar; // borrowed until the window moves
    const char *bad;
} JsonEvents;

JsonEvent json_events_next(JsonEvents *json);
void json_events_skip_line(JsonEvents *json);  // the rest of a bad line
void json_events_begin_line(JsonEvents *json); // after its predecessor's line end
bool json_events_in_object(const JsonEvents *json);
bool json_events_ended(const JsonEvents *json); // the object or array is whole
void json_events_close(JsonEvents *json);
