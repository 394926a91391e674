// The options of every command that reads documents.
#pragma once

#include "common/cli.h"
#include "shardtool/ingest/source.h"

extern const char *input_docs, *input_text_field;
extern uint64_t input_max_bad;

int input_options(SourceOptions *options); // 2 when a value is none of those allowed
