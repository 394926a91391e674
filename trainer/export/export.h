// A model directory for other tools: model.safetensors in a type of choice, config.json and the tokenizer files.
#pragma once

#include "trainer/checkpoint/safetensors.h"
#include "trainer/shape/params.h"

// Copies the model.safetensors of `from`, a model of that shape in F32, to the empty directory `to`. -1 after fail():
// 65 when a number is too large for the type, 2 when no other tool has a model that computes the same. A vocabulary of
// characters is in its characters.txt before.
int model_export(const char *from, const char *to, const ModelShape *shape, Dtype type);

// Writes numbers of the tensor `name`. -1 after fail(): 65 when one is too large for the type of the file.
int export_write(SafeWriter *writer, const char *name, const float *values, size_t count);

// Writes config.json and the tokenizer files for a model.safetensors with tensors of that type, and for a
// characters.txt if the vocabulary is not GPT-2's. -1 after fail().
int export_finish(const char *to, const ModelShape *shape, Dtype type);
