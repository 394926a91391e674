// The norm and the rotation of the heads of queries and keys, and copies of keys and values for the heads of queries
// that share them. LANES threads have a head: each two neighbouring elements of its first half and the two that these
// turn with. Gradients of the gains: a block leaves a part, and the parts are added in order.
#include "kernels/cuda/ptx.cuh"

enum { THREADS = 256 };
#define EPSILON 1e-5f

struct HeadCounts {
    int T, H, K, D;
    __host__ __device__ int all() const { return H + 2 * K; }
};
static HeadCounts counts_of(const Heads *of) {
    assert(of->D % 8 == 0 && of->D <= HEAD_MAX);
    return {of->T, of->H, of->K, of->D};
}

// Elements 2 lane, 2 lane + 1 of the first half of a head, and of the second.
INLINE void load4(float (&x)[4], const act *head, int lane, int D) {
#ifdef ACT_FP32
    float2 first = *(const float2 *)(head + 2 * lane), second = *(const float2 *)(head + D / 2 + 2 * lane);
    x[0] = first.x, x[1] = first.y, x[2] = second.x, x[3] = second.y;
#else
    uint32_t first = *(const uint32_t *)(head + 2 * lane), second = *(const uint32_t *)(head + D / 2 + 2 * lane);
    x[0] = low(first), x[1] = high(first), x[2] = low(second), x[3] = high(second);
#endif
}
INLINE void store4(act *head, const float (&x)[4], int lane, int D) {
#ifdef ACT_FP32
    *(float2 *)(head + 2 * lane) = make_float2(x[0], x[1]);
    *(float2 *)(head + D / 2 + 2 * lane) = make_float2(x[2], x[3]);
#else
    *(uint32_t *)(head + 2 * lane) = pack(x[0], x[1]);
    *(uint32_t *)(head + D / 2 + 2 * lane) = pack(x[2], x[3]);
#endif
}

template <int LANES> INLINE float head_sum(float value) {
#pragma unroll
    for (int lane = LANES / 2; lane; lane >>= 1) value += __shfl_xor_sync(0xffffffffu, value, lane);
    return value;
}

template <int LANES> INLINE float rstd_of(const float (&x)[4], int D) {
    return rsqrtf(head_sum<LANES>(x[0] * x[0] + x[1] * x[1] + x[2] * x[2] + x[3] * x[3]) / D + EPSILON);
}

INLINE void rotate(float (&x)[4], const float *rotation, int lane, int D, float direction) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
        float cosine = rotation[2 * lane + k], sine = direction * rotation[D / 2 + 2 * lane + k];
        float a = x[k], b = x[2 + k];
        x[k] = a * cosine - b * sine, x[2 + k] = b * cosine + a * sine;
    }
}

// qkv may be in if K = H
template <int LANES>
__global__ void __launch_bounds__(THREADS)
    heads_forward_kernel(act *qkv, const act *in, const act *q_gain, const act *k_gain, const float *rotation,
                         const int32_t *positions, HeadCounts h, size_t heads) {
    const size_t i = ((size_t)blockIdx.x * THREADS + threadIdx.x) / LANES;
    const int lane = threadIdx.x % LANES, D = h.D;
    const bool used = i < heads && lane < D / 4; // all lanes of a warp take part in its sums
    const int head = used ? (int)(i % h.all()) : 0;
    const size_t n = used ? i / h.all() : 0;
    const bool query = head < h.H, value = head >= h.H + h.K;
    const act *gain = value ? NULL : query ? q_gain : k_gain;
    float x[4] = {}, w[4];
    if (used) load4(x, in + i * D, lane, D);
    const float r = rstd_of<LANES>(x, D);
    if (!used) return;
    if (gain) {
        load4(w, gain, lane, D);
#pragma unroll
        for (int k = 0; k < 4; k++) x[k] *= r * w[k];
    }
    if (rotation && !value) rotate(x, rotation + (positions ? positions[n] : n % h.T) * D, lane, D, 1);
    const int shares = query ? 1 : h.H / h.K;
    const int first = query ? head : value ? 2 * h.H + (head - h.H - h.K) * shares : h.H + (head - h.H) * shares;
    for (int copy = 0; copy < shares; copy++) store4(qkv + (n * 3 * h.H + first + copy) * D, x, lane, D);
}

