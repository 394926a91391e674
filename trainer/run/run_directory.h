// The directory of a run.
#pragma once

#include "common/file/file.h"

// Makes and locks out_dir and removes unfinished files. `fresh` moves the files of an earlier run to out_dir/before-N.
// -1 after fail().
int run_directory_open(Lock *lock, const char *out_dir, bool fresh);
