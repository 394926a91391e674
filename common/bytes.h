// Byte ranges: a borrowed slice, a growable buffer, little-endian numbers, and a cursor that checks bounds.
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const uint8_t *data;
    size_t size;
} Bytes;
static inline Bytes bytes_of_text(const char *text) { return (Bytes){(const uint8_t *)text, strlen(text)}; }

// Removes the first line from `rest`; `line` does not have its line feed. False when `rest` has no line feed: then it
// is empty, or its last line is incomplete, and nothing changes.
bool bytes_next_line(Bytes *rest, Bytes *line);

// The same, and accepts a last line without a line feed. False when `rest` is empty.
bool bytes_next_line_or_rest(Bytes *rest, Bytes *line);

Bytes bytes_trimmed(Bytes text); // without the spaces, tabs and line ends around it

// Removes a decimal number of at most 18 digits from the front.
bool bytes_take_number(Bytes *text, uint64_t *number);

// Owns its memory. A zeroed struct is an empty buffer. Growing exits (82) when there is no memory.
typedef struct {
    uint8_t *data;
    size_t size, capacity;
} Buffer;

void buffer_reserve(Buffer *buffer, size_t more); // makes data[size .. size + more) writable
void buffer_add(Buffer *buffer, const void *data, size_t size);
void buffer_print(Buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_add_leb128(Buffer *buffer, uint64_t number);
void buffer_close(Buffer *buffer);

// Makes room for one more element of `size` bytes after the `count` of an array that only this function allocates: its
// memory doubles when the count is a power of two. Returns the array; dies (82) when the machine has no memory.
void *array_grow(void *array, size_t count, size_t size);

// calloc and strndup that die (82) when the machine has no memory.
void *allocate_zeroed(size_t count, size_t size);
char *allocate_text(const char *text, size_t size);

static inline uint16_t get_u16(const void *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint32_t get_u32(const void *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint64_t get_u64(const void *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void put_u16(void *p, uint16_t v) { memcpy(p, &v, sizeof v); }
static inline void put_u32(void *p, uint32_t v) { memcpy(p, &v, sizeof v); }
static inline void put_u64(void *p, uint64_t v) { memcpy(p, &v, sizeof v); }
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "formats are little-endian and copied as they are");

// Reads bytes of unknown origin. A call that would pass the end fails, and so do all calls after it.
typedef struct {
    const uint8_t *at, *end;
    bool failed;
} Cursor;

static inline Cursor cursor_init(Bytes bytes) { return (Cursor){bytes.data, bytes.data + bytes.size, false}; }
// The next `size` bytes, or NULL.
static inline const uint8_t *cursor_take(Cursor *cursor, size_t size) {
    if (cursor->failed || size > (size_t)(cursor->end - cursor->at)) {
        cursor->failed = true;
        return NULL;
    }
    const uint8_t *at = cursor->at;
    cursor->at += size;
    return at;
}
static inline bool cursor_u8(Cursor *cursor, uint8_t *v) {
    const uint8_t *p = cursor_take(cursor, 1);
    if (p) *v = *p;
    return p;
}
static inline bool cursor_u32(Cursor *cursor, uint32_t *v) {
    const uint8_t *p = cursor_take(cursor, 4);
    if (p) *v = get_u32(p);
    return p;
}
uint64_t cursor_leb128(Cursor *cursor); // at most 64 bits; 0, with `failed` set, at the end of the bytes
