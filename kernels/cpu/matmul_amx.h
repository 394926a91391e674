// The weight gradient, and the input gradient of the head, in bf16 on AMX tiles.
#pragma once

#include "kernels/backend.h"

// true if this processor and the operating system allow AMX with bf16; requests the permission.
bool amx_open(void);

// dw (rows,cols) (+)= dout^T * in; dout (M,rows), in (M,cols) in bf16. Sums run over the rows in ascending order,
// whatever the number of threads. scratch: amx_scratch(cols, threads) bytes, 64-byte aligned.
void amx_backward_weight(float *dw, const uint16_t *dout, const uint16_t *in, int M, int rows, int cols, bool add,
                         void *scratch);
size_t amx_scratch(int cols, int threads);

// din (M,cols) = dout (M,rows) * w for a w with many rows, in bf16: rows is a multiple of 32, cols of 64, and w is
// packed in panels of 64 columns. Sums run over the rows of w in ascending order, whatever the number of threads.
// scratch: amx_input_scratch(cols, threads) bytes, 64-byte aligned.
void amx_backward_input(uint16_t *din, const uint16_t *dout, const uint16_t *w, int M, int rows, int cols,
                        void *scratch);
size_t amx_input_scratch(int cols, int threads);
