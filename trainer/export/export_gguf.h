// Models as GGUF files, for llama.cpp and programs that are made of it.
#pragma once

#include "tokenizer/tokenizer.h"
#include "trainer/export/gguf_file.h"
#include "trainer/shape/params.h"

// Writes the model.safetensors of the directory `from`, a model of that shape in F32, as a file, whose matrices have
// that type. -1 after fail(): 2 when llama.cpp has no architecture that computes the model, or no pattern that gives
// the ids; 65 when a number is too large for the type.
int gguf_export(const char *from, const char *to, const ModelShape *shape, const Vocab *vocab, GgufType type);
