// The grammar of a JSON line as a machine of states, which holds only a window of the line.
#include "shardtool/jsonl/jsonl_scan.h"
#include "common/json_scan.h"
#include "common/utf8.h"
#include "shardtool/ingest/input_format.h"

enum {
    PART_BYTES = 1 << 20,       // a longer string is returned in parts, before its line is complete
    ESCAPE_BYTES_MAX = 12,      // two \uXXXX
    KEPT_BYTES_MAX = 256 << 20, // a longer line is refused: it is parsed as a whole
};

typedef enum {
    LINE_START,
    KEY_OR_CLOSE, // after {
    KEY,          // after a comma in an object
    COLON,
    VALUE_OR_CLOSE, // after [
    VALUE,
    STRING, // inside a string
    AFTER_VALUE,
    LINE_END,
    SKIPPED_LINE // the rest of a bad line
} ScanState;

static const uint8_t *skip_byte_order_mark(const uint8_t *at, const uint8_t *end) {
    return end - at >= 3 && !memcmp(at, "\xEF\xBB\xBF", 3) ? at + 3 : at;
}

static bool is_space(uint8_t c) { return c == ' ' || c == '\t' || c == '\r'; }

// A JSON line starts with a brace and a key, or is {}.
int jsonl_bid(Bytes head) {
    const uint8_t *end = head.data + head.size, *at = skip_byte_order_mark(head.data, end);
    while (at < end && (is_space(*at) || *at == '\n')) at++;
    if (at == end || *at++ != '{') return 0;
    while (at < end && is_space(*at)) at++;
    return at < end && (*at == '"' || *at == '}') ? BID_CONTENT : BID_NONE;
}

int jsonl_scan_open(JsonlScan *scan, Stream *stream, bool keeps) {
    scan->window.stream = stream, scan->keeps = keeps, scan->window.line = 1;
    if (!stream->start.byte) return 0;
    scan->window.start = scan->window.line_at = stream->start.byte, scan->window.line = stream->start.number;
    return stream_seek(stream, stream->start.byte);
}

void jsonl_scan_close(JsonlScan *scan) {
    buffer_close(&scan->key);
    buffer_close(&scan->kept);
}

static ScanEvent bad_line(JsonlScan *scan, const char *why) {
    scan->bad = why;
    return SCAN_BAD;
}

static bool is_special(uint8_t c) { return c == '"' || c == '\\' || c < 0x20; }

static const uint8_t *find_special(const uint8_t *at, const uint8_t *end) {
    uint8_t unused[JSON_SCAN_BYTES];
    for (unsigned plain; end - at >= JSON_SCAN_BYTES; at += plain)
        if ((plain = json_scan(unused, at, false)) < JSON_SCAN_BYTES) return at + plain;
    while (at < end && !is_special(*at)) at++;
    return at;
}

