// One mapping per block. The page before the block holds the mapping's size, which hugepages_free needs.
#include "common/machine/hugepages.h"
#include "common/err.h"
#include "common/sizes.h"
#include <stdint.h>
#include <sys/mman.h>

enum { PAGE = 64 << 10, HUGE_PAGE = 2 << 20 }; // PAGE: the largest page size of the systems we know

void *hugepages_alloc(size_t bytes) {
    const size_t alignment = bytes > HUGE_PAGE / 2 ? HUGE_PAGE : PAGE;
    if (alignment == HUGE_PAGE && bytes < HUGE_PAGE) bytes = HUGE_PAGE;
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t used = PAGE + round_up(bytes, PAGE), mapped = used + alignment;
    uint8_t *map = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return NULL;
    size_t skip = alignment - ((uintptr_t)map + PAGE) % alignment; // at most `alignment`
    uint8_t *memory = map + skip + PAGE;
    munmap(map, skip);
    if (mapped > skip + used) munmap(map + skip + used, mapped - skip - used);
    *(size_t *)(void *)(memory - PAGE) = used;
    if (alignment == HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE); // before the first write to it
    return memory;
}

void *hugepages_alloc_or_die(size_t bytes) {
    void *memory = hugepages_alloc(bytes);
    if (!memory) die(EX_MEMORY, "out of memory: cannot map %zu bytes", bytes);
    return memory;
}

void hugepages_free(void *memory) {
    if (!memory) return;
    uint8_t *map = (uint8_t *)memory - PAGE;
    munmap(map, *(size_t *)(void *)map);
}
