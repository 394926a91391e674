// The readers of the formats. The file begins with the magic number that selects the reader.
#pragma once

#include "trainer/import/foreign_model.h"

// Sizes that a file claims, checked before they are used. -1 after fail(): 65.
typedef struct {
    int64_t layers, heads, channels, block, vocab;
} ForeignSizes;
int foreign_shape(ModelShape *shape, const ForeignSizes *sizes);

// Opens foreign->model and allocates foreign->tensors.
void foreign_begin(ForeignModel *foreign, const ModelShape *shape);

int llmc_open(ForeignModel *foreign, Bytes file, bool exact_gelu);
int nanogpt_open(ForeignModel *foreign, Bytes file, bool exact_gelu);
