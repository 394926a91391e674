// Reading metrics.jsonl without trust.
#include "trainer/audit/record.h"
#include "common/err.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// {kind, first member, members whose number is not compared, the others}; NULL: the comparison finds the others.
static const struct {
    LineKind kind;
    const char *first, *free, *others; // lists of words that each end with a space
} kinds[] = {
    {LINE_STEP, "loss", "ms tok_s product_share wait sent ", NULL},
    {LINE_EVALUATION, "val_loss", "", NULL},
    {LINE_SPIKE, "spike", "", NULL},
    {LINE_DATASET, "dataset", "", NULL},
    {LINE_PASSED, "passed_from", "", NULL},
    {LINE_PROCESS, "arena_bytes", "arena_bytes world answer_share bits ", "version data loader machine config "},
    {LINE_ROLLED_BACK, "rolled_back_from", "rolled_back_from ", "nonfinite skip_from skip_to "},
    {LINE_COOLDOWN, "cooldown_begun", "cooldown_begun cooldown_steps cooldown_done end_s ", "at_once "},
    {LINE_NOTE, "until", "until_at ", "until "},
    {LINE_NOTE, "evaluate_s", "evaluate_s evaluate_step_s ", ""},
    {LINE_NOTE, "saved_step", "saved_step save_ms ", ""},
    {LINE_NOTE, "save_wait_ms", "save_wait_ms ", ""},
    {LINE_NOTE, "lost_steps", "lost_steps ", ""},
    {LINE_NOTE, "step_time_ratio", "step_time_ratio ", ""},
    {LINE_NOTE, "processor_lost", "processor_lost ", ""},
    {LINE_NOTE, "gpu_used_bytes", "gpu_used_bytes gpu_free_bytes gpu_busy ", ""},
    {LINE_NOTE, "sample", "", "sample "},
    {LINE_NOTE, "items_accuracy", "", NULL},
    {LINE_NOTE, "branched_from", "", "branched_from until "},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const char head[] = "{\"step\": ";

// ---- members

static bool is(Bytes text, const char *word) {
    return text.size == strlen(word) && !memcmp(text.data, word, text.size);
}

static bool skip(Bytes *rest, const char *text) {
    const size_t length = strlen(text);
    if (rest->size < length || memcmp(rest->data, text, length)) return false;
    rest->data += length, rest->size -= length;
    return true;
}

// The end of the string that begins at `at`, a quote; `size` without an end.
static size_t string_end(Bytes text, size_t at) {
    for (at++; at < text.size && text.data[at] != '"'; at++)
        if (text.data[at] == '\\') at++;
    return at < text.size ? at + 1 : text.size;
}

// The length of the value at the start of `text`: up to the comma or brace after it.
static size_t value_size(Bytes text) {
    int depth = 0;
    for (size_t at = 0; at < text.size; at++) {
        const uint8_t c = text.data[at];
        if (c == '"') at = string_end(text, at) - 1;
        if (!depth && (c == ',' || c == '}')) return at;
        depth += c == '{' || c == '[';
        depth -= c == '}' || c == ']';
    }
    return 0;
}

// Removes `, "KEY": VALUE` from `rest`.
static bool next_member(Bytes *rest, Bytes *key, Bytes *value) {
    if (!skip(rest, ", \"")) return false;
    const uint8_t *end = memchr(rest->data, '"', rest->size);
    if (!end) return false;
    *key = (Bytes){rest->data, (size_t)(end - rest->data)};
    rest->data += key->size, rest->size -= key->size;
    if (!skip(rest, "\": ")) return false;
    *value = (Bytes){rest->data, value_size(*rest)};
    rest->data += value->size, rest->size -= value->size;
    return value->size;
}

static bool lists(const char *words, Bytes key) {
    char word[64];
    if (key.size > sizeof word - 2) return false;
    snprintf(word, sizeof word, "%.*s ", (int)key.size, (const char *)key.data);
    const char *found = strstr(words, word);
    return found && (found == words || found[-1] == ' ');
}

// The row of a line in `kinds`, by its first member; KINDS: no row.
static size_t row_of(Bytes first) {
    size_t i = 0;
    while (i < KINDS && !is(first, kinds[i].first)) i++;
    return i;
}

static bool is_number(Bytes value) {
    char text[64], *end;
    if (!value.size || value.size >= sizeof text) return false;
    memcpy(text, value.data, value.size);
    text[value.size] = 0;
    strtod(text, &end);
    return !*end;
}

static Bytes first_key(const RecordLine *line) {
    Bytes rest = line->members, key = {0}, value;
    next_member(&rest, &key, &value);
    return key;
}

// Whether the members are whole and fit its kind.
static bool check_members(const RecordLine *line) {
    Bytes rest = line->members, key, value;
    const size_t row = row_of(first_key(line));
    while (rest.size && *rest.data == ',') {
        if (!next_member(&rest, &key, &value)) return false;
        const bool free = lists(kinds[row].free, key);
        if (free ? !is_number(value) : kinds[row].others && !lists(kinds[row].others, key)) return false;
    }
    return is(rest, "}");
}

void record_print_line(Buffer *out, uint64_t step, Bytes members) {
    buffer_print(out, "%s%" PRIu64 "%.*s}", head, step, (int)members.size, (const char *)members.data);
}

int record_parse(RecordLine *line, Bytes text) {
    Bytes rest = text;
    *line = (RecordLine){.text = text};
    if (!skip(&rest, head)) return -1;
    size_t digits = 0;
    for (; digits < rest.size && digits < 19 && rest.data[digits] >= '0' && rest.data[digits] <= '9'; digits++)
        line->step = 10 * line->step + (uint64_t)(rest.data[digits] - '0');
    if (!digits || (digits > 1 && *rest.data == '0')) return -1;
    line->members = (Bytes){rest.data + digits, rest.size - digits};
    const size_t row = row_of(first_key(line));
    if (row == KINDS) return -1;
    line->kind = kinds[row].kind;
    return check_members(line) ? 0 : -1;
}

bool record_member(const RecordLine *line, const char *name, Bytes *value) {
    Bytes rest = line->members, key;
    while (next_member(&rest, &key, value)) {
        if (!is(key, name)) continue;
        if (*value->data == '"' && value->size > 1) value->data++, value->size -= 2;
        return true;
    }
    *value = (Bytes){0};
    return false;
}

bool record_text(const RecordLine *line, const char *key, char *out, size_t size) {
    Bytes raw;
    *out = 0;
    if (!record_member(line, key, &raw) || raw.data[-1] != '"') return false;
    json_t *string = json_loadb((const char *)raw.data - 1, raw.size + 2, JSON_DECODE_ANY, NULL);
    const char *text = json_string_value(string);
    const bool fits = text && strlen(text) < size;
    if (fits) strcpy(out, text);
    json_decref(string);
    return fits;
}

bool record_number(const RecordLine *line, const char *key, uint64_t *value) {
    Bytes text;
    *value = 0;
    if (!record_member(line, key, &text) || !is_number(text)) return false;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9' || i == 19) return false;
        *value = 10 * *value + (uint64_t)(text.data[i] - '0');
    }
    return true;
}

