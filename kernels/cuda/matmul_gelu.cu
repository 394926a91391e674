// A matrix product with a GELU, or with the gradient of one and the sums of a bias, on compute capability 9.0.
//
// A block goes through tiles of the result. Two warpgroups multiply, each a tile of its own, one after the other: while
// one has the tensor cores, the other computes the GELUs of its tile. A thread of a third warpgroup has the terms of
// all tiles copied, in their order. Sums stay in registers; the results leave in pieces of 16 x 64 through shared
// memory, and each warp has its own. Backward, the pieces of `pre` come into these buffers first, and the results take
// their places.
#include "kernels/cuda/gelu.cuh"
#ifdef ACT_FP32
extern "C" void FOR_ACT(matmul_gelu_by_wgmma)(const MatmulGelu *) {}
#else
#include "kernels/cuda/tma.cuh"

namespace {

enum {
    GROUPS = 2,                     // that multiply
    SIDE = 64,                      // columns of a piece, rows of a product, and the terms of a step
    DOWN = MATMUL_GELU_ROWS / SIDE, // pieces of a warp in a tile
    ACROSS = 3,
    STAGES = 4, // of terms
    PIECES = DOWN * ACROSS,
    PIECE_ROWS = 16,
    BUFFERS = 4,         // of pieces on their way, of a warp
    AHEAD = BUFFERS - 1, // backward: pieces of `pre` that are fetched before they are used
    WARPS = 4,           // of a warpgroup
    GROUP_THREADS = WARPS * 32,
    THREADS = (GROUPS + 1) * GROUP_THREADS,
    CHUNKS = SIDE / 8
};

struct Memory {
    uint4 a[STAGES][DOWN][SIDE * CHUNKS], b[STAGES][ACROSS][SIDE * CHUNKS];
    uint4 pieces[GROUPS * WARPS][BUFFERS][PIECE_ROWS * CHUNKS];
    float sums[GROUPS][WARPS][SIDE]; // of columns, by each warp
    Barrier landed[STAGES], emptied[STAGES], multiplied[GROUPS], summed[GROUPS], arrived[GROUPS * WARPS][BUFFERS];
};

// The result (M,N), of 64 * steps terms, in tiles, row by row; and where a tile begins.
struct Tiling {
    int M, N, steps, tiles;
};
struct Place {
    int row, column;
};

} // namespace

// The number of the block's i-th tile.
INLINE int tile_of(int i) { return (int)(blockIdx.x + i * gridDim.x); }

INLINE Place place_of(const Tiling &product, int tile) {
    const int across = (product.N + ACROSS * SIDE - 1) / (ACROSS * SIDE);
    return {tile / across * DOWN * SIDE, tile % across * ACROSS * SIDE};
}

// A thread that has the terms of the block's tiles copied: of a, rows with their terms side by side; of b, columns with
// theirs (LINE), or terms with their columns side by side (TERM).
template <TileRow B>
INLINE void copy_terms(Memory &memory, const Tiling &product, const TensorMap &a, const TensorMap &b) {
    int n = 0;
    for (int i = 0; tile_of(i) < product.tiles; i++) {
        const Place at = place_of(product, tile_of(i));
        for (int step = 0; step < product.steps; step++, n++) {
            const int stage = n % STAGES;
            Barrier *landed = &memory.landed[stage];
            barrier_wait(&memory.emptied[stage], (n / STAGES & 1) ^ 1);
            barrier_arrive_with(landed, (DOWN + ACROSS) * TILE_BYTES);
#pragma unroll
            for (int k = 0; k < DOWN; k++) copy_tile(memory.a[stage][k], a, step, at.row + k * SIDE, 0, landed);
            if (B == LINE) copy_tile(memory.b[stage][0], b, step, at.column, 0, landed);
#pragma unroll
            for (int k = 0; k < (B == LINE ? 0 : ACROSS); k++)
                copy_tile(memory.b[stage][k], b, at.column / SIDE + k, step * SIDE, 0, landed);
        }
    }
}

