// Products in bf16 on AMX tiles: the weight gradient, the input gradient of the head, and products of small matrices
// for operations that have their operands in cache.
#pragma once

#include "kernels/backend.h"

#ifdef __x86_64__
// true if this processor and the operating system allow AMX with bf16; requests the permission.
bool amx_open(void);
#else // no function below is linked, and none is called
static inline bool amx_open(void) { return false; }
#pragma weak amx_tiles
#pragma weak amx_backward_weight
#pragma weak amx_backward_input
#pragma weak amx_scratch
#pragma weak amx_input_scratch
#endif

enum { AMX_BLOCK = 32 }; // rows, columns and depth of a product by amx_tiles are multiples of it

// c (rows, columns) (+)= a * b, summed over `depth`. a (rows, depth / 2) and b (depth / 2, columns) hold pairs of
// numbers that are neighbours in the sum; strides are in elements of 32 bits. Requires amx_open.
void amx_tiles(int rows, int columns, int depth, const uint32_t *a, size_t a_row, const uint32_t *b, size_t b_row,
               float *c, size_t c_row, bool add);

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
