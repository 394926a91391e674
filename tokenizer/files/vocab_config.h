// tokenizer_config.json and added_tokens.json, which lie beside tokenizer.json or vocab.json with merges.txt of a model
// of Hugging Face and change what AutoTokenizer makes of them.
#pragma once

#include "tokenizer/merge/vocab.h"

// The pattern of vocab.json with merges.txt in a directory, which have none themselves: *pattern as named, or NULL for
// GPT-2's. -1 after fail() (2) when the class of tokenizer_config.json has another pattern than the named one, or one
// that is not known here and is not named.
int vocab_config_pattern(const char *directory, const char *pattern);

// -1 after fail() (65) when the files require what the encoder does not do, or tokens that the vocabulary does not have.
int vocab_config_check(const char *directory, const Vocab *vocab);
