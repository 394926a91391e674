// The options of every command that reads documents.
#pragma once

#include "common/cli.h"
#include "shardtool/source/source.h"

extern const char *input_docs, *input_text_field;
extern uint64_t input_max_bad;

#define INPUT_OPTIONS                                                                                                  \
    {OPT_STRING, "docs", &input_docs, "KIND", "how plain text is cut into documents: file, lines or paragraphs"},      \
        {OPT_STRING, "text-field", &input_text_field, "KEY", "where a JSON line has its text; a.b looks into a"}, {    \
        OPT_SIZE, "max-bad", &input_max_bad, "N", "skip up to N lines that have no text there"                         \
    }

int input_options(SourceOptions *options); // 2 when a value is none of those allowed
