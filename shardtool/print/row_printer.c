// Prints rows of facts as text or JSON.
#include "shardtool/print/row_printer.h"
#include "common/hash.h"
#include "common/json_write.h"
#include "common/log.h"
#include <inttypes.h>
#include <stdio.h>

void row_begin(RowPrinter *printer, const char *key, const char *name) {
    const bool is_list = printer->key_width && !printer->json;
    printer->row.size = 0;
    if (is_list && printer->rows) buffer_print(&printer->row, "\n");
    printer->name = is_list ? NULL : name;
    if (name && (is_list || printer->json)) row_add_text(printer, key, 0, name);
}

// Adds a text without control characters, which could forge lines.
static void add_printable(Buffer *row, int width, const char *value) {
    const size_t before = row->size;
    buffer_print(row, "%*s", width, value);
    buffer_add(row, "", 1);
    text_printable((char *)row->data + before);
    row->size = before + strlen((char *)row->data + before);
}

void row_add_text(RowPrinter *printer, const char *key, int width, const char *value) {
    Buffer *row = &printer->row;
    if (printer->json) {
        json_add_field(row, key, value);
    } else if (printer->key_width) {
        buffer_print(row, "%-*s ", printer->key_width, key);
        add_printable(row, 0, value);
        buffer_print(row, "\n");
    } else {
        buffer_print(row, "%s", row->size ? " " : "");
        add_printable(row, width, value);
    }
}

void row_add_number(RowPrinter *printer, const char *key, int width, uint64_t value) {
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, value);
    if (printer->json)
        json_add_number(&printer->row, key, value);
    else
        row_add_text(printer, key, width, digits);
}

void row_add_none(RowPrinter *printer, const char *key, int width) {
    if (printer->json)
        json_add_key(&printer->row, key), buffer_print(&printer->row, "null");
    else
        row_add_text(printer, key, width, "-");
}

void row_add_ratio(RowPrinter *printer, const char *key, double value, int decimals, const char *unit) {
    char digits[64];
    snprintf(digits, sizeof digits, "%.*f%s", decimals, value, unit);
    if (printer->json)
        json_add_real(&printer->row, key, value, decimals);
    else
        row_add_text(printer, key, 0, digits);
}

void row_add_hex(RowPrinter *printer, const char *key, const void *data, size_t size) {
    char hex[65];
    hex_encode(hex, data, size);
    row_add_text(printer, key, 0, hex);
}

void row_add_quoted(RowPrinter *printer, const char *key, Bytes value) {
    Buffer *row = &printer->row;
    if (printer->json)
        json_add_key(row, key);
    else
        buffer_print(row, "  ");
    buffer_print(row, "\"");
    json_add_text(row, value, true, &(JsonCarry){.size = 0});
    buffer_print(row, "\"");
}

void row_end(RowPrinter *printer) {
    Buffer *row = &printer->row;
    if (printer->json) {
        buffer_print(row, "}\n");
    } else if (!printer->key_width) {
        if (printer->name) buffer_print(row, "  "), add_printable(row, 0, printer->name);
        buffer_print(row, "\n");
    }
    fwrite(row->data, 1, row->size, stdout);
    buffer_close(row);
    printer->rows++;
}
