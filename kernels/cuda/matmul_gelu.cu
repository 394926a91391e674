// A matrix product with a GELU, or with the gradient of one and the sums of a bias, on compute capability 9.0.
//
// A block goes through tiles of the result. Two warpgroups multiply, each a tile of its own, one after the other: while
// one has the tensor cores, the other computes the GELUs of its tile. A thread of a third warpgroup has the terms of
// all tiles copied, in their order. Sums stay in registers; the results leave in pieces of 64 x 64 through shared
// memory. Backward, the pieces of `pre` come into these buffers first, and the results take their places.
//
// Two blocks are a cluster. Their tiles are one below the other and have the same terms of b, of which each block has
// half copied to both: else the second-level cache would limit the speed.
#include "kernels/cuda/gelu.cuh"
#ifdef ACT_FP32
extern "C" void FOR_ACT(matmul_gelu_by_wgmma)(const MatmulGelu *) {}
#else
#include "kernels/cuda/tma.cuh"

namespace {

enum {
    BLOCKS = 2,                     // of a cluster
    GROUPS = 2,                     // that multiply
    SIDE = 64,                      // of a piece, and the terms of a step
    DOWN = MATMUL_GELU_ROWS / SIDE, // pieces of a tile
    ACROSS = 3,
    STAGES = 4, // of terms
    PIECES = DOWN * ACROSS,
    BUFFERS = 4,         // of pieces on their way, of a warpgroup
    AHEAD = BUFFERS - 1, // backward: pieces of `pre` that are fetched before they are used
    GROUP_THREADS = 128,
    THREADS = (GROUPS + 1) * GROUP_THREADS,
    CHUNKS = SIDE / 8
};

struct Memory {
    uint4 a[STAGES][DOWN][SIDE * CHUNKS], b[STAGES][ACROSS][SIDE * CHUNKS];
    uint4 pieces[GROUPS][BUFFERS][SIDE * CHUNKS];
    float sums[GROUPS][4][SIDE]; // of columns, by each warp
    Barrier landed[STAGES], emptied[STAGES], multiplied[GROUPS], written[GROUPS], arrived[GROUPS][BUFFERS];
};

// The result (M,N), of 64 * steps terms, in pairs of tiles, row by row; and where a tile begins.
struct Tiling {
    int M, N, steps, pairs;
};
struct Place {
    int row, column;
};

} // namespace

// The block's tile is of the pair of the cluster's number i.
INLINE int pair_of(int i) { return (int)(blockIdx.x + i * gridDim.x) / BLOCKS; }

INLINE Place place_of(const Tiling &product, int pair, int block) {
    const int across = (product.N + ACROSS * SIDE - 1) / (ACROSS * SIDE);
    return {(pair / across * BLOCKS + block) * DOWN * SIDE, pair % across * ACROSS * SIDE};
}

// A thread that has the terms of the block's tiles copied: of a, rows with their terms side by side; of b, columns with
// theirs (LINE), or terms with their columns side by side (TERM), half of them, to both blocks.
template <TileRow B>
INLINE void copy_terms(Memory &memory, const Tiling &product, const TensorMap &a, const TensorMap &b, int block) {
    int n = 0;
    for (int i = 0; pair_of(i) < product.pairs; i++) {
        const Place at = place_of(product, pair_of(i), block);
        for (int step = 0; step < product.steps; step++, n++) {
            const int stage = n % STAGES;
            Barrier *landed = &memory.landed[stage];
            barrier_wait(&memory.emptied[stage], (n / STAGES & 1) ^ 1);
            barrier_arrive_with(landed, (DOWN + ACROSS) * TILE_BYTES);
#pragma unroll
            for (int k = 0; k < DOWN; k++) copy_tile(memory.a[stage][k], a, step, at.row + k * SIDE, 0, landed);
            if (B == LINE) {
                const int first = block * ACROSS * SIDE / BLOCKS;
                copy_tile_to_all(memory.b[stage][0] + first * CHUNKS, b, step, at.column + first, 0, landed);
            }
#pragma unroll
            for (int k = 0; k < (B == LINE ? 0 : ACROSS); k++) {
                const int first = block * SIDE / BLOCKS;
                copy_tile_to_all(memory.b[stage][k] + first * CHUNKS, b, at.column / SIDE + k, step * SIDE + first, 0,
                                 landed);
            }
        }
    }
}

