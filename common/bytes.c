// Lines, words, the growable buffer, and arrays.
#include "common/bytes.h"
#include "common/err.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

bool bytes_next_line(Bytes *rest, Bytes *line) {
    const uint8_t *end = rest->size ? memchr(rest->data, '\n', rest->size) : NULL;
    if (!end) return false;
    *line = (Bytes){rest->data, (size_t)(end - rest->data)};
    *rest = (Bytes){end + 1, rest->size - line->size - 1};
    return true;
}

bool bytes_next_line_or_rest(Bytes *rest, Bytes *line) {
    if (bytes_next_line(rest, line)) return true;
    *line = *rest;
    rest->size = 0;
    return line->size;
}

static bool is_space(uint8_t byte) { return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n'; }

Bytes bytes_trimmed(Bytes text) {
    while (text.size && is_space(*text.data)) text.data++, text.size--;
    while (text.size && is_space(text.data[text.size - 1])) text.size--;
    return text;
}

bool bytes_take_number(Bytes *text, uint64_t *number) {
    size_t digits = 0;
    for (*number = 0; digits < text->size && text->data[digits] >= '0' && text->data[digits] <= '9'; digits++) {
        if (digits == 18) return false;
        *number = *number * 10 + (uint64_t)(text->data[digits] - '0');
    }
    text->data += digits, text->size -= digits;
    return digits > 0;
}

void buffer_reserve(Buffer *buffer, size_t more) {
    if (more <= buffer->capacity - buffer->size) return;
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    while (capacity - buffer->size < more) {
        if (capacity > SIZE_MAX / 2) die(EX_MEMORY, "a buffer of %zu more bytes is too large", more);
        capacity *= 2;
    }
    buffer->data = realloc(buffer->data, capacity);
    if (!buffer->data) die(EX_MEMORY, "out of memory: %zu bytes wanted", capacity);
    buffer->capacity = capacity;
}

void buffer_add(Buffer *buffer, const void *data, size_t size) {
    if (!size) return;
    buffer_reserve(buffer, size);
    memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
}

void buffer_print(Buffer *buffer, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    buffer_reserve(buffer, (size_t)length + 1);
    vsnprintf((char *)buffer->data + buffer->size, (size_t)length + 1, format, again);
    buffer->size += (size_t)length;
    va_end(arguments);
    va_end(again);
}

void buffer_add_leb128(Buffer *buffer, uint64_t number) {
    uint8_t bytes[10];
    size_t size = 0;
    for (; number >= 0x80; number >>= 7) bytes[size++] = (uint8_t)(number | 0x80);
    bytes[size++] = (uint8_t)number;
    buffer_add(buffer, bytes, size);
}

uint64_t cursor_leb128(Cursor *cursor) {
    uint64_t number = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte;
        if (!cursor_u8(cursor, &byte)) return 0;
        number |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) {
            if (shift == 63 && byte > 1) break;
            return number;
        }
    }
    cursor->failed = true;
    return 0;
}

void buffer_close(Buffer *buffer) {
    free(buffer->data);
    *buffer = (Buffer){0};
}

void *array_grow(void *array, size_t count, size_t size) {
    if (count & (count - 1)) return array;
    array = reallocarray(array, count ? 2 * count : 1, size);
    if (!array) die(EX_MEMORY, "out of memory: a list of %zu times %zu bytes", 2 * count, size);
    return array;
}

void *allocate_zeroed(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory && count && size) die(EX_MEMORY, "out of memory: %zu times %zu bytes wanted", count, size);
    return memory;
}

char *allocate_text(const char *text, size_t size) {
    char *copy = strndup(text, size);
    if (!copy) die(EX_MEMORY, "out of memory: %zu bytes wanted", size);
    return copy;
}
