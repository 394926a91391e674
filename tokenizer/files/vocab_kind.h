// What a file is that is no vocabulary.
#pragma once

#include "common/bytes.h"

// -1 after fail() (65) with what the file is, when it is of another kind that its first bytes show.
int vocab_kind_check(Bytes file, const char *name);