// The next member that is compared.
static Bytes next_compared(const RecordLine *line, Bytes *rest, Bytes *value) {
    Bytes key;
    while (next_member(rest, &key, value))
        if (!lists(kinds[row_of(first_key(line))].free, key)) return key;
    return *value = (Bytes){0};
}

static bool same(Bytes a, Bytes b) { return a.size == b.size && (!a.size || !memcmp(a.data, b.data, a.size)); }

bool record_same(const RecordLine *recorded, const RecordLine *given, LineDifference *difference) {
    Bytes left = recorded->members, right = given->members, key, value, other_key, other;
    for (;;) {
        key = next_compared(recorded, &left, &value), other_key = next_compared(given, &right, &other);
        if (!key.size && !other_key.size) return true;
        if (same(key, other_key) && same(value, other)) continue;
        *difference = (LineDifference){key, value, same(key, other_key) ? other : (Bytes){0}};
        if (!key.size) *difference = (LineDifference){other_key, {0}, other};
        return false;
    }
}

void record_print_compared(Buffer *out, const RecordLine *line) {
    Bytes rest = line->members, key, value;
    buffer_print(out, "%s%" PRIu64, head, line->step);
    while ((key = next_compared(line, &rest, &value)).size)
        buffer_print(out, ", \"%.*s\": %.*s", (int)key.size, (const char *)key.data, (int)value.size,
                     (const char *)value.data);
    buffer_print(out, "}\n");
}

