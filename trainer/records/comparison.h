// One page about several runs: their curves in one chart each, and the keys in which they differ. Two runs are also
// compared item by item and sample by sample (run_pair.c).
#pragma once

#include "common/bytes.h"

// Run directories. `text` receives the tables of two runs. -1 after fail().
int comparison_write(const char *path, char **runs, int count, Buffer *text);
