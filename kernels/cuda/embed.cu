// Token and position embeddings. One thread moves eight channels.
#include "kernels/cuda/ptx.cuh"

enum { THREADS = 256 };
#ifndef SORTED_TOKENS // tests set a smaller number, so that small batches have many chunks
#define SORTED_TOKENS EMBED_SORTED
#endif
enum { SORTED = SORTED_TOKENS };                          // tokens that one block of embed_sort_tokens sorts
enum { PLACE_BITS = 10, PLACES = (1 << PLACE_BITS) - 1 }; // of a key, below the token, which has at most 20
static_assert(SORTED <= 1 << PLACE_BITS && IDS_MAX <= 1 << 20, "a token and its place fit a key");

__global__ void __launch_bounds__(THREADS) embed(act *out, const void *rows, unsigned bytes, const int32_t *positions,
                                                 const act *wte, const act *wpe, size_t vectors, int T, int C) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= vectors) return;
    int per_row = C / 8, n = (int)(i / per_row), c = (int)(i % per_row) * 8;
    float token[8], position[8];
    load8(token, wte + (size_t)token_at(rows, n + n / T, bytes) * C + c); // rows hold T+1 tokens
    if (wpe) {
        load8(position, wpe + (size_t)(positions ? positions[n] : n % T) * C + c);
#pragma unroll
        for (int k = 0; k < 8; k++) token[k] += position[k];
    }
    store8(out + i * 8, token);
}

void FOR_ACT(cuda_embed_forward)(Res *out, const void *rows, const int32_t *positions, const Par *wte, const Par *wpe,
                                 int B, int T, int C, int vocab) {
    size_t vectors = (size_t)B * T * C / 8;
    LAUNCH(embed, blocks_of(vectors, THREADS), THREADS, 0, cuda.stream, (act *)out, rows, id_bytes(vocab), positions,
           (const act *)wte, (const act *)wpe, vectors, T, C);
}

// Backward. dwte adds up rows of dout that may be anywhere, in an order that must not depend on timing: chunks of
// SORTED tokens are sorted by (token, position), then the block of a token's first place finds its run in every chunk
// and adds them in order. No atomics of sums, and rows of dwte that nothing belongs to are not touched. A run of more
// than MANY rows makes its token a frequent one: of text at B = 64 the first has 2,000 rows. Blocks of STRANDS warps
// add pieces of its runs, and then the sums of the warps in order.
enum { STRANDS = 32, PIECE = SORTED / STRANDS, MANY = SORTED < 256 ? 2 : EMBED_MANY, FREQUENT_BLOCKS = 128 };

static __global__ void __launch_bounds__(SORTED)
    embed_sort_tokens(uint32_t *keys, uint32_t *frequent, const void *rows, unsigned bytes, int N, int T) {
    SHARED(uint32_t, key, SORTED);
    int me = threadIdx.x, n = blockIdx.x * SORTED + me;
    if (n == 0) *frequent = 0;
    key[me] = n < N ? token_at(rows, n + n / T, bytes) << PLACE_BITS | me : UINT32_MAX; // above the key of any token
    for (int size = 2; size <= SORTED; size *= 2)
        for (int step = size / 2; step; step /= 2) { // bitonic
            __syncthreads();
            int other = me ^ step;
            uint32_t a = key[me], b = key[other];
            bool smaller = (me < other) == ((me & size) == 0);
            __syncthreads();
            key[me] = smaller ? min(a, b) : max(a, b);
        }
    keys[n] = key[me]; // keys are padded to whole chunks
}

INLINE int first_not_below(const uint32_t *keys, uint32_t key) {
    int at = 0;
    for (int step = SORTED / 2; step; step /= 2)
        if (__ldg(keys + at + step - 1) < key) at += step;
    return at + (__ldg(keys + at) < key);
}

// The run of a token in a chunk: two places of it.
INLINE int2 run_of(const uint32_t *keys, int chunk, int chunks, uint32_t token) {
    if (chunk >= chunks) return make_int2(0, 0);
    const uint32_t *chunk_keys = keys + (size_t)chunk * SORTED;
    return make_int2(first_not_below(chunk_keys, token << PLACE_BITS),
                     first_not_below(chunk_keys, (token << PLACE_BITS) + SORTED));
}

enum { IN_FLIGHT = sizeof(act) == 4 ? 2 : 4 }; // rows that are loaded before the first of them is added

// sum += eight channels, from c on, of the rows of places [from, to) of a chunk that begins at place `base`.
INLINE void add_rows(float (&sum)[8], const act *dout, const uint32_t *keys, size_t base, int from, int to, int c,
                     int C) {
    for (int at = from; at < to; at += IN_FLIGHT) {
        act8 rows[IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++)
            if (at + j < to) rows[j] = *(const act8 *)(dout + (base + (__ldg(keys + base + at + j) & PLACES)) * C + c);
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; j++) {
            if (at + j >= to) continue;
            float row[8];
            unpack8(row, rows[j]);
#pragma unroll
            for (int k = 0; k < 8; k++) sum[k] += row[k];
        }
    }
}

