// The files from which transformers makes the tokenizer and the text generation of a model, written from the built-in
// merge table: vocab.json, merges.txt, tokenizer.json, tokenizer_config.json, generation_config.json.
#pragma once

#include "trainer/shape/params.h"

int tokenizer_files_write(const char *directory, const ModelShape *shape); // -1 after fail()
