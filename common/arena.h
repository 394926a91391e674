// Arenas: memory by lifetime (program, job, step). One reserved range, pushed on and reset as a whole.
#pragma once

#include <stddef.h>

typedef struct {
    unsigned char *base;
    size_t used, capacity;
} Arena;

// Reserves address space; pages are taken when first touched. Dies (82) when the machine refuses.
void arena_open(Arena *arena, size_t capacity);
void arena_close(Arena *arena); // accepts a zeroed struct

// 64-byte aligned; the bytes are zero unless the arena was reset before. Dies (82) when the arena is full.
void *arena_push(Arena *arena, size_t bytes);
char *arena_print(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_copy_string(Arena *arena, const char *string);

static inline size_t arena_mark(const Arena *arena) { return arena->used; }
static inline void arena_reset(Arena *arena, size_t mark) { arena->used = mark; }
