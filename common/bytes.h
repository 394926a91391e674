// Bytes: borrowed slices, a growable buffer, little-endian numbers, and a cursor over foreign bytes.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const uint8_t *data;
    size_t size;
} Bytes;

// Owns its memory. Zeroed = empty; buffer_close accepts it. Growth dies (82) when the machine has no memory.
typedef struct {
    uint8_t *data;
    size_t size, capacity;
} Buffer;

void buffer_reserve(Buffer *buffer, size_t more); // room for `more` bytes after size
void buffer_add(Buffer *buffer, const void *data, size_t size);
void buffer_print(Buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buffer_close(Buffer *buffer);

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
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "formats are little-endian and copied as they are");

// Reads foreign bytes: each call returns false instead of passing the end, and stays false from then on.
typedef struct {
    const uint8_t *at, *end;
    bool short_of;
} Cursor;

static inline Cursor cursor_of(Bytes bytes) { return (Cursor){bytes.data, bytes.data + bytes.size, false}; }
static inline const uint8_t *cursor_take(Cursor *cursor, size_t size) {
    if (cursor->short_of || size > (size_t)(cursor->end - cursor->at)) {
        cursor->short_of = true;
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
static inline bool cursor_u16(Cursor *cursor, uint16_t *v) {
    const uint8_t *p = cursor_take(cursor, 2);
    if (p) *v = get_u16(p);
    return p;
}
static inline bool cursor_u32(Cursor *cursor, uint32_t *v) {
    const uint8_t *p = cursor_take(cursor, 4);
    if (p) *v = get_u32(p);
    return p;
}
static inline bool cursor_u64(Cursor *cursor, uint64_t *v) {
    const uint8_t *p = cursor_take(cursor, 8);
    if (p) *v = get_u64(p);
    return p;
}
