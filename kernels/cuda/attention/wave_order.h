// The order of blocks of different lengths in a grid that runs at once, all of its blocks resident: multiprocessor i has
// blocks i, i + M, i + 2M of M multiprocessors. Ranked by length, rows of M blocks go back and forth, so that the
// multiprocessor with the longest block of a row has the shortest of the next. For C and C++, on host and device.
#pragma once

#ifdef __CUDACC__
#define WAVE_INLINE static __host__ __device__ __forceinline__
#else
#define WAVE_INLINE static inline
#endif

// The rank, 0 the longest, of block `id` of `count`.
WAVE_INLINE int wave_rank(int id, int count, int multiprocessors) {
    const int row = id / multiprocessors, first = row * multiprocessors, left = count - first;
    return row % 2 ? first + (left < multiprocessors ? left : multiprocessors) - 1 - (id - first) : id;
}
