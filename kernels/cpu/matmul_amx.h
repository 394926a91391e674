// The weight gradient in bf16 on AMX tiles.
#pragma once

#include "kernels/backend.h"

// true if this processor and the operating system allow AMX with bf16; requests the permission.
bool amx_open(void);

// dw (rows,cols) (+)= dout^T * in; dout (M,rows), in (M,cols) in bf16. Sums run over the rows in ascending order,
// whatever the number of threads. scratch: amx_scratch(cols, threads) bytes, 64-byte aligned.
void amx_backward_weight(float *dw, const uint16_t *dout, const uint16_t *in, int M, int rows, int cols, bool add,
                         void *scratch);
size_t amx_scratch(int cols, int threads);
