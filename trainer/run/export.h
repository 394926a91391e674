// A model directory for other tools: model.safetensors in a type of choice, config.json and the tokenizer files.
#pragma once

#include "trainer/config/config.h"
#include "trainer/model/params.h"

// Copies the model.safetensors of `from`, a model of that shape in F32, to the new directory `to`. -1 after fail(): 65
// when a number is too large for the type, 73 when `to` exists.
int model_export(const char *from, const char *to, const ModelShape *shape, Dtype type);
