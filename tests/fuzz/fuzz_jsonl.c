// Reads any bytes as text, JSON lines, conversations, items of a grade or an archive, also with any condition: the
// reader returns whole documents or reports bad data. What jansson parses has the same value here.
#include "common/json_read.h"
#include "common/turns.h"
#include "common/utf8.h"
#include "shardtool/ingest/input_format.h"
#include "tests/fuzz/fuzz.h"
#include "tests/memory_stream.h"

static void compare_with_jansson(Bytes text) {
    json_error_t error;
    json_t *theirs = json_loadb((const char *)text.data, text.size, JSON_ALLOW_NUL, NULL),
           *ours = json_parse(text, JSON_ANY_TEXT, &error);
    if (theirs && text.size < JSON_DEPTH_MAX && !json_equal(theirs, ours)) abort();
    json_decref(theirs);
    json_decref(ours);
}

// A document is a text without markers, or messages, each a role, a text and the end.
static void check_turns(Bytes text) {
    if (!text.size) return;
    const bool is_talk = is_turn_byte(*text.data);
    bool open = false;
    for (const uint8_t *at = text.data, *end = at + text.size, *stop; at < end; at = stop) {
        for (stop = at; stop < end && !is_turn_byte(*stop);) stop++;
        const Bytes between = {at, (size_t)(stop - at)};
        if (utf8_valid(between) < between.size || (between.size && is_talk != open)) abort();
        if (stop == end) break;
        if (*stop > TURN_BYTE + TURN_END || (*stop == TURN_BYTE + TURN_END) != open) abort();
        open = !open, stop++;
    }
    if (open) abort();
}

// The bits of the first byte choose the options. The first line may be a condition.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static MemoryStream memory;
    if (!size) return 0;
    Bytes text = {data + 1, size - 1}, line = {0};
    char condition[512] = "";
    if (data[0] & 64 && bytes_next_line(&text, &line) && line.size < sizeof condition)
        memcpy(condition, line.data, line.size);
    memory = memory_stream(text);
    compare_with_jansson(text);
    SourceOptions options = {.docs = (SourceDocs)(data[0] % 3), .text_field = data[0] & 4 ? "a.text" : "text"};
    options.skips.max = data[0] & 8 ? 1000 : 0;
    if (data[0] & 128) options.items = true, options.text_field = "*";
    options.turns = data[0] & 16, options.replaces = data[0] & 32;
    if (data[0] & 64) options.where.items[options.where.count++] = condition;
    FormatReader *reader;
    Part part;
    bool open = false;
    int status = reader_open(&reader, &memory.stream, &options);
    if (status == 0 && reader) {
        while ((status = reader_next(reader, &part)) > 0) {
            if (part.first == open) abort();
            open = !part.last;
            if (options.turns) check_turns(part.text);
        }
        if (status == 0 && open) abort();
        reader_close(reader);
    }
    if (status < 0 && err_code() != EX_DATA && !(data[0] & 64 && err_code() == EX_USAGE)) abort();
    for (size_t i = 0; i < options.ignored.count; i++) free((char *)(uintptr_t)options.ignored.items[i]);
    err_clear();
    return 0;
}