// The warpgroup's product of the block's tile number i, after the other's product number i - 1: a warpgroup that ran
// ahead would take the end of an earlier phase of a stage for the end of its own (tma.cuh).
template <TileRow B>
INLINE void multiply_tile(float (&sums)[DOWN][ACROSS * 8][4], Memory &memory, const Tiling &product, int i) {
    const bool arrives = threadIdx.x % 32 == 0;
    if (i) barrier_wait(&memory.multiplied[(i - 1) % GROUPS], (i - 1) / GROUPS & 1);
    int n = i * product.steps;
    for (int step = 0; step < product.steps; step++, n++) {
        const int stage = n % STAGES;
        barrier_wait(&memory.landed[stage], n / STAGES & 1);
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < SIDE / WGMMA_TERMS; kk++)
#pragma unroll
            for (int half = 0; half < DOWN; half++)
                wgmma<LINE, B>(sums[half], memory.a[stage][half], memory.b[stage][0], kk);
        wgmma_commit();
        wgmma_wait<1>();
        if (step && arrives) barrier_arrive(&memory.emptied[(n - 1) % STAGES]);
    }
    if (arrives) barrier_arrive(&memory.multiplied[i % GROUPS]);
#pragma unroll
    for (int half = 0; half < DOWN; half++) wgmma_wait<0>(sums[half]);
    if (arrives) barrier_arrive(&memory.emptied[(n - 1) % STAGES]);
}

// A step of a sum over lanes: gives HALF of the first 2 HALF numbers to another lane, and adds the HALF that it
// receives to those it keeps.
template <int HALF> INLINE void halve(float (&x)[16]) {
    const bool upper = threadIdx.x & HALF * 2;
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        const float other = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + HALF], HALF * 2);
        x[i] = (upper ? x[i + HALF] : x[i]) + other;
    }
}

// The warp's sums of 64 columns, in their order. x[2k], x[2k + 1]: the lane's of columns 8k + lane % 4 * 2 and the
// next.
INLINE void sum_columns(float *to, float (&x)[16]) {
    halve<8>(x), halve<4>(x), halve<2>(x);
    ((float2 *)to)[threadIdx.x % 32] = make_float2(x[0], x[1]);
}

// Where a word of the lane is in a piece: two columns of the eight from 8k on, in row lane / 4 + 8r. In a row of eight
// words, number k is at k ^ row % 8.
INLINE uint32_t *word_of(uint4 *piece, int k, int r) {
    const int lane = threadIdx.x % 32;
    uint32_t *const row = (uint32_t *)(piece + lane / 4 * CHUNKS) + lane % 4;
    return row + r * 8 * CHUNKS * 4 + (k * 4 ^ lane / 4 * 4);
}

// A piece of the results: `pre`, and the GELU of its rounded numbers, as in the backward pass.
template <Activation FORM>
INLINE void put_gelus(uint4 *pre, uint4 *out, const float (&sums)[ACROSS * 8][4], int across,
                      const uint32_t (&biases)[8]) {
#pragma unroll
    for (int k = 0; k < 8; k++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float *const sum = &sums[across * 8 + k][2 * r];
            const uint32_t x = pack(sum[0] + low(biases[k]), sum[1] + high(biases[k]));
            put_async(word_of(pre, k, r), x);
            put_async(word_of(out, k, r), pack(gelu_of<FORM>(low(x)), gelu_of<FORM>(high(x))));
        }
}

// A piece of `pre` becomes one of the gradient; adds it to the lane's sums of columns.
template <Activation FORM>
INLINE void put_gradients(uint4 *piece, const float (&sums)[ACROSS * 8][4], int across, float (&of_columns)[16]) {
    uint32_t x[8][2]; // all are read first: a read after a write waits for it
#pragma unroll
    for (int k = 0; k < 8; k++)
#pragma unroll
        for (int r = 0; r < 2; r++) x[k][r] = *word_of(piece, k, r);
#pragma unroll
    for (int k = 0; k < 8; k++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float *const sum = &sums[across * 8 + k][2 * r];
            const uint32_t d = pack(sum[0] * slope_of<FORM>(low(x[k][r])), sum[1] * slope_of<FORM>(high(x[k][r])));
            put_async(word_of(piece, k, r), d);
            of_columns[2 * k] += low(d), of_columns[2 * k + 1] += high(d);
        }
}

