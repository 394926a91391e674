// Arenas: memory that is freed as a whole, in one reserved range of addresses. Not thread-safe.
#pragma once

#include <stddef.h>

typedef struct {
    unsigned char *base;
    size_t used, capacity;
} Arena;

// Reserves `capacity` bytes of address space; pages are taken from the system when they are first written. Exits (82)
// when the system refuses.
void arena_open(Arena *arena, size_t capacity);
void arena_close(Arena *arena); // frees everything; accepts a zeroed struct

// Zeroed memory, aligned to 64 bytes, until arena_close. Never NULL: exits (82) when the arena is full.
void *arena_push(Arena *arena, size_t bytes);
char *arena_print(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_copy_string(Arena *arena, const char *string);
