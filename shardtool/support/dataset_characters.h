// The characters of a dataset's vocabulary: the file CHARACTERS_FILE (tokenizer.h) beside its manifest, which has the
// fingerprint. A dataset of GPT-2's vocabulary has no file.
#pragma once

#include "common/file/file.h"
#include "shardtool/format/dataset.h"
#include <stdbool.h>

bool characters_file(char path[PATH_MAX_BYTES], const char *directory); // its path; whether it exists

int characters_keep(const char *directory, const char *path); // copies it to a dataset; NULL removes an earlier one

// 65 when the file is missing, damaged or of another dataset.
int characters_check(const Dataset *dataset);
