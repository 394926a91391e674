// The characters of a model of nanoGPT, whose data were prepared as shakespeare_char.
#pragma once

#include "common/bytes.h"

// Appends the characters of a file as UTF-8 in the order of their ids. -1 after fail(): 65 when it is no meta.pkl.
int nanogpt_meta_open(Buffer *characters, const char *path);
int nanogpt_meta_read(Buffer *characters, Bytes pickle); // of a meta.pkl
