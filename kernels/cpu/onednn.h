// One matrix product at a time, in any of the three directions of a layer. Row-major operands; `type` below is the one
// product_open() was given.
#pragma once

#include "common/machine/cpu.h"
#include <stdbool.h>
#include <stddef.h>

typedef enum {
    FORWARD,        // c (M,rows) = a (M,cols) * w^T + bias
    BACKWARD_INPUT, // c (M,cols) = a (M,rows) * w
    BACKWARD_WEIGHT // c (rows,cols), fp32 = a^T * b; a (M,rows), b (M,cols)
} Direction;

// packed: b of the first two is in the layout below, else it is w (rows,cols) itself, and all types are fp32.
// -1 after fail() if product_library_check fails.
int product_open(bool bf16, bool packed);
void product_close(void);
bool product_has_onednn(void); // else panels compute every product: onednn_none.c (make ONEDNN=0)
bool product_has_avx512(void); // oneDNN multiplies with AVX-512
bool product_has_amx(void);    // oneDNN multiplies bf16 on AMX tiles (DNNL_MAX_CPU_ISA may forbid it)
void product_cap(Isa isa);     // oneDNN selects its own instructions: none above these
// The library and its instructions, on which the bits of products depend: "oneDNN 2.6.3 (instructions 0xff)".
void product_library(char text[64]);

// Which oneDNN was found: "oneDNN 2.6.3 for OpenMP, /usr/lib/libdnnl.so.2". -1 after fail() (71) when it is one that
// the program cannot work with: only those for OpenMP and for one thread keep to the threads that this program has set.
enum { PRODUCT_LIBRARY = 512 };
int product_library_check(char text[PRODUCT_LIBRARY]);

// add: to c, else over it. bias (rows) fp32 or NULL.
void product(Direction direction, int M, int rows, int cols, bool add, const void *a, const void *b, const float *bias,
             void *c);

// With `packed`: the layout of w for a direction. block: how many outputs are together (CpuVariant's packers), 0 when
// only oneDNN can write it: product_reorder.
size_t product_layout_bytes(Direction direction, int rows, int cols);
int product_layout_block(Direction direction, int rows, int cols);
void product_reorder(Direction direction, const float *w, int rows, int cols, void *packed);