// An arrival of the warp.
INLINE void arrive(Barrier *b) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(b);
}

INLINE void open_barriers(Memory &memory) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            barrier_open(&memory.landed[i], 1),
                barrier_open(&memory.emptied[i], WARPS); // a thread of each warp that uses the stage
        for (int group = 0; group < GROUPS; group++)
            barrier_open(&memory.multiplied[group], WARPS), barrier_open(&memory.summed[group], WARPS);
        for (int i = 0; i < GROUPS * WARPS * BUFFERS; i++) barrier_open(&memory.arrived[i / BUFFERS][i % BUFFERS], 1);
        barriers_opened();
    }
    __syncthreads();
}

// Forward: out = gelu(pre), pre = a b + bias. Backward: out = a b * gelu'(pre), and a row of `parts` the column sums of
// a tile of it.
template <Activation FORM, bool BACKWARD>
__global__ void __launch_bounds__(THREADS, 1)
    matmul_gelu(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                const __grid_constant__ TensorMap pre, const __grid_constant__ TensorMap out, const act *bias,
                float *parts, Tiling product) {
    if (!has_wgmma) return;
    constexpr TileRow B = BACKWARD ? TERM : LINE;
    DYNAMIC_SHARED(uint4, bytes);
    Memory &memory = *(Memory *)bytes;
    open_barriers(memory);
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP_THREADS, 0);
    if (group == GROUPS) {
        give_registers<40>();
        if (threadIdx.x == GROUPS * GROUP_THREADS) copy_terms<B>(memory, product, a, b);
        return;
    }
    take_registers<232>();
    const int thread = threadIdx.x % GROUP_THREADS, warp = thread / 32;
    const bool starts = thread % 32 == 0; // the copies of the warp's pieces
    // forward: of `out` and `pre`, two of each; backward: piece n is in number n % BUFFERS
    uint4(&pieces)[BUFFERS][PIECE_ROWS * CHUNKS] = memory.pieces[group * WARPS + warp];
    Barrier(&arrived)[BUFFERS] = memory.arrived[group * WARPS + warp];
    // Piece `of` of a tile, down first: sums of columns are complete soon. It is number n of the warp.
    auto fetch = [&](Place at, int of, int n) {
        barrier_arrive_with(&arrived[n % BUFFERS], PIECE_ROWS * SIDE * (int)sizeof(act));
        copy_tile(pieces[n % BUFFERS], pre, at.column / SIDE + of / DOWN, at.row + of % DOWN * SIDE + warp * PIECE_ROWS,
                  0, &arrived[n % BUFFERS]);
    };
    int n = 0;
    for (int i = group; tile_of(i) < product.tiles; i += GROUPS) {
        const Place at = place_of(product, tile_of(i)), next = place_of(product, tile_of(i + GROUPS));
        const bool more = tile_of(i + GROUPS) < product.tiles;
        if (BACKWARD && starts && n == 0)
            for (int of = 0; of < AHEAD; of++) fetch(at, of, of);
        float sums[DOWN][ACROSS * 8][4] = {};
        multiply_tile<B>(sums, memory, product, i);
#pragma unroll
        for (int across = 0; across < ACROSS; across++) {
            const int column = at.column + across * SIDE;
            const bool inside = column < product.N;
            uint32_t biases[8] = {};
            if (!BACKWARD && bias && inside)
#pragma unroll
                for (int k = 0; k < 8; k++) biases[k] = *(const uint32_t *)(bias + column + k * 8 + thread % 4 * 2);
            float of_columns[16] = {};
#pragma unroll
            for (int down = 0; down < DOWN; down++, n++) {
                const int row = at.row + down * SIDE + warp * PIECE_ROWS, ahead = across * DOWN + down + AHEAD;
                uint4 *const piece = pieces[BACKWARD ? n % BUFFERS : 2 * down], *const pres = pieces[2 * down + 1];
                if (BACKWARD) {
                    barrier_wait(&arrived[n % BUFFERS], n / BUFFERS & 1);
                    put_gradients<FORM>(piece, sums[down], across, of_columns);
                } else {
                    put_gelus<FORM>(pres, piece, sums[down], across, biases);
                }
                async_fence();
                if (starts) bulk_wait_read(); // the buffers of the piece before are free
                __syncwarp();
                if (starts) {
                    store_tile(out, column / SIDE, row, 0, piece);
                    if (!BACKWARD) store_tile(pre, column / SIDE, row, 0, pres);
                    bulk_commit();
                    if (BACKWARD && (ahead < PIECES || more))
                        fetch(ahead < PIECES ? at : next, ahead % PIECES, n + AHEAD);
                }
            }
            if (BACKWARD && parts) {
                float(&of)[WARPS][SIDE] = memory.sums[group];
                barrier_wait(&memory.summed[group], 1); // the last sums have been read
                sum_columns(of[warp], of_columns);
                arrive(&memory.summed[group]);
                barrier_wait(&memory.summed[group], 0);
                if (inside && at.row < product.M && thread < SIDE)
                    parts[(size_t)(at.row / (DOWN * SIDE)) * product.N + column + thread] =
                        of[0][thread] + of[1][thread] + of[2][thread] + of[3][thread];
                arrive(&memory.summed[group]);
            }
        }
    }
    if (starts) bulk_wait();
}

