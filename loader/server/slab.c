// Slabs, each of buffers of one size. The free buffers of a slab are a list in the buffers themselves.
#include "loader/server/slab.h"
#include "common/bytes.h"
#include "common/err.h"
#include "common/sizes.h"
#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { SLAB_BYTES = 2 << 20, PAGE = 4096, SLABS_LEAST = 8 }; // SLAB_BYTES: a huge page

struct Slab {
    char *base;
    size_t bytes, buffer_bytes, count, used, fresh; // fresh: buffers that have never been taken begin here
    void *free;
    Slab *next, *before; // in the list of those with room
};

void slabs_init(Slabs *slabs, size_t limit) {
    size_t bytes = limit / SLABS_LEAST / PAGE * PAGE;
    *slabs = (Slabs){.slab_bytes = bytes < SLAB_BYTES ? bytes : SLAB_BYTES};
}

static void list_add(Slabs *slabs, Slab *slab) {
    slab->next = slabs->with_room, slab->before = NULL;
    if (slab->next) slab->next->before = slab;
    slabs->with_room = slab;
}

static void list_remove(Slabs *slabs, Slab *slab) {
    *(slab->before ? &slab->before->next : &slabs->with_room) = slab->next;
    if (slab->next) slab->next->before = slab->before;
}

static void *map(size_t bytes) {
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) die(EX_MEMORY, "no memory for %zu bytes of decoded frames: give a smaller --cache", bytes);
    return base;
}

// Aligned to its size, for a huge page.
static void *map_huge(void) {
    char *base = map(2 * (size_t)SLAB_BYTES);
    size_t before = (SLAB_BYTES - (uintptr_t)base % SLAB_BYTES) % SLAB_BYTES, after = SLAB_BYTES - before;
    if (before) munmap(base, before);
    if (after) munmap(base + before + SLAB_BYTES, after);
    madvise(base + before, SLAB_BYTES, MADV_HUGEPAGE);
    return base + before;
}

static Slab *open_slab(Slabs *slabs, size_t buffer_bytes) {
    Slab *slab = allocate_zeroed(1, sizeof *slab);
    slab->bytes = buffer_bytes > slabs->slab_bytes ? buffer_bytes : slabs->slab_bytes;
    slab->buffer_bytes = buffer_bytes, slab->count = slab->bytes / buffer_bytes;
    slab->base = slab->bytes == SLAB_BYTES ? map_huge() : map(slab->bytes);
    list_add(slabs, slab);
    return slab;
}

void *slab_take(Slabs *slabs, size_t bytes, Slab **owner) {
    bytes = round_up(bytes, PAGE);
    Slab *slab = slabs->with_room;
    while (slab && slab->buffer_bytes != bytes) slab = slab->next;
    if (!slab) slab = open_slab(slabs, bytes);
    void *buffer = slab->free;
    if (buffer)
        memcpy(&slab->free, buffer, sizeof slab->free);
    else
        buffer = slab->base + slab->fresh++ * slab->buffer_bytes;
    if (++slab->used == slab->count) list_remove(slabs, slab);
    *owner = slab;
    return buffer;
}

void slab_return(Slabs *slabs, Slab *slab, void *buffer) {
    assert(slab->used && (char *)buffer >= slab->base && (char *)buffer < slab->base + slab->bytes);
    memcpy(buffer, &slab->free, sizeof slab->free);
    slab->free = buffer;
    if (slab->used-- == slab->count) list_add(slabs, slab);
    if (slab->used) return;
    list_remove(slabs, slab);
    munmap(slab->base, slab->bytes);
    free(slab);
}
