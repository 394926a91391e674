// JSON lines: extracts one string of each object, at a path of keys, while holding only a window of the line.
//
// The grammar is the same as in Python's json module: strict strings, NaN and Infinity allowed, the last of two equal
// keys wins, a lone surrogate becomes U+FFFD. Bytes that are not UTF-8 pass through; the tokenizer handles them.
#include "common/err.h"
#include "common/json_read.h"
#include "common/json_scan.h"
#include "common/log.h"
#include "common/utf8.h"
#include "shardtool/ingest/input_format.h"
#include "shardtool/jsonl/jsonl_turns.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    DEPTH_MAX = 1024,
    PATH_KEYS_MAX = 16,
    KEY_BYTES_MAX = 4096,        // longer keys cannot match and are not stored
    PART_BYTES = 1 << 20,        // a longer text is returned in parts, before its line is complete
    ESCAPE_BYTES_MAX = 12,       // two \uXXXX
    TURNS_BYTES_MAX = 256 << 20, // a longer line of conversations is refused: it is parsed as a whole
    PENDING_MAX = 4096           // lines without the key before the first with it
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
} State;

static const char NO_TEXT[] = "no text at the key";
static const char NO_TURNS[] = "no messages, no prompt with a completion, and no text at the key";
static const char IS_TURNS[] = "a conversation, which only tokenize --turns reads (train-vocabulary: --text-field '*' "
                               "takes all its strings), and no text at the key";

// The result of a step: continue, read more input, end of line, a part of the text is ready, bad line.
typedef enum { STEP_ON, STEP_MORE, STEP_LINE, STEP_PART, STEP_BAD } Step;

typedef struct {
    FormatReader reader;
    Stream *stream;
    SourceOptions *options;
    const char *keys[PATH_KEYS_MAX]; // the keys of the path
    size_t key_bytes[PATH_KEYS_MAX];
    unsigned key_count;
    bool joins; // all strings of the line, for the path *

    bool ended;         // the window holds the end of the stream
    size_t at, end;     // unread bytes of the window
    uint64_t line;      // from 1
    uint64_t window_at; // offset in the stream of window[0]
    uint64_t line_at;   // offset in the stream of the line
    uint64_t line_byte; // offset in the line of window[0]; wraps below 0 at its start
    const char *bad;    // reason why the line is bad

    State state;
    unsigned depth, matched;              // matched: number of path keys on the current nesting
    bool is_key;                          // the current string is a key
    Buffer *capture;                      // destination of the current string, NULL = skip it
    bool found, is_null, streamed;        // the text of this line was read; it is null; a part of it was returned
    bool is_other;                        // the key of the text has a value that is neither a string nor null
    uint64_t objects[DEPTH_MAX / 64 + 1]; // one bit per level: 1 = object, 0 = array
    Buffer text, key;
    Buffer raw; // with options->turns: the line up to window[raw_at]
    size_t raw_at;
    char why[TURNS_WHY_BYTES];
    // Spark and DataFusion leave out a key whose value is null. A line without the key is thus a null text if another
    // line of the file has the key, and waits until one has.
    bool has_key;
    Buffer pending;                          // uint64_t, their numbers
    Error pending_why;                       // of the first
    uint8_t window[STREAM_WINDOW_BYTES + 1]; // and a line end after the last line
} JsonlReader;

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

static int split_path(JsonlReader *jsonl, const char *path) {
    if ((jsonl->joins = !strcmp(path, "*"))) return 0;
    for (const char *at = path;; at++) {
        size_t length = strcspn(at, ".");
        if (jsonl->key_count == PATH_KEYS_MAX || length == 0)
            return fail(EX_USAGE, "--text-field '%s' is not a path of 1 to %d keys", path, PATH_KEYS_MAX);
        jsonl->keys[jsonl->key_count] = at;
        jsonl->key_bytes[jsonl->key_count++] = length;
        at += length;
        if (!*at) return 0;
    }
}

void jsonl_close(FormatReader *reader) {
    JsonlReader *jsonl = (JsonlReader *)reader;
    buffer_close(&jsonl->text);
    buffer_close(&jsonl->key);
    buffer_close(&jsonl->raw);
    buffer_close(&jsonl->pending);
    free(jsonl);
}

