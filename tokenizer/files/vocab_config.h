// tokenizer_config.json, special_tokens_map.json and added_tokens.json, which lie beside tokenizer.json or vocab.json
// with merges.txt of a model of Hugging Face and change the tokenizer that AutoTokenizer makes. The last two count if
// tokenizer_config.json has no added_tokens_decoder.
#pragma once

#include "tokenizer/merge/vocab.h"

// The names in tokenizer_config.json of tokens that may end a document; "" if it names no token.
typedef struct {
    char end_of_text[256], eos_token[256]; // no token has more than 255 bytes
} VocabEnds;
int vocab_config_ends(const char *directory, VocabEnds *ends); // -1 after fail()

// Whether vocab.json with merges.txt alone give the ids of the vocabulary: their readers cut text by the pattern of
// GPT-2, and take no piece for a token that merges do not make.
bool vocab_has_pair(const Vocab *vocab);

// Checks the pattern that was named for vocab.json with merges.txt in a directory, which name none themselves, or NULL
// for GPT-2's. -1 after fail() (2) when the class of tokenizer_config.json has another pattern than the named one, or
// one that is not known here and is not named.
int vocab_config_pattern(const char *directory, const char *pattern);

// -1 after fail() (65) when the files require a step that the encoder lacks, or tokens that the vocabulary lacks.
int vocab_config_check(const char *directory, const Vocab *vocab);
