// Windows' driver model (WDDM), also under WSL: it moves device memory that a process holds to system memory when it
// likes, without an error and with a tenth of the speed. About 0.88 of a card was too much for it and 0.80 was not
// (github.com/microsoft/WSL, issues 41176 and 11050).
#pragma once

#include <stdbool.h>
#include <stddef.h>

extern const char *wddm_device; // a file that is there under WSL; for tests to set
bool wddm_is_there(void);

// The most that a process may hold of a card of `total` bytes.
static inline size_t wddm_limit(size_t total) { return total / 5 * 4; }
