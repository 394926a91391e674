// Parsing JSON without errors that are none of the text.
#pragma once

#include "common/bytes.h"
#include <jansson.h>

// Called once, before any other thread: from then on the JSON library ends the program (82) where it has no memory, and does not
// report an error in the text (or leave out what it was to write).
void json_end_without_memory(void);

json_t *json_parse(Bytes text, size_t flags, json_error_t *error); // json_loadb
