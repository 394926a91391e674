// The tensors of another tool's file: whole tensors of a model, or some of their rows, under names of a table.
#pragma once

#include "trainer/checkpoint/safetensors.h"
#include "trainer/shape/params.h"

enum { PIECE_WHOLE = -1 };

typedef struct {
    ParamId id;
    int part; // of tensor_parts(), or PIECE_WHOLE
    const char *name;
} PieceName;

typedef struct {
    const Tensor *tensor;
    int first, rows; // of the tensor
    int head;        // rows of a head whose halves are interleaved (row 0, row head/2, row 1, ...); 0: rows as they are
    char name[SAFE_NAME_BYTES];
} Piece;

static inline bool piece_is_vector(const Piece *piece) { return piece->tensor->kind >= KIND_GAIN; }

// Those that the model has, in its order; the caller frees them.
Piece *pieces_of(const Model *model, const PieceName *names, int name_count, int *count);

// Gives a piece of a checkpoint row by row, outputs x inputs; a vector is one row. -1 after fail(), also of `write`.
int piece_copy(const SafeFile *file, const Piece *piece,
               int (*write)(void *to, const Piece *piece, const float *values, size_t count), void *to);
