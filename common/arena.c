// Arenas over reserved address space.
#include "common/arena.h"
#include "common/err.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

void arena_open(Arena *arena, size_t capacity) {
    capacity = (capacity + 4095) & ~(size_t)4095;
    void *base = mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) die(EX_MEMORY, "cannot reserve %zu bytes of memory", capacity);
    *arena = (Arena){base, 0, capacity};
}

void arena_close(Arena *arena) {
    if (arena->base) munmap(arena->base, arena->capacity);
    *arena = (Arena){0};
}

void *arena_push(Arena *arena, size_t bytes) {
    size_t start = (arena->used + 63) & ~(size_t)63;
    if (start > arena->capacity || bytes > arena->capacity - start)
        die(EX_MEMORY, "out of arena memory: %zu bytes wanted, %zu of %zu used", bytes, arena->used, arena->capacity);
    arena->used = start + bytes;
    return arena->base + start;
}

char *arena_print(Arena *arena, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    char *text = arena_push(arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, again);
    va_end(arguments);
    va_end(again);
    return text;
}

char *arena_copy_string(Arena *arena, const char *string) { return arena_print(arena, "%s", string); }
