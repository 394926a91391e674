// Items of a grade in JSON lines: the objects that `millrace eval` reads, with `task` and `kind`.
#pragma once

#include "common/bytes.h"
#include <jansson.h>
#include <stdbool.h>

// Whether a line is an item. Then *out is what a model would have to know: of the kinds choice and greedy the context
// and the ending of the right text, without the examples in `shots` and the wrong texts; of answers the messages and
// the answer. An item that lacks them sets *why.
bool jsonl_items_read(const json_t *line, Buffer *out, const char **why);
