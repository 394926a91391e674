// The files beside a model from which transformers makes its tokenizer and its text generation, written from the
// program's own merge table: vocab.json, merges.txt, tokenizer.json, tokenizer_config.json, generation_config.json.
#pragma once

#include "trainer/shape/params.h"

int tokenizer_files_write(const char *directory, const ModelShape *shape); // -1 after fail()
