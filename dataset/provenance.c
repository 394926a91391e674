// Rows of tables as bytes that travel with a document: made, read, printed.
#include "dataset/provenance.h"
#include "common/json_write.h"
#include "common/log.h"
#include <inttypes.h>
#include <stdio.h>

void provenance_begin(Buffer *row, const char *input, uint64_t record) {
    row->size = 0;
    buffer_add_leb128(row, record);
    buffer_add(row, input, strlen(input) + 1);
}

void provenance_add(Buffer *row, const char *key, Bytes value) {
    buffer_add(row, key, strlen(key) + 1);
    buffer_add_leb128(row, value.size);
    buffer_add(row, value.data, value.size);
}

bool provenance_parse(Bytes row, Provenance *row_read) {
    if (!row.size) return false;
    Cursor rest = cursor_init(row);
    row_read->record = cursor_leb128(&rest);
    row_read->input = (const char *)rest.at;
    rest.at += strlen(row_read->input) + 1;
    row_read->values = (Bytes){rest.at, (size_t)(rest.end - rest.at)};
    return true;
}

bool provenance_next_value(Bytes *values, const char **key, Bytes *value) {
    if (!values->size) return false;
    *key = (const char *)values->data;
    Cursor rest = cursor_init(*values);
    rest.at += strlen(*key) + 1;
    value->size = cursor_leb128(&rest);
    value->data = rest.at;
    *values = (Bytes){rest.at + value->size, (size_t)(rest.end - rest.at) - value->size};
    return true;
}

bool provenance_find_value(const Provenance *row, const char *key, Bytes *value) {
    const char *name;
    for (Bytes rest = row->values; provenance_next_value(&rest, &name, value);)
        if (!strcmp(name, key)) return true;
    return false;
}

static void add_text(Buffer *out, Bytes text) {
    buffer_print(out, "\"");
    json_add_text(out, text, true, &(JsonCarry){.size = 0});
    buffer_print(out, "\"");
}

void provenance_add_json(Buffer *out, const char *prefix, Bytes row) {
    Provenance read;
    char name[64];
    if (!provenance_parse(row, &read)) return;
    snprintf(name, sizeof name, "%sinput", prefix);
    json_add_key(out, name);
    add_text(out, bytes_of_text(read.input));
    snprintf(name, sizeof name, "%srecord", prefix);
    json_add_number(out, name, read.record);
    if (!read.values.size) return;
    snprintf(name, sizeof name, "%skeys", prefix);
    json_add_key(out, name);
    const char *key;
    Bytes value;
    for (const char *before = "{"; provenance_next_value(&read.values, &key, &value); before = ",") {
        buffer_print(out, "%s", before);
        add_text(out, bytes_of_text(key));
        buffer_print(out, ":");
        add_text(out, value);
    }
    buffer_print(out, "}");
}

void provenance_add_text(Buffer *out, Bytes row) {
    Provenance read;
    const char *key;
    Bytes value;
    const size_t before = out->size;
    if (!provenance_parse(row, &read)) return;
    buffer_print(out, "%s:%" PRIu64, read.input, read.record);
    while (provenance_next_value(&read.values, &key, &value))
        buffer_print(out, " %s=%.*s", key, (int)value.size, (const char *)value.data);
    buffer_add(out, "", 1);
    text_printable((char *)out->data + before);
    out->size = before + strlen((char *)out->data + before);
}
