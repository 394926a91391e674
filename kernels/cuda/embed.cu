// Token and position embeddings. One thread moves eight channels.
#include "kernels/cuda/ptx.cuh"

enum { THREADS = 256 };
#ifndef SORTED_TOKENS // tests set a smaller number, so that small batches have many chunks
#define SORTED_TOKENS 1024
#endif
enum { SORTED = SORTED_TOKENS };                          // tokens that one block of embed_sort_tokens sorts
enum { PLACE_BITS = 10, PLACES = (1 << PLACE_BITS) - 1 }; // of a key, below the token, which has at most 20
static_assert(SORTED <= 1 << PLACE_BITS && IDS_MAX <= 1 << 20, "a token and its place fit a key");

__global__ void __launch_bounds__(THREADS)
    embed(act *out, const void *rows, unsigned bytes, const act *wte, const act *wpe, size_t vectors, int T, int C) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= vectors) return;
    int per_row = C / 8, n = (int)(i / per_row), c = (int)(i % per_row) * 8;
    float token[8], position[8];
    load8(token, wte + (size_t)token_at(rows, n + n / T, bytes) * C + c); // rows hold T+1 tokens
    if (wpe) {
        load8(position, wpe + (size_t)(n % T) * C + c);
#pragma unroll
        for (int k = 0; k < 8; k++) token[k] += position[k];
    }
    store8(out + i * 8, token);
}

void FOR_ACT(cuda_embed_forward)(Res *out, const void *rows, const Par *wte, const Par *wpe, int B, int T, int C,
                                 int vocab) {
    size_t vectors = (size_t)B * T * C / 8;
    LAUNCH(embed, blocks_of(vectors, THREADS), THREADS, 0, cuda.stream, (act *)out, rows, id_bytes(vocab),
           (const act *)wte, (const act *)wpe, vectors, T, C);
}

// Backward. dwte adds up rows of dout that may be anywhere, in an order that must not depend on timing: chunks of
// SORTED tokens are sorted by (token, position), then the block of a token's first place finds its run in every chunk
// and adds them in order. No atomics, and rows of dwte that nothing belongs to are not touched.
static __global__ void __launch_bounds__(SORTED)
    embed_sort_tokens(uint32_t *keys, const void *rows, unsigned bytes, int N, int T) {
    SHARED(uint32_t, key, SORTED);
    int me = threadIdx.x, n = blockIdx.x * SORTED + me;
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

enum { GATHER = 128, IN_FLIGHT = 8 }; // rows that are loaded before the first of them is added
__global__ void __launch_bounds__(GATHER)
    embed_gather_tokens(float *dwte, const act *dout, const uint32_t *keys, int chunks, int C) {
    SHARED(int, start, GATHER);
    SHARED(int, end, GATHER);
    uint32_t key = __ldg(keys + blockIdx.x), token = key >> PLACE_BITS;
    if (key == UINT32_MAX || (blockIdx.x % SORTED && __ldg(keys + blockIdx.x - 1) >> PLACE_BITS == token)) return;
    int c = (blockIdx.y * GATHER + threadIdx.x) * 8;
    float sum[8] = {};
    for (int first = 0; first < chunks; first += GATHER) { // a thread searches one chunk
        int chunk = first + threadIdx.x, from = 0, to = 0;
        if (chunk < chunks) {
            from = first_not_below(keys + (size_t)chunk * SORTED, token << PLACE_BITS);
            to = first_not_below(keys + (size_t)chunk * SORTED, (token << PLACE_BITS) + SORTED);
        }
        if (__syncthreads_or(to > from && chunk < (int)(blockIdx.x / SORTED))) return; // an earlier block has it
        start[threadIdx.x] = from, end[threadIdx.x] = to;
        __syncthreads();
        for (int i = 0; i < min((int)GATHER, chunks - first) && c < C; i++) {
            const size_t base = (size_t)(first + i) * SORTED;
            for (int at = start[i]; at < end[i]; at += IN_FLIGHT) { // of a frequent token there are thousands of rows
                uint4 rows[IN_FLIGHT];
#pragma unroll
                for (int j = 0; j < IN_FLIGHT; j++)
                    if (at + j < end[i])
                        rows[j] = *(const uint4 *)(dout + (base + (__ldg(keys + base + at + j) & PLACES)) * C + c);
#pragma unroll
                for (int j = 0; j < IN_FLIGHT; j++) {
                    if (at + j >= end[i]) continue;
                    float row[8];
                    unpack8(row, rows[j]);
#pragma unroll
                    for (int k = 0; k < 8; k++) sum[k] += row[k];
                }
            }
        }
    }
    if (c < C) add8(dwte + (size_t)token * C + c, sum, true);
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

size_t FOR_ACT(cuda_embed_scratch)(const Shape *shape) {
    return (size_t)blocks_of((size_t)shape->B * shape->T, SORTED) * SORTED * 4;
}

void FOR_ACT(cuda_embed_backward)(Grad *dwte, Grad *dwpe, const Res *dout, const void *rows, int B, int T, int C,
                                  int vocab, bool add) {
    uint32_t *keys = (uint32_t *)cuda.scratch;
    unsigned chunks = blocks_of((size_t)B * T, SORTED);
    LAUNCH(embed_sort_tokens, chunks, SORTED, 0, cuda.stream, keys, rows, id_bytes(vocab), B * T, T);
    LAUNCH(embed_gather_tokens, dim3((unsigned)(B * T), blocks_of((size_t)C / 8, GATHER)), GATHER, 0, cuda.stream,
           (float *)dwte, (const act *)dout, keys, (int)chunks, C);
    int vectors = T * C / 8;
    if (!dwpe) return;
    LAUNCH(embed_add_positions, blocks_of((size_t)vectors, THREADS), THREADS, 0, cuda.stream, (float *)dwpe,
           (const act *)dout, B, vectors, add);
}
