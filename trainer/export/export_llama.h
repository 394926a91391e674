// Models with options for other tools, under the names of transformers' Llama, or of its Qwen3 with qk_norm.
#pragma once

#include "common/bytes.h"
#include "trainer/shape/params.h"

int llama_check(const ModelShape *shape); // -1 (2) with the reason when these models compute something else

// Writes the model.safetensors `from` of that shape, in F32, as the file `to`. -1 after fail().
int llama_write(const char *from, const char *to, const ModelShape *shape, Dtype type);
void llama_config_print(const ModelShape *shape, Dtype type, Buffer *out);
