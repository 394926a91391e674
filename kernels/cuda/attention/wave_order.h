// The order of blocks of different lengths. For C and C++, on host and device.
//
// In a grid that runs at once, all of its blocks resident, multiprocessor i has blocks i, i + M, i + 2M of M
// multiprocessors. Ranked by length, rows of M blocks go back and forth, so that the multiprocessor with the longest
// block of a row has the shortest of the next.
//
// In a longer one, a multiprocessor takes the next block when it is free. Several heads are computed together, as many
// as the cache holds, their longest blocks first: only short ones are left at the end.
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

typedef struct {
    int head, rank; // the rank of the block in its head, 0 the longest
} BlockOfHead;

// Block `id` of a grid of `heads` heads of `blocks` blocks each.
WAVE_INLINE BlockOfHead block_of_head(int id, int blocks, int heads, int together) {
    const int first = id / (together * blocks) * together, left = heads - first;
    const int count = left < together ? left : together, place = id - first * blocks;
    const BlockOfHead block = {first + place % count, place / count};
    return block;
}
