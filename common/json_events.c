// The grammar of JSON as a machine of states, which holds only a window of the text.
#include "common/json_events.h"
#include "common/json_scan.h"
#include "common/utf8.h"

enum {
    PART_BYTES = 1 << 20, // a longer string is captured in parts
    ESCAPE_BYTES_MAX = 12 // two \uXXXX
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
} JsonState;

static bool is_space(const JsonEvents *json, uint8_t c) {
    return c == ' ' || c == '\t' || c == '\r' || (c == '\n' && !json->lines);
}

static JsonEvent refuse(JsonEvents *json, const char *why) {
    json->bad = why;
    return EVENT_BAD;
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

static void capture(JsonEvents *json, const void *data, size_t size) {
    if (!json->capture || (json->is_key && json->key.size > JSON_KEY_BYTES_MAX)) return;
    buffer_add(json->capture, data, size);
}

static void capture_character(JsonEvents *json, uint32_t point) {
    uint8_t bytes[UTF8_BYTES_MAX];
    capture(json, bytes, utf8_encode(point, bytes));
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

static JsonEvent step_escape(JsonEvents *json) {
    const uint8_t *at = json->bytes + json->at, *end = json->bytes + json->end;
    if (end - at < ESCAPE_BYTES_MAX && !json->ended) return EVENT_MORE;
    if (end - at < 2) return refuse(json, "the line ends in a string");
    if (short_escapes[at[1]]) {
        capture(json, &short_escapes[at[1]], 1);
        json->at += 2;
        return EVENT_ON;
    }
    int c = at[1] == 'u' ? hex4(at + 2, end) : -1;
    if (c < 0) return refuse(json, "bad escape in a string");
    json->at += 6;
    bool high = c >= 0xD800 && c < 0xDC00, low = c >= 0xDC00 && c < 0xE000;
    if (high && end - at >= 12 && at[6] == '\\' && at[7] == 'u') {
        int next = hex4(at + 8, end);
        if (next >= 0xDC00 && next < 0xE000) {
            capture_character(json, 0x10000 + (((uint32_t)c & 0x3FF) << 10 | ((uint32_t)next & 0x3FF)));
            json->at += 6;
            return EVENT_ON;
        }
    }
    capture_character(json, high || low ? 0xFFFD : (uint32_t)c);
    return EVENT_ON;
}

static JsonEvent end_string(JsonEvents *json) {
    json->at++;
    json->state = json->is_key ? COLON : AFTER_VALUE;
    return json->is_key ? EVENT_KEY : json->capture ? EVENT_TEXT : EVENT_ON;
}

static JsonEvent step_string(JsonEvents *json) {
    const uint8_t *at = json->bytes + json->at, *end = json->bytes + json->end;
    Buffer *value = json->is_key ? NULL : json->capture;
    const uint8_t *special = value ? copy_string(value, at, end) : find_special(at, end);
    if (!value) capture(json, at, (size_t)(special - at));
    json->at += (size_t)(special - at);
    if (special == end) return value && value->size >= PART_BYTES ? EVENT_PART : EVENT_MORE;
    if (*special == '"') return end_string(json);
    if (*special == '\\') return step_escape(json);
    return refuse(json, *special == '\n' ? "the line ends in a string" : "control character in a string");
}

static JsonEvent begin_key(JsonEvents *json) {
    json->at++;
    json->state = STRING, json->is_key = true;
    json->capture = &json->key, json->key.size = 0;
    return EVENT_ON;
}

static JsonEvent begin_string(JsonEvents *json) {
    json->at++;
    json->state = STRING, json->is_key = false;
    return EVENT_STRING;
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
static JsonEvent step_scalar(JsonEvents *json) {
    const uint8_t *begin = json->bytes + json->at, *end = json->bytes + json->end, *at = begin;
    while (at < end && ((*at >= '0' && *at <= '9') || ((*at | 32) >= 'a' && (*at | 32) <= 'z') || *at == '-' ||
                        *at == '+' || *at == '.'))
        at++;
    if (at == end && !json->ended) return EVENT_MORE;
    if (!is_word(begin, (size_t)(at - begin)) && !is_number(begin, at)) return refuse(json, "expected a JSON value");
    json->at += (size_t)(at - begin);
    json->state = AFTER_VALUE, json->scalar = (Bytes){begin, (size_t)(at - begin)};
    return EVENT_SCALAR;
}

bool json_events_in_object(const JsonEvents *json) { return json->objects[json->depth / 64] >> json->depth % 64 & 1; }

static JsonEvent open_level(JsonEvents *json, bool object) {
    if (json->depth == JSON_DEPTH_MAX) return refuse(json, "nested more than 1024 deep");
    json->depth++;
    uint64_t bit = 1ull << json->depth % 64, *word = &json->objects[json->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    json->state = object ? KEY_OR_CLOSE : VALUE_OR_CLOSE;
    json->at++;
    return EVENT_OPEN;
}

static JsonEvent close_level(JsonEvents *json) {
    assert(json->depth);
    json->depth--;
    json->state = json->depth ? AFTER_VALUE : LINE_END;
    json->at++;
    return EVENT_CLOSE;
}

static JsonEvent step_value(JsonEvents *json, uint8_t c) {
    if (c == '"') return begin_string(json);
    if (c == '{') return open_level(json, true);
    if (c == '[') return open_level(json, false);
    return step_scalar(json);
}

static JsonEvent step_after_value(JsonEvents *json, uint8_t c) {
    bool object = json_events_in_object(json);
    if (c == (object ? '}' : ']')) return close_level(json);
    if (c != ',')
        return refuse(json, object ? "expected a comma or } after a value" : "expected a comma or ] after a value");
    json->state = object ? KEY : VALUE;
    json->at++;
    return EVENT_ON;
}

static JsonEvent skip_to_line_end(JsonEvents *json) {
    const uint8_t *from = json->bytes + json->at, *newline = memchr(from, '\n', json->end - json->at);
    json->at = newline ? (size_t)(newline - json->bytes) : json->end;
    return newline ? EVENT_GAP : EVENT_MORE;
}

static JsonEvent step(JsonEvents *json) {
    if (json->state == STRING) return step_string(json);
    if (json->state == SKIPPED_LINE) return skip_to_line_end(json);
    while (json->at < json->end && is_space(json, json->bytes[json->at])) json->at++;
    if (json->at == json->end) return EVENT_MORE;
    uint8_t c = json->bytes[json->at];
    if (c == '\n' && json->state == LINE_START) return EVENT_GAP;
    if (c == '\n') return json->state == LINE_END ? EVENT_LINE : refuse(json, "the line ends within an object");
    switch ((JsonState)json->state) {
    case LINE_START:
        if (c == '[' && (!json->lines || json->arrays)) return open_level(json, false);
        return c == '{' ? open_level(json, true) : refuse(json, "not a JSON object");
    case KEY_OR_CLOSE:
        if (c == '}') return close_level(json);
        return c == '"' ? begin_key(json) : refuse(json, "expected a key");
    case KEY:
        return c == '"' ? begin_key(json) : refuse(json, "expected a key");
    case COLON:
        if (c != ':') return refuse(json, "expected a colon after a key");
        json->at++, json->state = VALUE;
        return EVENT_ON;
    case VALUE_OR_CLOSE:
        return c == ']' ? close_level(json) : step_value(json, c);
    case VALUE:
        return step_value(json, c);
    case AFTER_VALUE:
        return step_after_value(json, c);
    default:
        return refuse(json, "text after the object");
    }
}

JsonEvent json_events_next(JsonEvents *json) {
    JsonEvent event;
    while ((event = step(json)) == EVENT_ON) {
    }
    assert(json->at <= json->end);
    return event;
}

void json_events_skip_line(JsonEvents *json) { json->state = SKIPPED_LINE; }

void json_events_begin_line(JsonEvents *json) {
    assert(json->at < json->end && json->bytes[json->at] == '\n');
    json->at++;
    json->state = LINE_START, json->depth = 0;
}

bool json_events_ended(const JsonEvents *json) { return json->state == LINE_END; }

void json_events_close(JsonEvents *json) { buffer_close(&json->key); }