// Its heads are each 64 columns, its tiles have `height` rows.
static TensorMap matrix_map(const void *at, int rows, int columns, int height) {
    return tensor_map(at, 1, rows, columns / SIDE, SIDE, height);
}

template <Activation FORM, bool BACKWARD> static void run(const MatmulGelu *of, const Tiling &product) {
    static const cudaError_t allowed = ALLOW_SHARED((matmul_gelu<FORM, BACKWARD>), (int)sizeof(Memory));
    cuda_check(allowed, "matmul_gelu");
    const int K = product.steps * SIDE;
    LAUNCH((matmul_gelu<FORM, BACKWARD>), std::min(product.tiles, cuda.multiprocessors), THREADS, sizeof(Memory),
           cuda.stream, matrix_map(of->in, of->M, K, SIDE),
           BACKWARD ? matrix_map(of->w, K, of->N, SIDE) : matrix_map(of->w, of->N, K, ACROSS * SIDE),
           matrix_map(of->pre, of->M, of->N, PIECE_ROWS), matrix_map(of->out, of->M, of->N, PIECE_ROWS),
           (const act *)of->bias, of->dbias ? (float *)cuda.scratch : NULL, product);
}

extern "C" void FOR_ACT(matmul_gelu_by_wgmma)(const MatmulGelu *of) {
    const int down = (int)blocks_of((size_t)of->M, DOWN * SIDE), across = (int)blocks_of((size_t)of->N, ACROSS * SIDE);
    const Tiling product = {of->M, of->N, of->K / SIDE, down * across};
#define RUN(form) (of->backward ? run<form, true>(of, product) : run<form, false>(of, product))
    if (of->form == ACTIVATION_GELU) RUN(ACTIVATION_GELU);
    if (of->form == ACTIVATION_GELU_TANH) RUN(ACTIVATION_GELU_TANH);
    if (of->form == ACTIVATION_RELU2) RUN(ACTIVATION_RELU2);
#undef RUN
    if (of->dbias) FOR_ACT(add_parts)(of->dbias, NULL, (const float *)cuda.scratch, down, of->N, of->N, of->add);
}
#endif
