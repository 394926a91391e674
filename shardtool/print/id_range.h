// Ranges of token ids, as "A:B" after a PATH: tokens A to B-1. A defaults to 0, B to the number of tokens.
#pragma once

#include "dataset/token_reader.h"

bool id_range_is(const char *argument); // whether it is a range and no PATH; ./0:8 is the file of such a name
// Of `count` arguments that begin with a PATH, how many are it and its ranges. 2 when the first is a range.
int id_range_group(int count, char **arguments);

int id_range_parse(const char *text, uint64_t tokens, uint64_t *first, uint64_t *end); // 2 beyond `tokens`

// Writes tokens [first, end) to standard output: raw, or as one line of decimals.
int id_range_print(TokenReader *tokens, uint64_t first, uint64_t end, bool decimal);
