// Memory by the page for tables: zeroed, taken when first touched, in huge pages where it is large.
#pragma once

#include <stddef.h>

void *hugepages_map(size_t bytes); // dies (82) when the machine refuses
void hugepages_unmap(void *pages, size_t bytes);
