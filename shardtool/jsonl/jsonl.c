// JSON lines: the text of each, which is one string of an object, at a path of keys, or a conversation. Of two equal
// keys the last wins.
#include "common/err.h"
#include "common/json_read.h"
#include "common/log.h"
#include "common/utf8.h"
#include "shardtool/ingest/input_format.h"
#include "shardtool/jsonl/jsonl_scan.h"
#include "shardtool/jsonl/jsonl_turns.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    PATH_KEYS_MAX = 16,
    PENDING_MAX = 4096 // lines without the key before the first with it
};

static const char NO_TEXT[] = "no text at the key";
static const char NO_TURNS[] = "no messages, no prompt with a completion, and no text at the key";
static const char IS_TURNS[] = "a conversation, which only tokenize --turns reads (train-vocabulary: --text-field '*' "
                               "takes all its strings), and no text at the key";

typedef struct {
    const char *keys[PATH_KEYS_MAX];
    size_t key_bytes[PATH_KEYS_MAX];
    unsigned count;
} TextPath;

// What was found in the line so far.
typedef struct {
    unsigned matched; // number of path keys on the current nesting
    bool found;       // the text
    bool is_null;     // the text
    bool is_other;    // the key of the text has a value that is neither a string nor null
    bool streamed;    // a part of the text was returned
} LineText;

typedef struct {
    FormatReader reader;
    SourceOptions *options;
    JsonlScan scan;
    TextPath path;
    bool joins; // all strings of the line, for the path *
    LineText line;
    Buffer text;
    char why[TURNS_WHY_BYTES];
    // Spark and DataFusion leave out a key whose value is null. A line without the key is thus a null text if another
    // line of the file has the key, and waits until one has.
    bool has_key;
    Buffer pending;    // uint64_t, their numbers
    Error pending_why; // of the first
} JsonlReader;

static int split_path(JsonlReader *jsonl, const char *path) {
    if ((jsonl->joins = !strcmp(path, "*"))) return 0;
    for (const char *at = path;; at++) {
        size_t length = strcspn(at, ".");
        if (jsonl->path.count == PATH_KEYS_MAX || length == 0)
            return fail(EX_USAGE, "--text-field '%s' is not a path of 1 to %d keys", path, PATH_KEYS_MAX);
        jsonl->path.keys[jsonl->path.count] = at;
        jsonl->path.key_bytes[jsonl->path.count++] = length;
        at += length;
        if (!*at) return 0;
    }
}

void jsonl_close(FormatReader *reader) {
    JsonlReader *jsonl = (JsonlReader *)reader;
    jsonl_scan_close(&jsonl->scan);
    buffer_close(&jsonl->text);
    buffer_close(&jsonl->pending);
    free(jsonl);
}

FormatReader *jsonl_open(Stream *stream, SourceOptions *options) {
    if (refuse_conditions(stream, options) < 0) return NULL;
    JsonlReader *jsonl = allocate_zeroed(1, sizeof *jsonl);
    jsonl->options = options;
    jsonl->has_key = stream->start.byte; // a document lies before
    if (jsonl_scan_open(&jsonl->scan, stream, options->turns) == 0 && split_path(jsonl, options->text_field) == 0)
        return &jsonl->reader;
    jsonl_close(&jsonl->reader);
    return NULL;
}