// The warp has multiplied step n of the block: both blocks may have their halves of its stage copied.
INLINE void empty_stage(Memory &memory, int n, int block) {
    barrier_arrive(&memory.emptied[n % STAGES]);
    barrier_arrive_at(&memory.emptied[n % STAGES], block ^ 1);
}

// The warpgroup's product of the block's tile number i, after that of the other's number i - 1: a warpgroup that ran
// ahead would take the end of an earlier phase of a stage for that of its own (tma.cuh).
template <TileRow B>
INLINE void multiply_tile(float (&sums)[DOWN][ACROSS * 8][4], Memory &memory, const Tiling &product, int i, int block) {
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
        if (step && arrives) empty_stage(memory, n - 1, block);
    }
    if (arrives) barrier_arrive(&memory.multiplied[i % GROUPS]);
#pragma unroll
    for (int half = 0; half < DOWN; half++) wgmma_wait<0>(sums[half]);
    if (arrives) empty_stage(memory, n - 1, block);
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

// The warp's sums of 64 columns, in their order. x[2k], x[2k + 1]: the lane's of columns 8k + lane % 4 * 2 and the next.
INLINE void sum_columns(float *to, float (&x)[16]) {
    halve<8>(x), halve<4>(x), halve<2>(x);
    ((float2 *)to)[threadIdx.x % 32] = make_float2(x[0], x[1]);
}

// Where a word of the lane is in a piece: two columns of the eight from 8k on, in row lane / 4 + 8r of its warp's. Of eight
// words of a row, number k is at k ^ row % 8.
INLINE uint32_t *word_of(uint4 *piece, int k, int r) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    uint32_t *const row = (uint32_t *)(piece + (warp * 16 + lane / 4) * CHUNKS) + lane % 4;
    return row + r * 8 * CHUNKS * 4 + (k * 4 ^ lane / 4 * 4);
}

// A piece of the results: `pre`, and the GELU of its rounded numbers, which are those of the backward pass.
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

INLINE void open_barriers(Memory &memory) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++)
            barrier_open(&memory.landed[i], 1),
                barrier_open(&memory.emptied[i], BLOCKS * 4); // a thread of each warp of the group that uses the stage
        for (int group = 0; group < GROUPS; group++) {
            barrier_open(&memory.multiplied[group], 4), barrier_open(&memory.written[group], 4);
            for (int i = 0; i < BUFFERS; i++) barrier_open(&memory.arrived[group][i], 1);
        }
        barriers_opened();
    }
    cluster_sync();
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
    const int block = block_in_cluster();
    const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP_THREADS, 0);
    if (group == GROUPS) {
        give_registers<40>();
        if (threadIdx.x == GROUPS * GROUP_THREADS) copy_terms<B>(memory, product, a, b, block);
        __syncwarp();
        return cluster_sync(); // the other block arrives at barriers of this one until it has multiplied its last tile
    }
    take_registers<232>();
    const int thread = threadIdx.x % GROUP_THREADS; // the first one starts the copies of pieces
    // forward: of `out` and `pre`, two of each; backward: piece n is in number n % BUFFERS
    uint4(&pieces)[BUFFERS][SIDE * CHUNKS] = memory.pieces[group];
    // Piece `of` of a tile, down first: sums of columns are complete soon. It is number n of the warpgroup.
    auto fetch = [&](Place at, int of, int n) {
        Barrier *arrived = &memory.arrived[group][n % BUFFERS];
        barrier_arrive_with(arrived, TILE_BYTES);
        copy_tile(pieces[n % BUFFERS], pre, at.column / SIDE + of / DOWN, at.row + of % DOWN * SIDE, 0, arrived);
    };
    int n = 0;
    for (int i = group; pair_of(i) < product.pairs; i += GROUPS) {
        const Place at = place_of(product, pair_of(i), block), next = place_of(product, pair_of(i + GROUPS), block);
        const bool more = pair_of(i + GROUPS) < product.pairs;
        if (BACKWARD && thread == 0 && n == 0)
            for (int of = 0; of < AHEAD; of++) fetch(at, of, of);
        float sums[DOWN][ACROSS * 8][4] = {};
        multiply_tile<B>(sums, memory, product, i, block);
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
                const int row = at.row + down * SIDE, ahead = across * DOWN + down + AHEAD;
                uint4 *const piece = pieces[BACKWARD ? n % BUFFERS : 2 * down], *const pres = pieces[2 * down + 1];
                if (BACKWARD) {
                    barrier_wait(&memory.arrived[group][n % BUFFERS], n / BUFFERS & 1);
                    put_gradients<FORM>(piece, sums[down], across, of_columns);
                } else {
                    put_gelus<FORM>(pres, piece, sums[down], across, biases);
                }
                const bool summed = BACKWARD && parts && down == DOWN - 1;
                if (summed) sum_columns(memory.sums[group][thread / 32], of_columns);
                if (thread == 0) bulk_wait_read(); // the buffers of the piece before are free
                arrive_with_writes(&memory.written[group]);
                barrier_wait(&memory.written[group], n & 1);
                if (thread == 0 && inside && row < product.M) {
                    store_tile(out, column / SIDE, row, 0, piece);
                    if (!BACKWARD) store_tile(pre, column / SIDE, row, 0, pres);
                    bulk_commit();
                }
                if (BACKWARD && thread == 0 && (ahead < PIECES || more))
                    fetch(ahead < PIECES ? at : next, ahead % PIECES, n + AHEAD);
                if (summed && inside && at.row < product.M && thread < SIDE) {
                    const float *const of = memory.sums[group][0] + thread;
                    parts[(size_t)(at.row / (DOWN * SIDE)) * product.N + column + thread] =
                        of[0] + of[SIDE] + of[2 * SIDE] + of[3 * SIDE];
                }
            }
        }
    }
    if (thread == 0) bulk_wait();
    __syncwarp();
    cluster_sync();
}

