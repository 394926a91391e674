// Output of token ids, shared by get and sample.
#pragma once

#include "shardtool/format/token_reader.h"

// Writes tokens [first, end) to standard output: raw u16, or as one line of decimals.
int print_ids(TokenReader *tokens, uint64_t first, uint64_t end, bool decimal);
