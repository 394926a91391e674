// Counts what our code allocates: the linker turns its calls to malloc and its like to these (Makefile: WRAP). What
// libraries allocate inside (OpenMP, oneDNN, ZeroMQ, stdio) is not seen.
#include "tests/unit/trainer/fixture_trainer.h"
#include <stdatomic.h>

static _Atomic uint64_t allocations;

uint64_t test_allocations(void) { return allocations; }

#define COUNTED(result, name, arguments, ...)                                                                          \
    result __real_##name arguments;                                                                                    \
    result __wrap_##name arguments;                                                                                    \
    result __wrap_##name arguments {                                                                                   \
        allocations++;                                                                                                 \
        return __real_##name(__VA_ARGS__);                                                                             \
    }

COUNTED(void *, malloc, (size_t bytes), bytes)
COUNTED(void *, calloc, (size_t count, size_t bytes), count, bytes)
COUNTED(void *, realloc, (void *p, size_t bytes), p, bytes)
COUNTED(void *, aligned_alloc, (size_t alignment, size_t bytes), alignment, bytes)