static const json_t *text_value(const JsonlReader *jsonl, const json_t *value) {
    for (unsigned i = 0; i < jsonl->path.count; i++)
        value = json_object_getn(value, jsonl->path.keys[i], jsonl->path.key_bytes[i]);
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

// The line up to the byte that is read; NULL if that is not an object, or more than the window holds.
static json_t *parse_window(const JsonlReader *jsonl) {
    json_error_t error;
    const Bytes line = jsonl_scan_line(&jsonl->scan);
    return line.data ? json_parse(line, JSON_ALLOW_NUL, &error) : NULL;
}

// Prints which key has no text, the type of its value, and which keys there are, as far as the window holds the line.
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

static void fail_line(const JsonlReader *jsonl, const char *why) {
    const JsonlWindow *window = &jsonl->scan.window;
    const uint64_t byte = window->start - window->line_at + window->at;
    Buffer keys = {0};
    if (why == NO_TEXT || why == NO_TURNS || why == IS_TURNS) name_keys(jsonl, &keys);
    fail(EX_DATA, "'%s' line %" PRIu64 ", byte %" PRIu64 ": %s%s", window->stream->name, window->line, byte, why,
         keys.size ? (const char *)keys.data : "");
    buffer_close(&keys);
}

// Skips the pending lines, as null texts or as bad lines.
static int skip_pending(JsonlReader *jsonl) {
    const uint64_t *lines = (const uint64_t *)(const void *)jsonl->pending.data;
    const size_t count = jsonl->pending.size / sizeof *lines;
    const char *name = jsonl->scan.window.stream->name;
    int status = 0;
    for (size_t i = 0; status == 0 && i < count; i++) {
        if (!jsonl->has_key && i) fail(EX_DATA, "'%s' line %" PRIu64 ": %s", name, lines[i], NO_TEXT);
        if (!jsonl->has_key && !i) err_give(&jsonl->pending_why);
        status = (jsonl->has_key ? skips_add_null : skips_add)(&jsonl->options->skips, name, "line", lines[i]);
    }
    jsonl->pending.size = 0;
    return status;
}

static void begin_line(JsonlReader *jsonl) {
    jsonl_scan_begin_line(&jsonl->scan);
    jsonl->line = (LineText){0};
}

static int skip_null(JsonlReader *jsonl) {
    const JsonlWindow *window = &jsonl->scan.window;
    if (skips_add_null(&jsonl->options->skips, window->stream->name, "line", window->line) < 0) return -1;
    begin_line(jsonl);
    return 0;
}

// A line without the key of the text.
static int skip_keyless(JsonlReader *jsonl) {
    if (jsonl->has_key) return skip_null(jsonl);
    if (!jsonl->pending.size) fail_line(jsonl, NO_TEXT), err_take(&jsonl->pending_why);
    buffer_add(&jsonl->pending, &jsonl->scan.window.line, sizeof jsonl->scan.window.line);
    begin_line(jsonl);
    return jsonl->pending.size < PENDING_MAX * sizeof jsonl->scan.window.line ? 0 : skip_pending(jsonl);
}

static int return_part(JsonlReader *jsonl, Part *part, bool last) {
    *part = (Part){.text = {jsonl->text.data, jsonl->text.size},
                   .first = !jsonl->line.streamed,
                   .last = last,
                   .has_place = true,
                   .place = {jsonl->scan.window.line_at, jsonl->scan.window.line}};
    jsonl->text.size = 0; // the bytes stay valid until the next call
    jsonl->line.streamed = !last;
    return 1;
}

// Skips a bad line. 1 when its document had begun, which ends.
static int refuse_line(JsonlReader *jsonl, const char *why, Part *part) {
    const JsonlWindow *window = &jsonl->scan.window;
    fail_line(jsonl, why);
    if (skips_add(&jsonl->options->skips, window->stream->name, "line", window->line) < 0) return -1;
    jsonl_scan_skip(&jsonl->scan);
    if (!jsonl->line.streamed) return 0;
    jsonl->text.size = 0;
    return return_part(jsonl, part, true);
}

// Whether the value of the key just read is on the path of the text, or the text. If two keys are equal, the last wins,
// so the value of an earlier one is dropped; false if that was returned.
static bool match_key(JsonlReader *jsonl) {
    LineText *line = &jsonl->line;
    const unsigned level = jsonl->scan.depth - 1;
    const Buffer *key = &jsonl->scan.key;
    if (line->matched > level) line->matched = level;
    if (line->matched != level || level >= jsonl->path.count || key->size != jsonl->path.key_bytes[level] ||
        memcmp(key->data, jsonl->path.keys[level], key->size))
        return true;
    line->matched++;
    line->found = line->is_null = false;
    return !line->streamed;
}

// Whether a value whose key is at `depth` belongs to the last key of the path.
static bool is_text(const JsonlReader *jsonl, unsigned depth) {
    return jsonl->line.matched == jsonl->path.count && depth == jsonl->path.count && depth && !jsonl->options->turns;
}

static void begin_string(JsonlReader *jsonl) {
    jsonl->scan.capture = jsonl->joins || is_text(jsonl, jsonl->scan.depth) ? &jsonl->text : NULL;
    if (!jsonl->scan.capture) return;
    if (jsonl->joins && jsonl->line.found)
        buffer_add(&jsonl->text, " ", 1);
    else
        jsonl->text.size = 0;
    jsonl->line.found = true;
}

// The conversation or the text of a whole line. NULL, or why the line is bad.
static const char *read_turns(JsonlReader *jsonl) {
    json_error_t error;
    Buffer repaired = {0};
    Bytes raw = jsonl_scan_whole_line(&jsonl->scan);
    if (jsonl->options->replaces && utf8_valid(raw) < raw.size) {
        jsonl->options->replaced += utf8_replace(raw, &repaired);
        raw = (Bytes){repaired.data, repaired.size};
    }
    json_t *line = json_parse(raw, JSON_ALLOW_NUL, &error);
    buffer_close(&repaired);
    if (!line) {
        snprintf(jsonl->why, sizeof jsonl->why, "%s", error.text);
        return jsonl->why;
    }
    const json_t *text = text_value(jsonl, line);
    jsonl->text.size = 0;
    const LineContent content = jsonl_turns_read(line, text, &jsonl->text, jsonl->why);
    jsonl->line.is_null = content == LINE_WITHOUT_TEXT && json_is_null(text);
    jsonl->line.found = content > LINE_WITHOUT_TEXT;
    json_decref(line);
    if (content == LINE_BAD) return jsonl->why;
    return jsonl->line.found || jsonl->line.is_null ? NULL : NO_TURNS;
}

// Whether a line without a text has a conversation, as far as the window holds the line.
static bool is_conversation(const JsonlReader *jsonl) {
    json_t *line = parse_window(jsonl);
    const bool found = json_is_object(json_array_get(json_object_get(line, "messages"), 0)) ||
                       (json_object_get(line, "prompt") && json_object_get(line, "completion"));
    json_decref(line);
    return found;
}

// 1 with the last part of a document, 0 without one, -1 after fail().
static int end_line(JsonlReader *jsonl, Part *part) {
    const LineText *line = &jsonl->line;
    const char *why = NULL;
    if (jsonl->options->turns)
        why = read_turns(jsonl);
    else if (!line->found && is_conversation(jsonl))
        why = IS_TURNS;
    if (why) return refuse_line(jsonl, why, part);
    if ((line->found || line->is_null) && !jsonl->has_key) {
        jsonl->has_key = true;
        if (skip_pending(jsonl) < 0) return -1;
    }
    if (line->is_null) return skip_null(jsonl);
    if (!line->found) return line->is_other ? refuse_line(jsonl, NO_TEXT, part) : skip_keyless(jsonl);
    return_part(jsonl, part, true);
    begin_line(jsonl);
    return 1;
}

int jsonl_next(FormatReader *reader, Part *part) {
    JsonlReader *jsonl = (JsonlReader *)reader;
    JsonlScan *scan = &jsonl->scan;
    for (;;) {
        int status = 0;
        const ScanEvent event = jsonl_scan_next(scan);
        if (event == SCAN_KEY && !match_key(jsonl))
            status = refuse_line(jsonl, "duplicate key of the text, after a text too long to hold", part);
        else if (event == SCAN_STRING)
            begin_string(jsonl);
        else if (event == SCAN_SCALAR && is_text(jsonl, scan->depth))
            jsonl->line.is_null = scan->scalar == 'n', jsonl->line.is_other = scan->scalar != 'n';
        else if (event == SCAN_OPEN && is_text(jsonl, scan->depth - 1))
            jsonl->line.is_other = true;
        else if (event == SCAN_PART)
            status = return_part(jsonl, part, false);
        else if (event == SCAN_LINE)
            status = end_line(jsonl, part);
        else if (event == SCAN_GAP)
            begin_line(jsonl);
        else if (event == SCAN_BAD)
            status = refuse_line(jsonl, scan->bad, part);
        else if (event == SCAN_MORE) {
            const int more = jsonl_scan_refill(scan);
            if (more <= 0) return more < 0 ? -1 : skip_pending(jsonl);
        }
        if (status) return status;
    }
}
