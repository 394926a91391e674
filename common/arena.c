// Arenas: a list of blocks, each as large as all before it together. So the address space of an arena is at
// most about twice its content, and it works if address space is limited (ulimit -v).
#include "common/arena.h"
#include "common/err.h"
#include "common/sizes.h"
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ALIGNMENT = 64, FIRST_BYTES = 64 << 10 };

struct ArenaBlock {
    ArenaBlock *older;
    size_t capacity, all; // bytes that can be pushed; capacity of this block and all older ones
    unsigned char *data;  // aligned, in the same allocation
};

void arena_close(Arena *arena) {
    for (ArenaBlock *block = arena->block, *older; block; block = older) {
        older = block->older;
        free(block);
    }
    *arena = (Arena){0};
}

size_t arena_bytes(const Arena *arena) {
    return arena->block ? arena->block->all - arena->block->capacity + arena->used : 0;
}

static void add_block(Arena *arena, size_t bytes) {
    size_t capacity = arena->block ? arena->block->all : FIRST_BYTES;
    if (capacity < bytes) capacity = bytes;
    ArenaBlock *block = capacity < SIZE_MAX / 4 ? calloc(1, sizeof *block + capacity + ALIGNMENT) : NULL;
    if (!block) die(EX_MEMORY, "out of memory: %zu bytes wanted", bytes);
    uintptr_t start = (uintptr_t)(block + 1);
    block->older = arena->block;
    block->capacity = capacity, block->all = capacity + (arena->block ? arena->block->all : 0);
    block->data = (unsigned char *)(block + 1) + (ALIGNMENT - start % ALIGNMENT) % ALIGNMENT;
    *arena = (Arena){block, 0};
}

void *arena_push(Arena *arena, size_t bytes) {
    size_t start = round_up(arena->used, ALIGNMENT);
    if (!arena->block || start > arena->block->capacity || bytes > arena->block->capacity - start)
        add_block(arena, bytes), start = 0;
    arena->used = start + bytes;
    return arena->block->data + start;
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
