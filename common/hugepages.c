// Tables are looked up all over: in small pages each word would miss the TLB too.
#include "common/hugepages.h"
#include "common/err.h"
#include <stdint.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

void *hugepages_map(size_t bytes) {
    size_t spare = bytes >= HUGE_PAGE ? HUGE_PAGE : 0;
    uint8_t *map = mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) die(EX_MEMORY, "no memory for %zu bytes of word table", bytes);
    size_t skip = spare ? HUGE_PAGE - (uintptr_t)map % HUGE_PAGE : 0;
    if (skip) munmap(map, skip);
    if (spare > skip) munmap(map + skip + bytes, spare - skip);
    if (spare) madvise(map + skip, bytes, MADV_HUGEPAGE); // before the first touch
    return map + skip;
}

void hugepages_unmap(void *pages, size_t bytes) { munmap(pages, bytes); }
