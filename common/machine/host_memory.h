// The free memory of this machine.
#pragma once

#include <stdint.h>

// In bytes, at most the limit of the container. 0: not known.
uint64_t host_memory_free(void);
