// What attention forward and backward share: tiles of packed qkv (B,T,3,H,D) in shared memory. Kernels exist for head
// dimensions D of 64, 96 and 128; a smaller one (`width`, a multiple of 8) runs as the next of them, its missing
// columns read as zeros and never written.
#pragma once

#include "kernels/cuda/ptx.cuh"

enum { TILE = 64 }; // rows of scratch are padded to it

// Turing: a block has at most 64 KiB of shared memory, and so has a multiprocessor. What needs more is not launched
// there, and of the rest one block at a time has all registers.
template <size_t SHARED_BYTES> constexpr bool is_launched = ARCH >= 800 || SHARED_BYTES <= 64 << 10;
// Compute capability 12.0 spills with three, and its shared memory holds two.
template <int BLOCKS> constexpr int blocks_at_once = ARCH<800 ? 1 : ARCH >= 1200 && BLOCKS> 2 ? 2 : BLOCKS;

// Index of 16-byte chunk `chunk` of `row` in a tile W chunks wide. The xor spreads every eight rows that an ldmatrix
// reads over all the banks.
template <int W> INLINE int chunk_at(int row, int chunk) {
    return row * W + (chunk ^ (W % 8 == 0 ? row & 7 : W % 4 == 0 ? row >> 1 & 3 : row >> 2 & 1));
}

// Where ldmatrix reads its four 8x8 matrices: rows by lane%16, then chunks (operand A; B of the transposed form) ...
template <int W> INLINE int rows_first(int row, int chunk, int lane) {
    return chunk_at<W>(row + (lane & 15), chunk + (lane >> 4));
}
// ... or chunks first, then rows (operand B; A of the transposed form).
template <int W> INLINE int chunks_first(int row, int chunk, int lane) {
    return chunk_at<W>(row + (lane & 7) + (lane >> 4) * 8, chunk + (lane >> 3 & 1));
}

// Starts the copy of rows [row, row + ROWS) of src; rows from T on and columns from width on are zeros.
template <int W, int ROWS, int THREADS>
INLINE void load_tile(uint4 *tile, const act *src, int stride, int row, int T, int width) {
    static_assert(ROWS * W % THREADS == 0, "whole rounds: a loop from threadIdx.x to a bound would not be unrolled");
#pragma unroll
    for (int j = 0; j < ROWS * W / THREADS; j++) {
        int i = j * THREADS + threadIdx.x, r = i / W, c = i % W;
        bool inside = row + r < T && c * 8 < width;
        cp_async16(tile + chunk_at<W>(r, c), src + (inside ? (row + r) * stride + c * 8 : 0), inside);
    }
}

// The kernel width for a head of D channels.
static inline int attention_width(int D) {
    assert(D % 8 == 0 && D <= HEAD_MAX);
    return D <= 64 ? 64 : D <= 96 ? 96 : 128;
}
