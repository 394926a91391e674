// Parsing JSON, where no memory is no fault of the text.
#pragma once

#include "common/bytes.h"
#include <jansson.h>

// As json_loadb. The library takes an allocation that fails for an error in the text; here the program exits (82).
json_t *json_parse(Bytes text, size_t flags, json_error_t *error);
