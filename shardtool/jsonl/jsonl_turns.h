// Conversations in JSON lines (--turns). An object has `messages`, an array of objects with `role`, which is system,
// user or assistant, and `content`, a string; or `prompt` and `completion`, strings, which are a message of a user and
// one of an assistant; or neither, and the text of a document. Any other field that would change the text, or the
// trained part of it, is refused.
#pragma once

#include "common/bytes.h"
#include "shardtool/ingest/source_options.h"
#include <jansson.h>

typedef enum { LINE_BAD = -1, LINE_WITHOUT_TEXT, LINE_OF_TEXT, LINE_OF_TURNS } LineContent;
enum { TURNS_WHY_BYTES = 256 };

// Appends the conversation of a line as turns.h describes it, or `text` if the line has no conversation; `text` may be
// NULL. Replaced bytes are counted in `options`, and keys beside a conversation that are not read are listed there.
// LINE_BAD: `why` is the reason, without control characters.
LineContent jsonl_turns_read(const json_t *line, const json_t *text, SourceOptions *options, Buffer *out,
                             char why[TURNS_WHY_BYTES]);