// ---- the file

int record_next(const Record *record, Bytes *rest, RecordLine *line) {
    Bytes text;
    if (!bytes_next_line(rest, &text)) {
        if (!rest->size) return 0;
        return fail(EX_DATA, "'%s': the last line is cut short", record->path);
    }
    if (record_parse(line, text) == 0) return 1;
    return fail(EX_DATA, "'%s': damaged, or not written by this version: %.*s", record->path,
                (int)(text.size < 60 ? text.size : 60), (const char *)text.data);
}

// The last line of a step.
static void find_last_step(Record *record) {
    RecordLine line;
    for (const uint8_t *end = record->text.data + record->text.size; end > record->text.data;) {
        const size_t size = (size_t)(end - 1 - record->text.data);
        const uint8_t *before = memrchr(record->text.data, '\n', size),
                      *start = before ? before + 1 : record->text.data;
        if (record_parse(&line, (Bytes){start, (size_t)(end - 1 - start)}) == 0 && line.kind == LINE_STEP) {
            record->last_step = line.step;
            return;
        }
        end = start;
    }
}

int record_open(Record *record, const char *run) {
    *record = (Record){0};
    if (file_map(&record->text, path_join(record->path, run, "metrics.jsonl")) < 0) return -1;
    if (record->text.size && record->text.data[record->text.size - 1] != '\n')
        return fail(EX_DATA, "'%s': the last line is cut short", record->path);
    find_last_step(record);
    return 0;
}

void record_close(Record *record) { file_unmap(&record->text); }

// The last line with `text` in the first `size` bytes that is of this kind.
static bool find_before(const Record *record, size_t size, const char *text, LineKind kind, RecordLine *line) {
    bool found = false;
    for (size_t at = 0; at < size;) {
        const uint8_t *hit = memmem(record->text.data + at, size - at, text, strlen(text));
        if (!hit) break;
        const size_t from = (size_t)(hit - record->text.data);
        const uint8_t *before = memrchr(record->text.data, '\n', from);
        Bytes rest = {before ? before + 1 : record->text.data, 0}, whole;
        rest.size = record->text.size - (size_t)(rest.data - record->text.data);
        RecordLine parsed;
        if (bytes_next_line(&rest, &whole) && record_parse(&parsed, whole) == 0 && parsed.kind == kind)
            *line = parsed, found = true;
        at = from + strlen(text);
    }
    return found;
}

int record_find(const Record *record, uint64_t step, RecordStep *found) {
    char text[64];
    snprintf(text, sizeof text, "%s%" PRIu64 ", \"loss\"", head, step);
    if (!find_before(record, record->text.size, text, LINE_STEP, &found->own))
        return fail(EX_NOINPUT, "'%s' has no step %" PRIu64 ": its last is %" PRIu64, record->path, step,
                    record->last_step);
    const size_t before = (size_t)(found->own.text.data - record->text.data);
    if (!find_before(record, before, ", \"config\": {", LINE_PROCESS, &found->process) ||
        !find_before(record, before, ", \"fingerprint\": ", LINE_DATASET, &found->dataset))
        return fail(EX_DATA,
                    "'%s' lacks the configuration or the dataset of step %" PRIu64 ": an earlier version wrote it",
                    record->path, step);
    return 0;
}
