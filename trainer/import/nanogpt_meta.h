// The characters of a model of nanoGPT, whose data were prepared as shakespeare_char.
#pragma once

#include "common/bytes.h"

// Appends the characters as UTF-8 in the order of their ids: `path` is the meta.pkl beside the data, or a file of the
// characters. -1 after fail(): 65 when it is neither.
int nanogpt_characters(Buffer *characters, const char *path);
int nanogpt_meta_read(Buffer *characters, Bytes pickle); // of a meta.pkl