// Its heads are each 64 columns, its tiles have `height` rows.
static TensorMap matrix_map(const void *at, int rows, int columns, int height = SIDE) {
    return tensor_map(at, 1, rows, columns / SIDE, SIDE, height);
}

template <Activation FORM, bool BACKWARD> static void run(const MatmulGelu *of, const Tiling &product) {
    static const cudaError_t allowed = ALLOW_SHARED((matmul_gelu<FORM, BACKWARD>), (int)sizeof(Memory));
    cuda_check(allowed, "matmul_gelu");
    const int K = product.steps * SIDE;
    const TensorMap w =
        BACKWARD ? matrix_map(of->w, K, of->N, SIDE / BLOCKS) : matrix_map(of->w, of->N, K, ACROSS * SIDE / BLOCKS);
    LAUNCH_CLUSTERS(BLOCKS, (matmul_gelu<FORM, BACKWARD>),
                    BLOCKS * std::min(product.pairs, std::max(cuda.multiprocessors / BLOCKS, 1)), THREADS,
                    sizeof(Memory), cuda.stream, matrix_map(of->in, of->M, K), w, matrix_map(of->pre, of->M, of->N),
                    matrix_map(of->out, of->M, of->N), (const act *)of->bias, of->dbias ? (float *)cuda.scratch : NULL,
                    product);
}

extern "C" void FOR_ACT(matmul_gelu_by_wgmma)(const MatmulGelu *of) {
    const int down = (int)blocks_of((size_t)of->M, DOWN * SIDE), across = (int)blocks_of((size_t)of->N, ACROSS * SIDE);
    const Tiling product = {of->M, of->N, of->K / SIDE, (down + BLOCKS - 1) / BLOCKS * across};
#define RUN(form) (of->backward ? run<form, true>(of, product) : run<form, false>(of, product))
    if (of->form == ACTIVATION_GELU) RUN(ACTIVATION_GELU);
    if (of->form == ACTIVATION_GELU_TANH) RUN(ACTIVATION_GELU_TANH);
    if (of->form == ACTIVATION_RELU2) RUN(ACTIVATION_RELU2);
#undef RUN
    if (of->dbias) FOR_ACT(add_parts)(of->dbias, NULL, (const float *)cuda.scratch, down, of->N, of->N, of->add);
}
#endif
