// Products of small bf16 matrices on AMX tiles, for operations that have their operands in cache.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AMX_BLOCK = 32 }; // rows, columns and depth of a product are multiples of it

// c (rows, columns) (+)= a * b, summed over `depth`. a (rows, depth / 2) and b (depth / 2, columns) hold pairs of
// numbers that are neighbours in the sum; strides are in elements of 32 bits. Requires amx_open (matmul_amx.h).
void amx_tiles(int rows, int columns, int depth, const uint32_t *a, size_t a_row, const uint32_t *b, size_t b_row,
               float *c, size_t c_row, bool add);
