// Counts what our code allocates: the linker turns its calls to malloc and its like to these (Makefile: WRAP). What
// libraries allocate inside (OpenMP, oneDNN, ZeroMQ, stdio) is not seen.
#include "tests/unit/trainer/fixture_trainer.h"
#include <stdatomic.h>

static _Atomic uint64_t allocations, watched, watched_count, watched_zeroed;

uint64_t test_allocations(void) { return allocations; }

void test_watch_memory(size_t least) {
    atomic_store(&watched_count, 0), atomic_store(&watched_zeroed, 0);
    atomic_store(&watched, least);
}
void test_watched_memory(uint64_t *count, uint64_t *zeroed) { *count = watched_count, *zeroed = watched_zeroed; }

static void *watch(void *memory, size_t bytes) {
    const uint8_t *p = memory;
    if (!watched || bytes < watched || !p) return memory;
    watched_count++;
    watched_zeroed += !p[0] && !memcmp(p, p + 1, bytes - 1);
    return memory;
}

#define COUNTED(name, arguments, bytes, ...)                                                                           \
    void *__real_##name arguments;                                                                                     \
    void *__wrap_##name arguments;                                                                                     \
    void *__wrap_##name arguments {                                                                                    \
        allocations++;                                                                                                 \
        return watch(__real_##name(__VA_ARGS__), bytes);                                                               \
    }

COUNTED(malloc, (size_t bytes), bytes, bytes)
COUNTED(calloc, (size_t count, size_t bytes), count *bytes, count, bytes)
COUNTED(realloc, (void *p, size_t bytes), 0, p, bytes)
COUNTED(aligned_alloc, (size_t alignment, size_t bytes), bytes, alignment, bytes)
