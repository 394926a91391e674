// Arenas: memory that is freed as a whole. Not thread-safe.
#pragma once

#include <stddef.h>

typedef struct ArenaBlock ArenaBlock;
typedef struct {
    ArenaBlock *block; // the newest one, which the next bytes come from
    size_t used;       // of it
} Arena;               // empty when zeroed

size_t arena_bytes(const Arena *arena); // pushed so far, with the unused rest of full blocks
void arena_close(Arena *arena);         // frees everything; the arena is empty again

// Zeroed memory, aligned to 64 bytes, until arena_close. Never NULL: exits (82) when there is no memory.
void *arena_push(Arena *arena, size_t bytes);
char *arena_print(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
char *arena_copy_string(Arena *arena, const char *string);
