// The table of patterns.
#include "tokenizer/merge/pattern.h"
#include <string.h>

static const struct {
    const char *name, *regex;
    PatternRules rules;
} patterns[] = {
#define PATTERN(name, regex, ...) {#name, regex, {__VA_ARGS__}},
#include "tokenizer/merge/patterns.def"
#undef PATTERN
};

#define PATTERN(name, ...) "|" #name
const char pattern_words[] =
#include "tokenizer/merge/patterns.def"
    ;
#undef PATTERN

const PatternRules *pattern_rules(Pattern pattern) { return &patterns[pattern].rules; }
const char *pattern_name(Pattern pattern) { return patterns[pattern].name; }
const char *pattern_regex(Pattern pattern) { return patterns[pattern].regex; }

bool pattern_find(const char *name, Pattern *pattern) {
    for (*pattern = 0; *pattern < PATTERN_COUNT; (*pattern)++)
        if (!strcmp(patterns[*pattern].name, name)) return true;
    return false;
}
