// Parses JSON. Running out of memory ends the program, so that it is not reported as an error of the text.
#pragma once

#include "common/bytes.h"
#include <jansson.h>

// Called once, before there is another thread. Without memory the JSON library then ends the program (82). By itself it
// reports an error of the text, or leaves members out of what it writes.
void json_end_without_memory(void);

json_t *json_parse(Bytes text, size_t flags, json_error_t *error); // json_loadb
