// Memory for decoded frames: buffers of a few sizes, cut from slabs of 2 MiB, so that neither a frame nor its pages
// cost a system call each. A slab whose buffers have all been returned is unmapped.
#pragma once

#include <stddef.h>

typedef struct Slab Slab;

typedef struct {
    Slab *with_room; // slabs that have a free buffer
    size_t slab_bytes;
} Slabs;

// limit: of the memory in all; slabs are smaller than 2 MiB if it is small.
void slabs_init(Slabs *slabs, size_t limit);
// A buffer of `bytes` bytes and the slab that it belongs to. Exits (82) when there is no memory.
void *slab_take(Slabs *slabs, size_t bytes, Slab **slab);
void slab_return(Slabs *slabs, Slab *slab, void *buffer);
