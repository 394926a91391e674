// JSON lines: the text of each, which is one string of an object, at a path of keys, or a conversation. Of two equal
// keys the last wins.
#include "common/err.h"
#include "common/json_read.h"
#include "common/log.h"
#include "common/utf8.h"
#include "shardtool/conversation/conversation.h"
#include "shardtool/ingest/input_format.h"
#include "shardtool/jsonl/jsonl_items.h"
#include "shardtool/jsonl/jsonl_keep.h"
#include "shardtool/jsonl/jsonl_where.h"
#include <inttypes.h>
#include <stdlib.h>

enum {
    PENDING_MAX = 4096,         // lines without the key before the first with it
    WHOLE_BYTES_MAX = 256 << 20 // of a line that is held as a whole; a longer one is refused
};

static const char NO_TEXT[] = "no text at the key";
static const char IS_TURNS[] = "a conversation, which only tokenize --turns reads (train-vocabulary: --text-field '*' "
                               "takes all its strings), and no text at the key";

// What was found in the line so far.
typedef struct {
    bool found;    // the text
    bool is_null;  // the text
    bool is_other; // the key of the text has a value that is neither a string nor null
    bool streamed; // a part of the text was returned
    bool refused;  // the rest of the line is skipped
} LineText;

typedef struct {
    FormatReader reader;
    SourceOptions *options;
    Stream *stream;
    JsonEvents json;
    uint64_t start;           // offset in the stream of window[0]
    uint64_t number, line_at; // of the line, from 1; its offset in the stream
    bool whole;               // the text is returned when the line is whole: with turns, items, conditions or kept keys
    bool items;               // lines may be items of a grade; other lines are joined
    KeyPath path;
    bool joins; // all strings of the line, for the path *
    LineText line;
    Buffer text;
    JsonlWhere where;
    JsonlKeep keep;
    char why[WHERE_WHY_BYTES]; // also for CONVERSATION_WHY_BYTES and KEEP_WHY_BYTES
    // Spark and DataFusion leave out a key whose value is null. A line without the key is thus a null text if another
    // line of the file has the key, and waits until one has.
    bool has_key;
    Buffer pending;                          // uint64_t, their numbers
    Error pending_why;                       // of the first
    JsonTree tree;                           // with turns or items: the line
    uint8_t window[STREAM_WINDOW_BYTES + 1]; // and a line end after the last line
} JsonlReader;

// A JSON line starts with a brace and a key, or is {}.
int jsonl_bid(Bytes head) {
    Bytes rest = bytes_trimmed(utf8_unmarked(head));
    if (!rest.size || *rest.data != '{') return BID_NONE;
    const uint8_t *end = rest.data + rest.size, *at = rest.data + 1;
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r')) at++;
    return at < end && (*at == '"' || *at == '}') ? BID_CONTENT : BID_NONE;
}

void jsonl_close(FormatReader *reader) {
    JsonlReader *jsonl = (JsonlReader *)reader;
    json_events_close(&jsonl->json);
    json_tree_close(&jsonl->tree);
    jsonl_where_close(&jsonl->where);
    jsonl_keep_close(&jsonl->keep);
    buffer_close(&jsonl->text);
    buffer_close(&jsonl->pending);
    free(jsonl);
}

FormatReader *jsonl_open(Stream *stream, SourceOptions *options) {
    JsonlReader *jsonl = allocate_zeroed(1, sizeof *jsonl);
    const ReadPlace start = stream->start;
    jsonl->options = options, jsonl->stream = stream;
    jsonl->json = (JsonEvents){.bytes = jsonl->window, .lines = true, .arrays = options->turns};
    jsonl->start = jsonl->line_at = start.byte, jsonl->number = start.byte ? start.number : 1;
    jsonl->has_key = start.byte; // a document lies before
    jsonl->joins = !strcmp(options->text_field, "*");
    jsonl->items = options->items && jsonl->joins && !options->turns;
    jsonl->whole = options->turns || jsonl->items || options->where.count || options->keep.count;
    int status = jsonl_where_open(&jsonl->where, &options->where);
    if (status == 0) status = jsonl_keep_open(&jsonl->keep, &options->keep);
    if (!key_path_open(&jsonl->path, options->text_field))
        status = fail(EX_USAGE, "--text-field '%s' is not a path of 1 to %d keys", options->text_field, PATH_KEYS_MAX);
    if (status == 0 && start.byte) status = stream_seek(stream, start.byte);
    if (status == 0) return &jsonl->reader;
    jsonl_close(&jsonl->reader);
    return NULL;
}