enum { GATHER = 128 };
__global__ void __launch_bounds__(GATHER)
    embed_gather_tokens(float *dwte, const act *dout, const uint32_t *keys, uint32_t *frequent, int chunks, int C) {
    SHARED(int2, runs, GATHER);
    uint32_t key = __ldg(keys + blockIdx.x), token = key >> PLACE_BITS;
    if (key == UINT32_MAX || (blockIdx.x % SORTED && __ldg(keys + blockIdx.x - 1) >> PLACE_BITS == token)) return;
    int c = (blockIdx.y * GATHER + threadIdx.x) * 8;
    float sum[8] = {};
    for (int first = 0; first < chunks; first += GATHER) { // a thread searches one chunk
        int chunk = first + threadIdx.x;
        const int2 run = run_of(keys, chunk, chunks, token);
        if (__syncthreads_or(run.y > run.x && chunk < (int)(blockIdx.x / SORTED))) return; // an earlier block has it
        runs[threadIdx.x] = run;
        if (__syncthreads_or(run.y - run.x > MANY)) {
            if (threadIdx.x == 0 && blockIdx.y == 0) frequent[1 + atomicAdd(frequent, 1u)] = token;
            return;
        }
        for (int i = 0; i < min((int)GATHER, chunks - first) && c < C; i++) {
            const size_t base = (size_t)(first + i) * SORTED;
            add_rows(sum, dout, keys, base, runs[i].x, runs[i].y, c, C);
        }
    }
    if (c < C) add8(dwte + (size_t)token * C + c, sum, true);
}

// A warp adds one piece of each chunk's run, so that a run of any length is divided among the warps.
__global__ void __launch_bounds__(STRANDS * 32)
    embed_gather_frequent(float *dwte, const act *dout, const uint32_t *keys, const uint32_t *frequent, int chunks,
                          int C) {
    enum { SEARCHED = STRANDS * 32, CHANNELS = 32 * 8 };
    SHARED(int2, runs, SEARCHED);
    SHARED(float, sums, STRANDS *CHANNELS);
    const int strand = threadIdx.x / 32, lane = threadIdx.x % 32, c = (blockIdx.y * 32 + lane) * 8;
    for (uint32_t i = blockIdx.x; i < *frequent; i += gridDim.x) {
        const uint32_t token = frequent[1 + i];
        float sum[8] = {};
        for (int first = 0; first < chunks; first += SEARCHED) {
            __syncthreads(); // the runs and sums before have been read
            runs[threadIdx.x] = run_of(keys, first + threadIdx.x, chunks, token);
            __syncthreads();
            for (int k = 0; k < min((int)SEARCHED, chunks - first) && c < C; k++) {
                const int from = runs[k].x + ((strand - k) & (STRANDS - 1)) * PIECE;
                add_rows(sum, dout, keys, (size_t)(first + k) * SORTED, from, min(from + PIECE, runs[k].y), c, C);
            }
        }
        store8(sums + strand * CHANNELS + lane * 8, sum);
        __syncthreads();
        const int channel = blockIdx.y * CHANNELS + threadIdx.x;
        if (threadIdx.x >= CHANNELS || channel >= C) continue;
        float total = 0;
        for (int s = 0; s < STRANDS; s++) total += sums[s * CHANNELS + threadIdx.x];
        dwte[(size_t)token * C + channel] += total;
    }
}

__global__ void __launch_bounds__(THREADS)
    embed_add_positions(float *dwpe, const act *dout, int B, int vectors, bool add) { // vectors of one sequence
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= vectors) return;
    float sum[8] = {};
    for (int b = 0; b < B; b++) {
        float row[8];
        load8(row, dout + ((size_t)b * vectors + i) * 8);
#pragma unroll
        for (int k = 0; k < 8; k++) sum[k] += row[k];
    }
    add8(dwpe + (size_t)i * 8, sum, add);
}

void FOR_ACT(cuda_embed_backward)(Grad *dwte, Grad *dwpe, const Res *dout, const void *rows, int B, int T, int C,
                                  int vocab, bool add) {
    uint32_t *keys = (uint32_t *)cuda.scratch;
    unsigned chunks = blocks_of((size_t)B * T, SORTED);
    uint32_t *frequent = keys + (size_t)chunks * SORTED; // their number, then their tokens
    LAUNCH(embed_sort_tokens, chunks, SORTED, 0, cuda.stream, keys, frequent, rows, id_bytes(vocab), B * T, T);
    LAUNCH(embed_gather_tokens, dim3((unsigned)(B * T), blocks_of((size_t)C / 8, GATHER)), GATHER, 0, cuda.stream,
           (float *)dwte, (const act *)dout, keys, frequent, (int)chunks, C);
    LAUNCH(embed_gather_frequent, dim3(FREQUENT_BLOCKS, blocks_of((size_t)C, 256)), STRANDS * 32, 0, cuda.stream,
           (float *)dwte, (const act *)dout, keys, frequent, (int)chunks, C);
    int vectors = T * C / 8;
    if (!dwpe) return;
    LAUNCH(embed_add_positions, blocks_of((size_t)vectors, THREADS), THREADS, 0, cuda.stream, (float *)dwpe,
           (const act *)dout, B, vectors, add);
}
