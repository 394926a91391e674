// Recognizes files that are not vocabularies.
#pragma once

#include "common/bytes.h"

// -1 after fail() (65) with the kind of the file, when its first bytes show another kind than a vocabulary.
int vocab_kind_check(Bytes file, const char *name);
