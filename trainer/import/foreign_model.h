// Models in the files of other trainers: llm.c's .bin and nanoGPT's ckpt.pt. Only the weights are read; the state of
// the optimizer, the step and the place in the data are left out.
#pragma once

#include "common/arena.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/shape/params.h"

typedef struct {
    const uint8_t *data; // of the map; contiguous, (rows,cols) as in Tensor, not transposed
    Dtype type;
} ForeignTensor;

typedef struct {
    const char *format; // "nanoGPT" or "llm.c"
    Model model;
    ForeignTensor *tensors; // one for each of the model, in the arena
    Bytes map;
    Arena arena;
} ForeignModel;

// Every length, shape and checksum is checked, and every number must be finite. `exact_gelu`: the form of GELU of a
// nanoGPT file, which does not name it. -1 after fail(): 65 with the name of a tensor that is missing,
// not expected, or of another shape.
int foreign_open(ForeignModel *foreign, const char *path, bool exact_gelu);
int foreign_open_bytes(ForeignModel *foreign, Bytes bytes, bool exact_gelu); // the bytes are borrowed
void foreign_close(ForeignModel *foreign);                                   // accepts a zeroed struct

// Writes the tensors in F32 to the new file `path`, with the names and the layout of Hugging Face's GPT-2. `shape`: of
// the model, with as many ids or more, whose embeddings are zeros.
int foreign_write(const ForeignModel *foreign, const char *path, const ModelShape *shape);
