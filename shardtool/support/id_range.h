// Ranges of token ids, shared by get, sample and decode.
#pragma once

#include "dataset/token_reader.h"

// Writes tokens [first, end) to standard output: raw, or as one line of decimals.
int id_range_print(TokenReader *tokens, uint64_t first, uint64_t end, bool decimal);

// Parses "A:B", tokens A to B-1 of `tokens`. A defaults to 0, B to the number of tokens.
int id_range_parse(const char *text, uint64_t tokens, uint64_t *first, uint64_t *end);
