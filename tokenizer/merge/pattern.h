// The patterns of the pretokenizer by name: the rows of patterns.def, which describes their columns.
#pragma once

#include <stdbool.h>

typedef enum {
#define PATTERN(name, ...) PATTERN_##name,
#include "tokenizer/merge/patterns.def"
#undef PATTERN
    PATTERN_COUNT
} Pattern;

typedef enum { CONTRACTIONS_PIECE, CONTRACTIONS_FOLDED, CONTRACTIONS_SUFFIX } Contractions;
typedef enum { WORDS_BLANK, WORDS_PREFIXED, WORDS_BY_CASE } Words;
typedef enum { NOTHING, LINE_ENDS, LINE_ENDS_SLASHES } AfterSigns;
typedef enum { LINES_SPACE, LINES_SPLIT, LINES_SPLIT_INSIDE } Lines;

typedef struct {
    Contractions contractions;
    Words words;
    unsigned digits;
    AfterSigns after_signs;
    Lines lines;
} PatternRules;

#define PATTERN_NAMES "gpt2, gpt4, llama3, qwen2 or o200k" // for errors and help

extern const char pattern_words[]; // "|gpt2|gpt4|...", for options from the second byte on

const PatternRules *pattern_rules(Pattern pattern);
const char *pattern_name(Pattern pattern);
const char *pattern_regex(Pattern pattern);
bool pattern_find(const char *name, Pattern *pattern); // false for another name