void FOR_ACT(cuda_heads_forward)(Act *qkv, const Act *in, const Heads *of) {
    const HeadCounts h = counts_of(of);
    const size_t heads = (size_t)of->B * h.T * h.all();
    const int lanes = h.D <= 64 ? 16 : 32;
    LAUNCH(lanes == 16 ? heads_forward_kernel<16> : heads_forward_kernel<32>, blocks_of(heads * lanes, THREADS),
           THREADS, 0, cuda.stream, (act *)qkv, (const act *)in, (const act *)of->q_gain, (const act *)of->k_gain,
           of->rotation, of->positions, h, heads);
}

// parts (blocks, 2, D): gradients of both gains; NULL without gains. din may be dqkv if K = H
template <int LANES>
__global__ void __launch_bounds__(THREADS)
    heads_gradient(act *din, float *parts, const act *dqkv, const act *in, const act *q_gain, const act *k_gain,
                   const float *rotation, HeadCounts h, int N) {
    constexpr int GROUPS = THREADS / LANES;
    SHARED(float, sums, GROUPS * 2 * LANES * 4);
    const int group = threadIdx.x / LANES, lane = threadIdx.x % LANES, D = h.D;
    float dgain[2][4] = {};
    for (int n = blockIdx.x; n < N; n += gridDim.x)
        for (int start = 0; start < h.all(); start += GROUPS) {
            const int head = start + group;
            const bool used = head < h.all() && lane < D / 4;
            const bool query = head < h.H, value = head >= h.H + h.K;
            const int shares = query ? 1 : h.H / h.K;
            const int first = query   ? head
                              : value ? 2 * h.H + (head - h.H - h.K) * shares
                                      : h.H + (head - h.H) * shares;
            const act *gain = value ? NULL : query ? q_gain : k_gain;
            const size_t at = ((size_t)n * h.all() + head) * D;
            float d[4] = {}, x[4] = {}, w[4] = {};
#pragma unroll 1 // else ptxas spills in float32 on 8.0
            for (int copy = 0; copy < shares && used; copy++) {
                float more[4];
                load4(more, dqkv + ((size_t)n * 3 * h.H + first + copy) * D, lane, D);
#pragma unroll
                for (int k = 0; k < 4; k++) d[k] += more[k];
            }
            if (used && rotation && !value) rotate(d, rotation + (size_t)(n % h.T) * D, lane, D, -1);
            if (q_gain) {
                if (used && gain) load4(x, in + at, lane, D), load4(w, gain, lane, D);
                const float r = rstd_of<LANES>(x, D);
                float along = 0;
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    x[k] *= r, along += d[k] * w[k] * x[k];
                    dgain[0][k] += query ? d[k] * x[k] : 0, dgain[1][k] += query ? 0 : d[k] * x[k];
                }
                along = head_sum<LANES>(along) / D;
                if (gain)
#pragma unroll
                    for (int k = 0; k < 4; k++) d[k] = r * (d[k] * w[k] - x[k] * along);
            }
            if (used) store4(din + at, d, lane, D);
        }
    if (!parts) return;
#pragma unroll
    for (int which = 0; which < 2; which++)
#pragma unroll
        for (int k = 0; k < 4; k++) sums[((group * 2 + which) * 4 + k) * LANES + lane] = dgain[which][k];
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * D; i += THREADS) {
        const int which = i / D, c = i % D, half = c >= D / 2, k = half * 2 + c % 2, from = (c - half * D / 2) / 2;
        float total = 0;
        for (int g = 0; g < GROUPS; g++) total += sums[((g * 2 + which) * 4 + k) * LANES + from];
        parts[(size_t)blockIdx.x * 2 * D + i] = total;
    }
}

void FOR_ACT(cuda_heads_backward)(Act *din, Grad *dq_gain, Grad *dk_gain, Grad *dbias, const Act *dqkv, const Act *in,
                                  const Heads *of, bool add) {
    const HeadCounts h = counts_of(of);
    const int N = of->B * h.T, D = h.D, blocks = row_blocks(N);
    float *parts = of->q_gain ? (float *)cuda.scratch : NULL;
    LAUNCH(D <= 64 ? heads_gradient<16> : heads_gradient<32>, (unsigned)blocks, THREADS, 0, cuda.stream, (act *)din,
           parts, (const act *)dqkv, (const act *)in, (const act *)of->q_gain, (const act *)of->k_gain, of->rotation, h,
           N);
    if (parts) FOR_ACT(add_parts)(dq_gain, dk_gain, parts, blocks, D, 2 * D, add);
    if (dbias) FOR_ACT(column_sums)(dbias, din, N, (int)(h.all() * D), add);
}
