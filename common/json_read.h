// Parsing JSON. A failed allocation is not reported as an error in the text.
#pragma once

#include "common/bytes.h"
#include <jansson.h>

// Like json_loadb, which reports a failed allocation as an error in the text; this function then ends the program (82).
json_t *json_parse(Bytes text, size_t flags, json_error_t *error);