// Moves the unread bytes to the front of the window and reads more. Adds a missing line end to the last line. 0 when
// the stream has ended, -1 after fail().
static int refill(JsonlReader *jsonl) {
    JsonEvents *json = &jsonl->json;
    if (json->ended) return 0;
    const bool first = jsonl->start == 0 && json->end == 0;
    jsonl->start += json->at;
    memmove(jsonl->window, jsonl->window + json->at, json->end - json->at);
    json->end -= json->at, json->at = 0;
    const size_t space = STREAM_WINDOW_BYTES - json->end;
    const ssize_t got = stream_read(jsonl->stream, jsonl->window + json->end, space);
    if (got < 0) return -1;
    json->end += (size_t)got;
    json->ended = (size_t)got < space;
    if (json->ended) jsonl->window[json->end++] = '\n';
    if (first) json->at = json->end - utf8_unmarked((Bytes){jsonl->window, json->end}).size;
    return 1;
}

// The type of the value at the key of the text; NULL without that key.
static const char *value_type(const JsonlReader *jsonl, const json_t *value) {
    static const char *const types[] = {
        [JSON_OBJECT] = "an object",    [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number",    [JSON_REAL] = "a number",  [JSON_TRUE] = "true or false",
        [JSON_FALSE] = "true or false", [JSON_NULL] = "null",
    };
    value = key_path_value(&jsonl->path, value);
    return value ? types[json_typeof(value)] : NULL;
}

// The line up to the byte that is read; NULL if that is not an object, or more than the window holds.
static json_t *parse_window(const JsonlReader *jsonl) {
    json_error_t error;
    if (jsonl->line_at < jsonl->start) return NULL;
    const size_t at = (size_t)(jsonl->line_at - jsonl->start);
    const Bytes line = {jsonl->window + at, jsonl->json.at - at};
    return json_parse(jsonl->line_at ? line : utf8_unmarked(line), JSON_ANY_TEXT, &error);
}

// Prints which key has no text, the type of its value, and which keys there are, as far as the window holds the line.
static void name_keys(const JsonlReader *jsonl, Buffer *out) {
    json_t *object = parse_window(jsonl);
    buffer_print(out, " '%s' (--text-field)", jsonl->options->text_field);
    const char *type = value_type(jsonl, object);
    if (type) buffer_print(out, ", whose value is %s", type);
    conversation_print_keys(object, "the line has the keys", jsonl->options, out);
    json_decref(object);
}

static void fail_line(const JsonlReader *jsonl, const char *why) {
    const uint64_t byte = jsonl->start - jsonl->line_at + jsonl->json.at;
    Buffer keys = {0};
    if (why == NO_TEXT || why == IS_TURNS || why == conversation_missing(jsonl->options)) name_keys(jsonl, &keys);
    fail(EX_DATA, "'%s' line %" PRIu64 ", byte %" PRIu64 ": %s%s", jsonl->stream->name, jsonl->number, byte, why,
         keys.size ? (const char *)keys.data : "");
    buffer_close(&keys);
}

// Skips the pending lines, as null texts or as bad lines.
static int skip_pending(JsonlReader *jsonl) {
    const uint64_t *lines = (const uint64_t *)(const void *)jsonl->pending.data;
    const size_t count = jsonl->pending.size / sizeof *lines;
    const char *name = jsonl->stream->name;
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
    json_events_begin_line(&jsonl->json);
    json_tree_clear(&jsonl->tree);
    jsonl->line = (LineText){0};
    key_path_begin(&jsonl->path);
    jsonl_where_begin(&jsonl->where);
    jsonl_keep_begin(&jsonl->keep);
    jsonl->number++, jsonl->line_at = jsonl->start + jsonl->json.at;
}

static int skip_null(JsonlReader *jsonl) {
    if (skips_add_null(&jsonl->options->skips, jsonl->stream->name, "line", jsonl->number) < 0) return -1;
    begin_line(jsonl);
    return 0;
}

// A line without the key of the text.
static int skip_keyless(JsonlReader *jsonl) {
    if (jsonl->has_key) return skip_null(jsonl);
    if (!jsonl->pending.size) fail_line(jsonl, NO_TEXT), err_take(&jsonl->pending_why);
    buffer_add(&jsonl->pending, &jsonl->number, sizeof jsonl->number);
    begin_line(jsonl);
    return jsonl->pending.size < PENDING_MAX * sizeof jsonl->number ? 0 : skip_pending(jsonl);
}

static int return_part(JsonlReader *jsonl, Part *part, bool last) {
    *part = (Part){.text = {jsonl->text.data, jsonl->text.size},
                   .first = !jsonl->line.streamed,
                   .last = last,
                   .has_place = true,
                   .place = {jsonl->line_at, jsonl->number},
                   .line = jsonl->number,
                   .kept = {jsonl->keep.row.data, jsonl->keep.row.size}};
    jsonl->text.size = 0; // the bytes stay valid until the next call
    jsonl->line.streamed = !last;
    return 1;
}

// Skips a bad line. 1 when its document had begun, which ends.
static int refuse_line(JsonlReader *jsonl, const char *why, Part *part) {
    fail_line(jsonl, why);
    if (skips_add(&jsonl->options->skips, jsonl->stream->name, "line", jsonl->number) < 0) return -1;
    json_events_skip_line(&jsonl->json);
    json_tree_clear(&jsonl->tree);
    jsonl->line.refused = true;
    if (!jsonl->line.streamed) return 0;
    jsonl->text.size = 0;
    return return_part(jsonl, part, true);
}

// If two keys are equal, the last wins, so the value of an earlier one is dropped; false if that was returned.
static bool match_key(JsonlReader *jsonl) {
    if (jsonl->joins || !key_path_enter(&jsonl->path, &jsonl->json)) return true;
    jsonl->line.found = jsonl->line.is_null = false;
    return !jsonl->line.streamed;
}

// Whether a value whose key is at `depth` is the text.
static bool is_text(const JsonlReader *jsonl, unsigned depth) {
    return !jsonl->joins && key_path_ends(&jsonl->path, depth);
}

// A string of the line becomes the text, or is added to it.
static void begin_text(JsonlReader *jsonl) {
    if (jsonl->joins && jsonl->line.found)
        buffer_add(&jsonl->text, " ", 1);
    else
        jsonl->text.size = 0;
    jsonl->line.found = true;
}

static void begin_string(JsonlReader *jsonl) {
    jsonl->json.capture = jsonl->joins || is_text(jsonl, jsonl->json.depth) ? &jsonl->text : NULL;
    if (jsonl->json.capture) begin_text(jsonl);
}

// Joins the strings of a line that may be an item, which the tree holds.
static void take_string(JsonlReader *jsonl) {
    begin_text(jsonl);
    buffer_add(&jsonl->text, jsonl->tree.text.data, jsonl->tree.text.size);
}

// The conversation or the text of a whole line. NULL, or why the line is bad.
static const char *read_turns(JsonlReader *jsonl) {
    const json_t *text = key_path_value(&jsonl->path, jsonl->tree.root);
    jsonl->text.size = 0;
    const LineContent content = conversation_read(jsonl->tree.root, text, jsonl->options, &jsonl->text, jsonl->why);
    if (content == LINE_BAD) return jsonl->why;
    jsonl->line.is_null = content == LINE_WITHOUT_TEXT && json_is_null(text);
    jsonl->line.found = content > LINE_WITHOUT_TEXT;
    return jsonl->line.found || jsonl->line.is_null ? NULL : conversation_missing(jsonl->options);
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
    const char *why;
    const bool met = jsonl_where_met(&jsonl->where, jsonl->why, &why);
    if (met && !why && jsonl->options->turns)
        why = read_turns(jsonl);
    else if (met && !why && jsonl->items && jsonl_items_read(jsonl->tree.root, &jsonl->text, &why))
        jsonl->line.found = true;
    else if (met && !why && !line->found && is_conversation(jsonl))
        why = IS_TURNS;
    if (met && !why) why = jsonl_keep_end(&jsonl->keep, jsonl->options, jsonl->why);
    if (why) return refuse_line(jsonl, why, part);
    if ((line->found || line->is_null) && !jsonl->has_key) {
        jsonl->has_key = true;
        if (skip_pending(jsonl) < 0) return -1;
    }
    if (!met) {
        jsonl->options->left_out++;
        begin_line(jsonl);
        return 0;
    }
    if (line->is_null) return skip_null(jsonl);
    if (!line->found) return line->is_other ? refuse_line(jsonl, NO_TEXT, part) : skip_keyless(jsonl);
    return_part(jsonl, part, true);
    begin_line(jsonl);
    return 1;
}

// An event within a line, of which the text is read.
static int take_event(JsonlReader *jsonl, JsonEvent event, Part *part) {
    const JsonEvents *json = &jsonl->json;
    if (event == EVENT_KEY && !match_key(jsonl))
        return refuse_line(jsonl, "duplicate key of the text, after a text too long to hold", part);
    if (event == EVENT_STRING)
        begin_string(jsonl);
    else if (event == EVENT_SCALAR && is_text(jsonl, json->depth))
        jsonl->line.is_null = *json->scalar.data == 'n', jsonl->line.is_other = !jsonl->line.is_null;
    else if (event == EVENT_OPEN && is_text(jsonl, json->depth - 1))
        jsonl->line.is_other = true;
    return event == EVENT_PART ? return_part(jsonl, part, false) : 0;
}

// Why the line is not read further, or NULL.
static const char *too_long(const JsonlReader *jsonl) {
    const JsonEvents *json = &jsonl->json;
    if (json->at == 0 && json->end == STREAM_WINDOW_BYTES) return "number longer than the window";
    if (!jsonl->whole || jsonl->line.refused) return NULL;
    return jsonl->start + json->at - jsonl->line_at > WHOLE_BYTES_MAX ? "the line is longer than 256 MiB" : NULL;
}

int jsonl_next(FormatReader *reader, Part *part) {
    JsonlReader *jsonl = (JsonlReader *)reader;
    const bool turns = jsonl->options->turns;
    for (;;) {
        int status = 0;
        const JsonEvent event = json_events_next(&jsonl->json);
        if (event == EVENT_LINE)
            status = end_line(jsonl, part);
        else if (event == EVENT_GAP)
            begin_line(jsonl);
        else if (event == EVENT_BAD)
            status = refuse_line(jsonl, jsonl->json.bad, part);
        else if (event == EVENT_MORE || (jsonl->whole && event == EVENT_PART)) {
            const char *why = too_long(jsonl);
            const int more = why ? 1 : refill(jsonl);
            if (more <= 0) return more < 0 ? -1 : skip_pending(jsonl);
            if (why) status = refuse_line(jsonl, why, part);
        } else {
            if (turns || jsonl->items) json_tree_add(&jsonl->tree, &jsonl->json, event);
            if (jsonl->items && event == EVENT_TEXT)
                take_string(jsonl);
            else if (!turns && !jsonl->items)
                status = take_event(jsonl, event, part);
            if (jsonl->where.list.count) jsonl_where_take(&jsonl->where, &jsonl->json, event);
            if (jsonl->options->keep.count) jsonl_keep_take(&jsonl->keep, &jsonl->json, event);
        }
        if (status) return status;
    }
}
