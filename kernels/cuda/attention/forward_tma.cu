// forward.cu for heads of 64 channels on compute capability 9.0, with copies by one thread. Each of two
// warpgroups has a tile of 64 queries and goes through its keys by itself, as far as the stages of shared memory allow:
// the products with the keys of the next step and with the values of this one are under way during an exponential.
#ifndef ACT_FP32
#include "kernels/cuda/attention/softmax.cuh"
#include "kernels/cuda/tma.cuh"

namespace {

enum {
    GROUPS = 2, // that multiply
    SIDE = 64,  // queries of a warpgroup, and keys of a step
    QUERIES = GROUPS * SIDE,
    GROUP_THREADS = 128,
    THREADS = GROUPS * GROUP_THREADS,
    STAGES = 4,           // of keys and values
    TILES_TOGETHER = 768, // of keys, of the heads that are computed together
    CHUNKS = SIDE / 8
};

struct Tiles {
    uint4 q[GROUPS][SIDE * CHUNKS];
    uint4 k[STAGES][SIDE * CHUNKS], v[STAGES][SIDE * CHUNKS];
    Barrier landed[STAGES], emptied[STAGES];
};

// A block: QUERIES queries from tile * SIDE on, of one head of one sequence, and tiles of keys from `first` to `end`.
struct Block {
    int b, h, tile, first, end;
};

} // namespace

// Warp 0: has the tile's keys and values copied, with the first the queries. From block.end on: nothing. The whole
// warp waits, as the compiler gives up uniform registers in a loop of one thread.
INLINE void copy_keys(Tiles &tiles, const Block &block, const TensorMap &qkv, int H, int tile) {
    if (__shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0) || tile >= block.end) return;
    const int n = tile - block.first, stage = n % STAGES;
    Barrier *landed = &tiles.landed[stage];
    if (n >= STAGES) barrier_wait(&tiles.emptied[stage], (n / STAGES & 1) ^ 1);
    if (threadIdx.x == 0) {
        barrier_arrive_with(landed, (n ? 2 : 2 + GROUPS) * TILE_BYTES);
        for (int group = 0; group < (n ? 0 : GROUPS); group++)
            copy_tile(tiles.q[group], qkv, block.h, (block.tile + group) * SIDE, block.b, landed);
        copy_tile(tiles.k[stage], qkv, H + block.h, tile * SIDE, block.b, landed);
        copy_tile(tiles.v[stage], qkv, 2 * H + block.h, tile * SIDE, block.b, landed);
    }
    __syncwarp();
}

__global__ void __launch_bounds__(THREADS, 2)
    attention_forward_tma(act *__restrict__ out, float *__restrict__ lse, const __grid_constant__ TensorMap qkv,
                          AttentionMask mask, const int32_t *positions, int T, int H, int wave, int together) {
    if (!has_wgmma) return;
    DYNAMIC_SHARED(uint4, memory);
    Tiles &tiles = *(Tiles *)memory;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            barrier_open(&tiles.landed[i], 1),
                barrier_open(&tiles.emptied[i], GROUPS * 4); // a thread of each warp arrives
        barriers_opened();
    }
    __syncthreads();
    const RowsOfBlock mine = rows_of_block(wave, together);
    const int block_tile = ((T - 1) / QUERIES - mine.last) * GROUPS, b = mine.b, h = mine.h;
    const int first = positions ? 0 : first_key_at(mask, b, block_tile * SIDE, T) / SIDE;
    const Block block = {b, h, block_tile, __shfl_sync(0xffffffffu, first, 0),
                         min(block_tile + GROUPS, (T - 1) / SIDE + 1)};
    for (int i = 0; i < STAGES - 1; i++) copy_keys(tiles, block, qkv, H, block.first + i);
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP_THREADS, 0);
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane >> 2, t4 = lane & 3;
    const int diagonal = block.tile + group, row = diagonal * SIDE + warp * 16 + g;
    const int last_first_key = first_key_at(mask, b, row - g + 15, T); // of the warp
    const float scale = LOG2E * rsqrtf((float)SIDE);                   // exponentials are powers of two
    Softmax<SIDE> softmax = {};
    softmax.most[0] = softmax.most[1] = -INFINITY;
    float s[SIDE / 8][4], fades[2];
    uint32_t p[SIDE / 16][4], kept = 0;
    auto multiply_keys = [&](int tile) {
        const int n = tile - block.first;
        if (mask.dropout) kept = kept_scores<QUERY_ROWS, SIDE>(mask, b, h, row - g, tile * SIDE, T, lane);
        barrier_wait(&tiles.landed[n % STAGES], n / STAGES & 1);
        wgmma_fence();
#pragma unroll
        for (int d = 0; d < SIDE / 16; d++) wgmma<LINE, LINE>(s, tiles.q[group], tiles.k[n % STAGES], d, d > 0);
        wgmma_commit();
    };
    auto multiply_values = [&](int tile) {
#pragma unroll
        for (int kk = 0; kk < SIDE / 16; kk++)
            wgmma<TERM>(softmax.sums, p[kk], tiles.v[(tile - block.first) % STAGES], kk);
        wgmma_commit();
    };
    auto weigh = [&](int tile) {
        const int key = tile * SIDE + 2 * t4;
        if (tile == diagonal) hide_later_keys<QUERY_ROWS>(s, row, key);
        if (last_first_key > tile * SIDE) mask_scores<QUERY_ROWS>(s, mask, b, row, key, T, positions);
        softmax_weigh(softmax, s, fades, scale);
        if (mask.dropout) drop_scores<QUERY_ROWS>(s, kept, 1);
    };
    int tile = block.first;
    multiply_keys(tile);
    wgmma_wait<0>(s);
    weigh(tile);
    softmax_pack(p, s);
    for (; tile < min(diagonal, block.end - 1); tile++) {
        multiply_keys(tile + 1);
        multiply_values(tile);
        copy_keys(tiles, block, qkv, H,
                  tile + STAGES - 1); // in the stage of tile - 1; waits for the other warpgroup
        wgmma_wait<1>(s);
        weigh(tile + 1);
        wgmma_wait<0>(softmax.sums);
        if (lane == 0) barrier_arrive(&tiles.emptied[(tile - block.first) % STAGES]);
        softmax_fade(softmax, fades);
        softmax_pack(p, s);
    }
    wgmma_fence();
    multiply_values(tile);
    wgmma_wait<0>(softmax.sums);
    softmax_store(softmax, out, lse, scale, mask.dropout ? mask.dropout->scale : 1.0f, b, h, row, T, H, SIDE, t4);
}

void FOR_ACT(attention_forward_by_tma)(Act *out, float *lse, const Act *qkv, const Attention &a) {
    auto kernel = attention_forward_tma;
    static const cudaError_t allowed = ALLOW_SHARED(kernel, (int)sizeof(Tiles));
    cuda_check(allowed, "attention_forward");
    static const int resident = resident_blocks(kernel, THREADS, sizeof(Tiles));
    const dim3 grid(blocks_of((size_t)(a.T - a.from / QUERIES * QUERIES), QUERIES), (unsigned)a.H, (unsigned)a.B);
    LAUNCH(kernel, grid, THREADS, sizeof(Tiles), cuda.stream, (act *)out, lse,
           tensor_map(qkv, a.B, a.T, 3 * a.H, a.D, SIDE), attention_mask(a), a.positions, a.T, a.H,
           wave_of(grid, resident), std::max(TILES_TOGETHER / (a.T / SIDE), 1));
}

extern "C" bool FOR_ACT(attention_has_wgmma)(void) { return ptx_version(attention_forward_tma) >= 90; }
#endif
