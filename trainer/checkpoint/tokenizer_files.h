// The files from which transformers makes the tokenizer and the text generation of a model: vocab.json and merges.txt,
// or characters.txt, and tokenizer.json, tokenizer_config.json, generation_config.json.
#pragma once

#include "trainer/shape/params.h"

enum { TOKENIZER_FILES_BYTES = 3 << 20 }; // more than all of them together

// `from`: the directory with the characters.txt or tokenizer.json of a model whose vocabulary is not GPT-2's; without
// it nothing is written. Files that the directory `other` ("": none) has with the same bytes become hard links to them.
// -1 after fail().
int tokenizer_files_write(const char *directory, const ModelShape *shape, const char *from, const char *other);
// Compares the files of `directory` with those that tokenizer_files_write would write. `which` is set to the name of
// one that differs or is not there, or is left as it is. -1 after fail().
int tokenizer_files_compare(const char *directory, const ModelShape *shape, const char *from, const char **which);
void tokenizer_files_remove(const char *directory); // ignores errors