// The character of an escape of two characters, by its second; 0 for others.
static const uint8_t short_escapes[256] = {
    ['"'] = '"', ['\\'] = '\\', ['/'] = '/', ['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r', ['t'] = '\t',
};

// Appends a string up to its first special character that is not an escape of two characters; returns the place of it.
static const uint8_t *copy_string(Buffer *text, const uint8_t *at, const uint8_t *end) {
    buffer_reserve(text, (size_t)(end - at) + JSON_SCAN_BYTES);
    uint8_t *out = text->data + text->size;
    for (;;) {
        for (unsigned plain = JSON_SCAN_BYTES; plain == JSON_SCAN_BYTES && end - at >= JSON_SCAN_BYTES;) {
            plain = json_scan(out, at, false);
            at += plain, out += plain;
        }
        while (at < end && !is_special(*at)) *out++ = *at++;
        if (end - at < 2 || *at != '\\' || !short_escapes[at[1]]) break;
        *out++ = short_escapes[at[1]];
        at += 2;
    }
    text->size = (size_t)(out - text->data);
    return at;
}

static void capture(JsonlScan *scan, const void *data, size_t size) {
    if (!scan->capture || (scan->is_key && scan->key.size > SCAN_KEY_BYTES_MAX)) return;
    buffer_add(scan->capture, data, size);
}

static void capture_character(JsonlScan *scan, uint32_t point) {
    uint8_t bytes[UTF8_BYTES_MAX];
    capture(scan, bytes, utf8_encode(point, bytes));
}

// The value of the four digits after \u, or -1.
static int hex4(const uint8_t *at, const uint8_t *end) {
    int value = 0;
    if (end - at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        int c = at[i], digit = c >= '0' && c <= '9'                 ? c - '0'
                               : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                                    : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

static ScanEvent step_escape(JsonlScan *scan) {
    JsonlWindow *window = &scan->window;
    const uint8_t *at = window->bytes + window->at, *end = window->bytes + window->end;
    if (end - at < ESCAPE_BYTES_MAX && !window->ended) return SCAN_MORE;
    if (end - at < 2) return bad_line(scan, "the line ends in a string");
    if (short_escapes[at[1]]) {
        capture(scan, &short_escapes[at[1]], 1);
        window->at += 2;
        return SCAN_ON;
    }
    int c = at[1] == 'u' ? hex4(at + 2, end) : -1;
    if (c < 0) return bad_line(scan, "bad escape in a string");
    window->at += 6;
    bool high = c >= 0xD800 && c < 0xDC00, low = c >= 0xDC00 && c < 0xE000;
    if (high && end - at >= 12 && at[6] == '\\' && at[7] == 'u') {
        int next = hex4(at + 8, end);
        if (next >= 0xDC00 && next < 0xE000) {
            capture_character(scan, 0x10000 + (((uint32_t)c & 0x3FF) << 10 | ((uint32_t)next & 0x3FF)));
            window->at += 6;
            return SCAN_ON;
        }
    }
    capture_character(scan, high || low ? 0xFFFD : (uint32_t)c);
    return SCAN_ON;
}

static ScanEvent end_string(JsonlScan *scan) {
    scan->window.at++;
    scan->state = scan->is_key ? COLON : AFTER_VALUE;
    return scan->is_key ? SCAN_KEY : SCAN_ON;
}

static ScanEvent step_string(JsonlScan *scan) {
    JsonlWindow *window = &scan->window;
    const uint8_t *at = window->bytes + window->at, *end = window->bytes + window->end;
    Buffer *value = scan->is_key ? NULL : scan->capture;
    const uint8_t *special = value ? copy_string(value, at, end) : find_special(at, end);
    if (!value) capture(scan, at, (size_t)(special - at));
    window->at += (size_t)(special - at);
    if (special == end) return value && value->size >= PART_BYTES ? SCAN_PART : SCAN_MORE;
    if (*special == '"') return end_string(scan);
    if (*special == '\\') return step_escape(scan);
    return bad_line(scan, *special == '\n' ? "the line ends in a string" : "control character in a string");
}

static ScanEvent begin_key(JsonlScan *scan) {
    scan->window.at++;
    scan->state = STRING, scan->is_key = true;
    scan->capture = &scan->key, scan->key.size = 0;
    return SCAN_ON;
}

static ScanEvent begin_string(JsonlScan *scan) {
    scan->window.at++;
    scan->state = STRING, scan->is_key = false;
    return SCAN_STRING;
}

static bool is_number(const uint8_t *at, const uint8_t *end) {
    const uint8_t *digits;
    if (at < end && *at == '-') at++;
    if (at < end && *at == '0')
        at++;
    else {
        for (digits = at; at < end && *at >= '0' && *at <= '9';) at++;
        if (at == digits) return false;
    }
    if (at < end && *at == '.') {
        for (digits = ++at; at < end && *at >= '0' && *at <= '9';) at++;
        if (at == digits) return false;
    }
    if (at < end && (*at | 32) == 'e') {
        at++;
        if (at < end && (*at == '+' || *at == '-')) at++;
        for (digits = at; at < end && *at >= '0' && *at <= '9';) at++;
        if (at == digits) return false;
    }
    return at == end;
}

static bool is_word(const uint8_t *at, size_t size) {
    static const char *const words[] = {"true", "false", "null", "NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (size == strlen(words[i]) && !memcmp(at, words[i], size)) return true;
    return false;
}

// A number, true, false or null. It must fit in the window.
static ScanEvent step_scalar(JsonlScan *scan) {
    JsonlWindow *window = &scan->window;
    const uint8_t *begin = window->bytes + window->at, *end = window->bytes + window->end, *at = begin;
    while (at < end && ((*at >= '0' && *at <= '9') || ((*at | 32) >= 'a' && (*at | 32) <= 'z') || *at == '-' ||
                        *at == '+' || *at == '.'))
        at++;
    if (at == end && !window->ended) return SCAN_MORE;
    if (!is_word(begin, (size_t)(at - begin)) && !is_number(begin, at)) return bad_line(scan, "expected a JSON value");
    window->at += (size_t)(at - begin);
    scan->state = AFTER_VALUE, scan->scalar = *begin;
    return SCAN_SCALAR;
}

static bool in_object(const JsonlScan *scan) { return scan->objects[scan->depth / 64] >> scan->depth % 64 & 1; }

static ScanEvent open_level(JsonlScan *scan, bool object) {
    if (scan->depth == SCAN_DEPTH_MAX) return bad_line(scan, "nested more than 1024 deep");
    scan->depth++;
    uint64_t bit = 1ull << scan->depth % 64, *word = &scan->objects[scan->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    scan->state = object ? KEY_OR_CLOSE : VALUE_OR_CLOSE;
    scan->window.at++;
    return SCAN_OPEN;
}

static ScanEvent close_level(JsonlScan *scan) {
    assert(scan->depth);
    scan->depth--;
    scan->state = scan->depth ? AFTER_VALUE : LINE_END;
    scan->window.at++;
    return SCAN_CLOSE;
}

static ScanEvent step_value(JsonlScan *scan, uint8_t c) {
    if (c == '"') return begin_string(scan);
    if (c == '{') return open_level(scan, true);
    if (c == '[') return open_level(scan, false);
    return step_scalar(scan);
}

static ScanEvent step_after_value(JsonlScan *scan, uint8_t c) {
    bool object = in_object(scan);
    if (c == (object ? '}' : ']')) return close_level(scan);
    if (c != ',')
        return bad_line(scan, object ? "expected a comma or } after a value" : "expected a comma or ] after a value");
    scan->state = object ? KEY : VALUE;
    scan->window.at++;
    return SCAN_ON;
}

static ScanEvent skip_to_line_end(JsonlWindow *window) {
    const uint8_t *from = window->bytes + window->at, *newline = memchr(from, '\n', window->end - window->at);
    window->at = newline ? (size_t)(newline - window->bytes) : window->end;
    return newline ? SCAN_GAP : SCAN_MORE;
}

static ScanEvent step(JsonlScan *scan) {
    JsonlWindow *window = &scan->window;
    if (scan->state == STRING) return step_string(scan);
    if (scan->state == SKIPPED_LINE) return skip_to_line_end(window);
    while (window->at < window->end && is_space(window->bytes[window->at])) window->at++;
    if (window->at == window->end) return SCAN_MORE;
    uint8_t c = window->bytes[window->at];
    if (c == '\n' && scan->state == LINE_START) return SCAN_GAP;
    if (c == '\n') return scan->state == LINE_END ? SCAN_LINE : bad_line(scan, "the line ends within an object");
    switch ((ScanState)scan->state) {
    case LINE_START:
        return c == '{' ? open_level(scan, true) : bad_line(scan, "not a JSON object");
    case KEY_OR_CLOSE:
        if (c == '}') return close_level(scan);
        return c == '"' ? begin_key(scan) : bad_line(scan, "expected a key");
    case KEY:
        return c == '"' ? begin_key(scan) : bad_line(scan, "expected a key");
    case COLON:
        if (c != ':') return bad_line(scan, "expected a colon after a key");
        window->at++, scan->state = VALUE;
        return SCAN_ON;
    case VALUE_OR_CLOSE:
        return c == ']' ? close_level(scan) : step_value(scan, c);
    case VALUE:
        return step_value(scan, c);
    case AFTER_VALUE:
        return step_after_value(scan, c);
    default:
        return bad_line(scan, "text after the object");
    }
}

ScanEvent jsonl_scan_next(JsonlScan *scan) {
    ScanEvent event;
    while ((event = step(scan)) == SCAN_ON) {
    }
    assert(scan->window.at <= scan->window.end);
    if (event != SCAN_MORE) return event;
    if (scan->window.at == 0 && scan->window.end == STREAM_WINDOW_BYTES)
        return bad_line(scan, "number longer than the window");
    if (scan->kept.size > KEPT_BYTES_MAX) return bad_line(scan, "the line is longer than 256 MiB");
    return SCAN_MORE;
}

// The part of the window that was read and belongs to the line.
static Bytes read_part(const JsonlWindow *window) {
    const uint8_t *at = window->bytes, *end = at + window->at;
    if (window->line_at > window->start) at += window->line_at - window->start;
    if (window->start == 0 && at == window->bytes) at = skip_byte_order_mark(at, end);
    return (Bytes){at, (size_t)(end - at)};
}

// Moves the unread bytes to the front of the window and reads more. Adds a missing line end to the last line.
int jsonl_scan_refill(JsonlScan *scan) {
    JsonlWindow *window = &scan->window;
    if (window->ended) return 0;
    const bool first = window->start == 0 && window->end == 0;
    const Bytes leaving = read_part(window);
    if (scan->keeps && scan->state != SKIPPED_LINE) buffer_add(&scan->kept, leaving.data, leaving.size);
    window->start += window->at;
    memmove(window->bytes, window->bytes + window->at, window->end - window->at);
    window->end -= window->at, window->at = 0;
    size_t space = STREAM_WINDOW_BYTES - window->end;
    ssize_t got = stream_read(window->stream, window->bytes + window->end, space);
    if (got < 0) return -1;
    window->end += (size_t)got;
    window->ended = (size_t)got < space;
    if (window->ended) window->bytes[window->end++] = '\n';
    if (first) window->at = (size_t)(skip_byte_order_mark(window->bytes, window->bytes + window->end) - window->bytes);
    return 1;
}

void jsonl_scan_skip(JsonlScan *scan) {
    scan->state = SKIPPED_LINE;
    scan->kept.size = 0;
}

void jsonl_scan_begin_line(JsonlScan *scan) {
    JsonlWindow *window = &scan->window;
    assert(window->at < window->end && window->bytes[window->at] == '\n');
    window->at++, window->line++;
    window->line_at = window->start + window->at;
    scan->state = LINE_START, scan->depth = 0;
    scan->kept.size = 0;
}

Bytes jsonl_scan_line(const JsonlScan *scan) {
    return scan->window.line_at < scan->window.start ? (Bytes){0} : read_part(&scan->window);
}

Bytes jsonl_scan_whole_line(JsonlScan *scan) {
    const Bytes part = read_part(&scan->window);
    assert(scan->keeps && scan->state == LINE_END);
    if (!scan->kept.size) return part;
    buffer_add(&scan->kept, part.data, part.size);
    return (Bytes){scan->kept.data, scan->kept.size};
}