FormatReader *jsonl_open(Stream *stream, SourceOptions *options) {
    if (refuse_conditions(stream, options) < 0) return NULL;
    JsonlReader *jsonl = allocate_zeroed(1, sizeof *jsonl);
    jsonl->stream = stream, jsonl->options = options, jsonl->line = 1;
    if (stream->start.byte) {
        jsonl->window_at = jsonl->line_at = stream->start.byte, jsonl->line = stream->start.number;
        jsonl->has_key = true; // a document lies before
        if (stream_seek(stream, jsonl->line_at) < 0) return jsonl_close(&jsonl->reader), NULL;
    }
    if (split_path(jsonl, options->text_field) == 0) return &jsonl->reader;
    jsonl_close(&jsonl->reader);
    return NULL;
}

static Step bad_line(JsonlReader *jsonl, const char *why) {
    jsonl->bad = why;
    return STEP_BAD;
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

static void capture(JsonlReader *jsonl, const void *data, size_t size) {
    if (!jsonl->capture || (jsonl->is_key && jsonl->key.size > KEY_BYTES_MAX)) return;
    buffer_add(jsonl->capture, data, size);
}

static void capture_character(JsonlReader *jsonl, uint32_t point) {
    uint8_t bytes[UTF8_BYTES_MAX];
    capture(jsonl, bytes, utf8_encode(point, bytes));
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

static Step step_escape(JsonlReader *jsonl) {
    const uint8_t *at = jsonl->window + jsonl->at, *end = jsonl->window + jsonl->end;
    if (end - at < ESCAPE_BYTES_MAX && !jsonl->ended) return STEP_MORE;
    if (end - at < 2) return bad_line(jsonl, "the line ends in a string");
    if (short_escapes[at[1]]) {
        capture(jsonl, &short_escapes[at[1]], 1);
        jsonl->at += 2;
        return STEP_ON;
    }
    int c = at[1] == 'u' ? hex4(at + 2, end) : -1;
    if (c < 0) return bad_line(jsonl, "bad escape in a string");
    jsonl->at += 6;
    bool high = c >= 0xD800 && c < 0xDC00, low = c >= 0xDC00 && c < 0xE000;
    if (high && end - at >= 12 && at[6] == '\\' && at[7] == 'u') {
        int next = hex4(at + 8, end);
        if (next >= 0xDC00 && next < 0xE000) {
            capture_character(jsonl, 0x10000 + (((uint32_t)c & 0x3FF) << 10 | ((uint32_t)next & 0x3FF)));
            jsonl->at += 6;
            return STEP_ON;
        }
    }
    capture_character(jsonl, high || low ? 0xFFFD : (uint32_t)c);
    return STEP_ON;
}

static bool in_object(const JsonlReader *jsonl) { return jsonl->objects[jsonl->depth / 64] >> jsonl->depth % 64 & 1; }

// Compares the key just read with the next key of the path. If two keys are equal, the last wins, so the value of an
// earlier one is dropped.
static Step match_key(JsonlReader *jsonl) {
    if (jsonl->matched >= jsonl->depth) jsonl->matched = jsonl->depth - 1;
    unsigned level = jsonl->depth - 1;
    if (jsonl->matched != level || level >= jsonl->key_count || jsonl->key.size != jsonl->key_bytes[level] ||
        memcmp(jsonl->key.data, jsonl->keys[level], jsonl->key.size))
        return STEP_ON;
    jsonl->matched++;
    jsonl->found = jsonl->is_null = false;
    return jsonl->streamed ? bad_line(jsonl, "duplicate key of the text, after a text too long to hold") : STEP_ON;
}

static Step end_string(JsonlReader *jsonl) {
    jsonl->at++;
    if (jsonl->is_key) {
        jsonl->state = COLON;
        return match_key(jsonl);
    }
    jsonl->state = AFTER_VALUE;
    jsonl->found |= jsonl->capture != NULL;
    return STEP_ON;
}

static Step step_string(JsonlReader *jsonl) {
    const uint8_t *at = jsonl->window + jsonl->at, *end = jsonl->window + jsonl->end;
    const uint8_t *special;
    if (jsonl->capture == &jsonl->text)
        special = copy_string(&jsonl->text, at, end);
    else {
        special = find_special(at, end);
        capture(jsonl, at, (size_t)(special - at));
    }
    jsonl->at += (size_t)(special - at);
    if (special == end) return jsonl->capture == &jsonl->text && jsonl->text.size >= PART_BYTES ? STEP_PART : STEP_MORE;
    if (*special == '"') return end_string(jsonl);
    if (*special == '\\') return step_escape(jsonl);
    return bad_line(jsonl, *special == '\n' ? "the line ends in a string" : "control character in a string");
}

// Whether the value that begins here belongs to the last key of the path.
static bool is_at_text(const JsonlReader *jsonl) {
    return jsonl->matched == jsonl->key_count && jsonl->depth == jsonl->key_count && !jsonl->options->turns;
}

static Step begin_string(JsonlReader *jsonl, bool is_key) {
    jsonl->at++;
    jsonl->state = STRING, jsonl->is_key = is_key;
    jsonl->capture = is_key ? &jsonl->key : jsonl->joins || is_at_text(jsonl) ? &jsonl->text : NULL;
    if (jsonl->joins && !is_key && jsonl->found)
        buffer_add(&jsonl->text, " ", 1);
    else if (jsonl->capture)
        jsonl->capture->size = 0;
    return STEP_ON;
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
static Step step_scalar(JsonlReader *jsonl) {
    const uint8_t *begin = jsonl->window + jsonl->at, *end = jsonl->window + jsonl->end, *at = begin;
    while (at < end && ((*at >= '0' && *at <= '9') || ((*at | 32) >= 'a' && (*at | 32) <= 'z') || *at == '-' ||
                        *at == '+' || *at == '.'))
        at++;
    if (at == end && !jsonl->ended) return STEP_MORE;
    if (!is_word(begin, (size_t)(at - begin)) && !is_number(begin, at)) return bad_line(jsonl, "expected a JSON value");
    if (is_at_text(jsonl)) jsonl->is_null = *begin == 'n', jsonl->is_other = !jsonl->is_null;
    jsonl->at += (size_t)(at - begin);
    jsonl->state = AFTER_VALUE;
    return STEP_ON;
}

static Step open_level(JsonlReader *jsonl, bool object) {
    if (jsonl->depth == DEPTH_MAX) return bad_line(jsonl, "nested more than 1024 deep");
    if (jsonl->depth && is_at_text(jsonl)) jsonl->is_other = true;
    jsonl->depth++;
    uint64_t bit = 1ull << jsonl->depth % 64, *word = &jsonl->objects[jsonl->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    jsonl->state = object ? KEY_OR_CLOSE : VALUE_OR_CLOSE;
    jsonl->at++;
    return STEP_ON;
}

static Step close_level(JsonlReader *jsonl) {
    jsonl->depth--;
    if (jsonl->matched > jsonl->depth) jsonl->matched = jsonl->depth;
    jsonl->state = jsonl->depth ? AFTER_VALUE : LINE_END;
    jsonl->at++;
    return STEP_ON;
}

static Step step_value(JsonlReader *jsonl, uint8_t c) {
    if (c == '"') return begin_string(jsonl, false);
    if (c == '{') return open_level(jsonl, true);
    if (c == '[') return open_level(jsonl, false);
    return step_scalar(jsonl);
}

static Step step_after_value(JsonlReader *jsonl, uint8_t c) {
    bool object = in_object(jsonl);
    if (c == (object ? '}' : ']')) return close_level(jsonl);
    if (c != ',')
        return bad_line(jsonl, object ? "expected a comma or } after a value" : "expected a comma or ] after a value");
    jsonl->state = object ? KEY : VALUE;
    jsonl->at++;
    return STEP_ON;
}

static Step step(JsonlReader *jsonl) {
    if (jsonl->state == STRING) return step_string(jsonl);
    if (jsonl->state == SKIPPED_LINE) {
        const uint8_t *from = jsonl->window + jsonl->at, *newline = memchr(from, '\n', jsonl->end - jsonl->at);
        jsonl->at = newline ? (size_t)(newline - jsonl->window) : jsonl->end;
        return newline ? STEP_LINE : STEP_MORE;
    }
    while (jsonl->at < jsonl->end && is_space(jsonl->window[jsonl->at])) jsonl->at++;
    if (jsonl->at == jsonl->end) return STEP_MORE;
    uint8_t c = jsonl->window[jsonl->at];
    if (c == '\n' && (jsonl->state == LINE_START || jsonl->state == LINE_END)) return STEP_LINE;
    if (c == '\n') return bad_line(jsonl, "the line ends within an object");
    switch (jsonl->state) {
    case LINE_START:
        return c == '{' ? open_level(jsonl, true) : bad_line(jsonl, "not a JSON object");
    case KEY_OR_CLOSE:
        if (c == '}') return close_level(jsonl);
        return c == '"' ? begin_string(jsonl, true) : bad_line(jsonl, "expected a key");
    case KEY:
        return c == '"' ? begin_string(jsonl, true) : bad_line(jsonl, "expected a key");
    case COLON:
        if (c != ':') return bad_line(jsonl, "expected a colon after a key");
        jsonl->at++, jsonl->state = VALUE;
        return STEP_ON;
    case VALUE_OR_CLOSE:
        return c == ']' ? close_level(jsonl) : step_value(jsonl, c);
    case VALUE:
        return step_value(jsonl, c);
    case AFTER_VALUE:
        return step_after_value(jsonl, c);
    default:
        return bad_line(jsonl, "text after the object");
    }
}

// Keeps the part of the line that was read.
static void keep_raw(JsonlReader *jsonl) {
    if (jsonl->options->turns && jsonl->state != SKIPPED_LINE)
        buffer_add(&jsonl->raw, jsonl->window + jsonl->raw_at, jsonl->at - jsonl->raw_at);
    jsonl->raw_at = jsonl->at;
}

// Moves the unread bytes to the front of the window and reads more. Adds a missing line end to the last line. 0 when
// the stream has ended, -1 after fail().
static int refill(JsonlReader *jsonl) {
    if (jsonl->ended) return 0;
    bool first = jsonl->line == 1 && jsonl->line_byte == 0 && jsonl->end == 0;
    keep_raw(jsonl);
    jsonl->line_byte += jsonl->at, jsonl->window_at += jsonl->at;
    memmove(jsonl->window, jsonl->window + jsonl->at, jsonl->end - jsonl->at);
    jsonl->end -= jsonl->at, jsonl->at = jsonl->raw_at = 0;
    size_t space = STREAM_WINDOW_BYTES - jsonl->end;
    ssize_t got = stream_read(jsonl->stream, jsonl->window + jsonl->end, space);
    if (got < 0) return -1;
    jsonl->end += (size_t)got;
    jsonl->ended = (size_t)got < space;
    if (jsonl->ended) jsonl->window[jsonl->end++] = '\n';
    if (first)
        jsonl->at = jsonl->raw_at =
            (size_t)(skip_byte_order_mark(jsonl->window, jsonl->window + jsonl->end) - jsonl->window);
    return 1;
}

static const json_t *text_value(const JsonlReader *jsonl, const json_t *value) {
    for (unsigned i = 0; i < jsonl->key_count; i++)
        value = json_object_getn(value, jsonl->keys[i], jsonl->key_bytes[i]);
    return value;
}

// The type of the value at the key of the text; NULL without that key.
static const char *value_type(const JsonlReader *jsonl, const json_t *value) {
    static const char *const types[] = {
        [JSON_OBJECT] = "an object",    [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number",    [JSON_REAL] = "a number",  [JSON_TRUE] = "true or false",
        [JSON_FALSE] = "true or false", [JSON_NULL] = "null",
    };
    value = text_value(jsonl, value);
    return value ? types[json_typeof(value)] : NULL;
}

// The line up to the byte that is read; NULL if that is no object, or more than the window holds.
static json_t *parse_window(const JsonlReader *jsonl) {
    json_error_t error;
    if (jsonl->line_at < jsonl->window_at) return NULL;
    const uint8_t *from = jsonl->window + (jsonl->line_at - jsonl->window_at);
    return json_parse((Bytes){from, (size_t)(jsonl->window + jsonl->at - from)}, JSON_ALLOW_NUL, &error);
}

// Says which key has no text, the type of its value, and which keys there are, as far as the window holds the line.
static void name_keys(const JsonlReader *jsonl, Buffer *out) {
    enum { KEYS_MAX = 12 };
    json_t *object = parse_window(jsonl), *value;
    buffer_print(out, " '%s' (--text-field)", jsonl->options->text_field);
    const char *key;
    unsigned count = 0;
    const char *type = value_type(jsonl, object);
    if (type) buffer_print(out, ", whose value is %s", type);
    json_object_foreach(object, key, value) {
        if (count < KEYS_MAX) buffer_print(out, "%s%s", count ? ", " : "; the line has the keys ", key);
        count++;
    }
    if (count > KEYS_MAX) buffer_print(out, ", ...");
    json_decref(object);
    text_printable((char *)out->data);
}

static void fail_line(JsonlReader *jsonl) {
    unsigned long long line = jsonl->line, byte = jsonl->line_byte + jsonl->at;
    Buffer keys = {0};
    if (jsonl->bad == NO_TEXT || jsonl->bad == NO_TURNS || jsonl->bad == IS_TURNS) name_keys(jsonl, &keys);
    fail(EX_DATA, "'%s' line %llu, byte %llu: %s%s", jsonl->stream->name, line, byte, jsonl->bad,
         keys.size ? (const char *)keys.data : "");
    buffer_close(&keys);
}

static int skip_line(JsonlReader *jsonl) {
    fail_line(jsonl);
    return skips_add(&jsonl->options->skips, jsonl->stream->name, "line", jsonl->line);
}

// Skips the pending lines, as null texts or as bad lines.
static int skip_pending(JsonlReader *jsonl) {
    const uint64_t *lines = (const uint64_t *)(const void *)jsonl->pending.data;
    const size_t count = jsonl->pending.size / sizeof *lines;
    Skips *skips = &jsonl->options->skips;
    int status = 0;
    for (size_t i = 0; status == 0 && i < count; i++) {
        if (!jsonl->has_key && i) fail(EX_DATA, "'%s' line %" PRIu64 ": %s", jsonl->stream->name, lines[i], NO_TEXT);
        if (!jsonl->has_key && !i) err_give(&jsonl->pending_why);
        status = (jsonl->has_key ? skips_add_null : skips_add)(skips, jsonl->stream->name, "line", lines[i]);
    }
    jsonl->pending.size = 0;
    return status;
}

// Skips the line end and resets the state for the next line.
static void begin_line(JsonlReader *jsonl) {
    jsonl->at++, jsonl->line++;
    jsonl->line_byte = 0 - (uint64_t)jsonl->at, jsonl->line_at = jsonl->window_at + jsonl->at;
    jsonl->state = LINE_START, jsonl->depth = jsonl->matched = 0;
    jsonl->found = jsonl->is_null = jsonl->streamed = jsonl->is_other = false;
    jsonl->raw.size = 0, jsonl->raw_at = jsonl->at;
}

// The conversation or the text of a whole line.
static Step read_turns(JsonlReader *jsonl) {
    json_error_t error;
    Buffer repaired = {0};
    keep_raw(jsonl);
    Bytes raw = {jsonl->raw.data, jsonl->raw.size};
    if (jsonl->options->replaces && utf8_valid(raw) < raw.size) {
        jsonl->options->replaced += utf8_replace(raw, &repaired);
        raw = (Bytes){repaired.data, repaired.size};
    }
    json_t *line = json_parse(raw, JSON_ALLOW_NUL, &error);
    buffer_close(&repaired);
    if (!line) {
        snprintf(jsonl->why, sizeof jsonl->why, "%s", error.text);
        return bad_line(jsonl, jsonl->why);
    }
    const json_t *text = text_value(jsonl, line);
    jsonl->text.size = 0;
    const LineContent content = jsonl_turns_read(line, text, &jsonl->text, jsonl->why);
    jsonl->is_null = content == LINE_WITHOUT_TEXT && json_is_null(text);
    jsonl->found = content > LINE_WITHOUT_TEXT;
    json_decref(line);
    if (content == LINE_BAD) return bad_line(jsonl, jsonl->why);
    return jsonl->found || jsonl->is_null ? STEP_LINE : bad_line(jsonl, NO_TURNS);
}

// Whether a line without a text has a conversation, as far as the window holds the line.
static bool is_conversation(const JsonlReader *jsonl) {
    json_t *line = parse_window(jsonl);
    const bool found = json_is_object(json_array_get(json_object_get(line, "messages"), 0)) ||
                       (json_object_get(line, "prompt") && json_object_get(line, "completion"));
    json_decref(line);
    return found;
}

static int skip_null(JsonlReader *jsonl) {
    if (skips_add_null(&jsonl->options->skips, jsonl->stream->name, "line", jsonl->line) < 0) return -1;
    begin_line(jsonl);
    return 0;
}

// A line without the key of the text.
static int skip_keyless(JsonlReader *jsonl) {
    if (jsonl->has_key) return skip_null(jsonl);
    jsonl->bad = NO_TEXT;
    if (!jsonl->pending.size) fail_line(jsonl), err_take(&jsonl->pending_why);
    buffer_add(&jsonl->pending, &jsonl->line, sizeof jsonl->line);
    begin_line(jsonl);
    return jsonl->pending.size < PENDING_MAX * sizeof jsonl->line ? 0 : skip_pending(jsonl);
}

static int return_part(JsonlReader *jsonl, Part *part, bool last) {
    *part = (Part){.text = {jsonl->text.data, jsonl->text.size},
                   .first = !jsonl->streamed,
                   .last = last,
                   .has_place = true,
                   .place = {jsonl->line_at, jsonl->line}};
    jsonl->text.size = 0; // the bytes stay valid until the next call
    jsonl->streamed = !last;
    return 1;
}

int jsonl_next(FormatReader *reader, Part *part) {
    JsonlReader *jsonl = (JsonlReader *)reader;
    for (;;) {
        Step result = step(jsonl);
        if (result == STEP_LINE && jsonl->state == LINE_END && jsonl->options->turns) result = read_turns(jsonl);
        if (result == STEP_LINE && jsonl->state == LINE_END && !jsonl->found && !jsonl->options->turns &&
            is_conversation(jsonl))
            result = bad_line(jsonl, IS_TURNS);
        if (result == STEP_LINE && jsonl->state == LINE_END && (jsonl->found || jsonl->is_null) && !jsonl->has_key) {
            jsonl->has_key = true;
            if (skip_pending(jsonl) < 0) return -1;
        }
        if (result == STEP_LINE && jsonl->state == LINE_END && jsonl->is_null) {
            if (skip_null(jsonl) < 0) return -1;
            continue;
        }
        if (result == STEP_LINE && jsonl->state == LINE_END && !jsonl->found && !jsonl->is_other) {
            if (skip_keyless(jsonl) < 0) return -1;
            continue;
        }
        if (result == STEP_LINE && jsonl->state == LINE_END && !jsonl->found) result = bad_line(jsonl, NO_TEXT);
        if (result == STEP_PART) return return_part(jsonl, part, false);
        if (result == STEP_LINE) {
            bool complete = jsonl->state == LINE_END;
            if (complete) return_part(jsonl, part, true);
            begin_line(jsonl);
            if (complete) return 1;
        } else if (result == STEP_MORE) {
            if (jsonl->at == 0 && jsonl->end == STREAM_WINDOW_BYTES)
                result = bad_line(jsonl, "number longer than the window");
            else if (jsonl->raw.size > TURNS_BYTES_MAX)
                result = bad_line(jsonl, "the line is longer than 256 MiB");
            else {
                int more = refill(jsonl);
                if (more == 0) return skip_pending(jsonl);
                if (more < 0) return -1;
            }
        }
        if (result == STEP_BAD) {
            if (skip_line(jsonl) < 0) return -1;
            jsonl->state = SKIPPED_LINE;
            if (jsonl->streamed) { // a part was returned: its document ends
                jsonl->text.size = 0;
                return return_part(jsonl, part, true);
            }
        }
    }
}
