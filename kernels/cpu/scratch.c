// Scratch memory of the CPU backend: one range of the arena, which every operation divides up for itself.
#include "kernels/cpu/cpu_internal.h"
#include <assert.h>

static struct {
    char *base;
    size_t bytes;
} scratch;

void scratch_bind(void *base, size_t bytes) {
    scratch.base = base;
    scratch.bytes = bytes;
}

void *scratch_take(size_t *used, size_t bytes) {
    void *taken = scratch.base + *used;
    *used += round_up(bytes, 64);
    assert(*used <= scratch.bytes); // else scratch_bytes() was called with a smaller shape than the operation
    return taken;
}
