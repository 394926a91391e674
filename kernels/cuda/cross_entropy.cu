// Softmax and loss over a chunk of logits, one block a row, the gradient in place of the logits. The first
// VECTORS*THREADS 16-byte vectors of a row wait in registers (57 % of a GPT-2 row), the rest in shared memory, or if it
// does not fit, it is read a second time, from L2. The softmax is online, so any V will do.
#include "kernels/cuda/ptx.cuh"

enum { THREADS = 512, VECTORS = sizeof(act) == 4 ? 0 : 7 }; // float32 rows are twice as long: all is read twice
#define LOWEST -1e30f                                       // not -infinity: times log2(e) it must stay finite

// Columns from vocab on become -infinity: no later test is needed, whatever the padding holds.
#ifdef ACT_FP32
INLINE float value_of(float x) { return x; }
INLINE act8 none_of() {
    const float4 none = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    return {none, none};
}
INLINE act8 mask_padding(act8 v, int column, int vocab) {
    if (column + 8 <= vocab) return v;
    float a[8];
    unpack8(a, v);
#pragma unroll
    for (int k = 0; k < 8; k++)
        if (column + k >= vocab) a[k] = -INFINITY;
    return pack8(a);
}
INLINE float max_of(act8 v, float most) {
    float a[8];
    unpack8(a, v);
#pragma unroll
    for (int k = 0; k < 8; k++) most = fmaxf(most, a[k]);
    return most;
}
#else
INLINE float value_of(act x) { return low(x.bits); }
INLINE act8 none_of() {
    constexpr uint32_t NONE = LEAST << 16 | LEAST;
    return make_uint4(NONE, NONE, NONE, NONE);
}
INLINE act8 mask_padding(act8 v, int column, int vocab) {
    if (column + 8 <= vocab) return v;
    uint32_t *word = &v.x;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        if (column + 2 * k >= vocab) word[k] = (word[k] & 0xffff0000u) | LEAST;
        if (column + 2 * k + 1 >= vocab) word[k] = (word[k] & 0xffffu) | LEAST << 16;
    }
    return v;
}

INLINE float max_of(act8 v, float most) {
    most = fmaxf(fmaxf(most, low(v.x)), high(v.x)), most = fmaxf(fmaxf(most, low(v.y)), high(v.y));
    most = fmaxf(fmaxf(most, low(v.z)), high(v.z)), most = fmaxf(fmaxf(most, low(v.w)), high(v.w));
    return most;
}
#endif

// A logit as the softmax sees it; padding stays -infinity. e^2u may be infinite or 0: then tanh u is 1 or -1.
template <bool CAPPED> INLINE float seen(float x, float cap) {
    if (!CAPPED || x == -INFINITY) return x;
    return cap - 2 * cap / (1 + exp2_fast(2 * LOG2E * (x / cap)));
}

template <bool CAPPED> INLINE float sum_of(act8 v, float most, float cap) { // of e^(x - most)
    float shift = most * LOG2E, a[8];
    unpack8(a, v);
#pragma unroll
    for (int k = 0; k < 8; k++) a[k] = exp2_fast(seen<CAPPED>(a[k], cap) * LOG2E - shift);
    return ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
}

// The block's maximum and sum, joined in a fixed tree.
INLINE float2 join(float most, float sum, float2 *parts) {
    float warp_most = warp_max(most);
    sum = warp_sum(sum * exp2_fast((most - warp_most) * LOG2E));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = make_float2(warp_most, sum);
    __syncthreads();
    float2 part = threadIdx.x % 32 < THREADS / 32 ? parts[threadIdx.x % 32] : make_float2(LOWEST, 0);
    warp_most = warp_max(part.x);
    return make_float2(warp_most, warp_sum(part.y * exp2_fast((part.x - warp_most) * LOG2E)));
}

// WHOLE: shared memory holds the vectors that are not in registers. A thread reads only its own writes.
template <int KEPT, bool GRADIENT, bool CAPPED, bool WHOLE>
__global__ void __launch_bounds__(THREADS, 2)
    cross_entropy_kernel(act *logits, float *losses, const void *rows, unsigned bytes, int first, int T, int vocab,
                         int V, float cap, float z_loss, float scale, const float *loss_scale, const uint8_t *counted) {
    SHARED(float2, parts, THREADS / 32);
    DYNAMIC_SHARED(act8, rest);
    act *row = logits + (size_t)blockIdx.x * V;
    act8 *vectors = (act8 *)row;
    if (counted && !counted[first + blockIdx.x]) { // the whole block returns
        if (threadIdx.x == 0) losses[first + blockIdx.x] = 0;
        if (GRADIENT)
            for (int c = threadIdx.x; c < V / 8; c += THREADS) vectors[c] = act8{};
        return;
    }
    int n = first + blockIdx.x, target = (int)token_at(rows, n + n / T + 1, bytes), used = (vocab + 7) / 8;
    float of_target = threadIdx.x == 0 ? value_of(row[target]) : 0.0f; // before it is overwritten
    float most = LOWEST, sum = 0;
    const act8 none = none_of();
    act8 kept[KEPT ? KEPT : 1];
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int c = i * THREADS + threadIdx.x;
        kept[i] = c < used ? vectors[c] : none;
    }
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        kept[i] = mask_padding(kept[i], (i * THREADS + threadIdx.x) * 8, vocab);
        most = max_of(kept[i], most);
        KEEP_PACKED(kept[i]);
    }
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        sum += sum_of<CAPPED>(kept[i], seen<CAPPED>(most, cap), cap);
        KEEP_PACKED(kept[i]);
    }
#pragma unroll 4
    for (int c = KEPT * THREADS + threadIdx.x; c < used; c += THREADS) {
        act8 v = mask_padding(vectors[c], c * 8, vocab);
        float more = max_of(v, most);
        if (more > most) sum *= exp2_fast((seen<CAPPED>(most, cap) - seen<CAPPED>(more, cap)) * LOG2E), most = more;
        sum += sum_of<CAPPED>(v, seen<CAPPED>(most, cap), cap);
        if (WHOLE) rest[c - KEPT * THREADS] = v;
    }
    float2 all =
        join(seen<CAPPED>(most, cap), sum, parts); // its barrier also puts the read of row[target] before the writes
    float log_sum = all.x + logf(all.y);
    if (threadIdx.x == 0) losses[n] = all.x - seen<CAPPED>(of_target, cap) + logf(all.y) + z_loss * log_sum * log_sum;
    if constexpr (!GRADIENT) return;
    scale *= *loss_scale;
    float shift = all.x * LOG2E, factor = scale / all.y * (1 + 2 * z_loss * log_sum);
    auto write = [&](act8 v, int c) {
#ifdef ACT_FP32
        float a[8];
        unpack8(a, v);
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const float x = seen<CAPPED>(a[k], cap), y = fmaxf(x / cap, -1);
            a[k] = exp2_fast(x * LOG2E - shift) * factor;
            if (c * 8 + k == target) a[k] -= scale;
            if (CAPPED) a[k] *= 1 - y * y;
        }
        v = pack8(a);
#else
        uint32_t *word = &v.x;
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float x = seen<CAPPED>(low(word[k]), cap), y = seen<CAPPED>(high(word[k]), cap);
            float a = exp2_fast(x * LOG2E - shift) * factor, b = exp2_fast(y * LOG2E - shift) * factor;
            if (c * 8 + 2 * k == target) a -= scale;
            if (c * 8 + 2 * k + 1 == target) b -= scale;
            if (CAPPED) x = fmaxf(x / cap, -1), y = fmaxf(y / cap, -1), a *= 1 - x * x, b *= 1 - y * y;
            word[k] = pack(a, b);
        }
#endif
        vectors[c] = v;
    };
#pragma unroll
    for (int i = 0; i < KEPT; i++) {
        int c = i * THREADS + threadIdx.x;
        if (c < V / 8) write(kept[i], c);
    }
#pragma unroll(WHOLE ? 1 : 4)
    for (int c = KEPT * THREADS + threadIdx.x; c < V / 8; c += THREADS)
        write(c >= used ? none : WHOLE ? rest[c - KEPT * THREADS] : mask_padding(vectors[c], c * 8, vocab), c);
}

void FOR_ACT(cuda_cross_entropy)(Act *logits, float *losses, const void *rows, const CrossEntropy *loss) {
    const int vocab = loss->vocab;
    const bool gradient = loss->gradient, capped = loss->softcap > 0;
    const int kept = VECTORS * THREADS * 8; // columns
    const size_t rest = vocab > kept ? blocks_of((size_t)(vocab - kept), 8) * sizeof(act8) : 0;
    // two blocks a multiprocessor, of which 7.5 has 64 KiB
    const bool whole = VECTORS > 0 && gradient && !capped && rest <= 47 << 10 && cuda.capability >= 80;
    auto kernel =
        capped     ? gradient ? cross_entropy_kernel<0, true, true, false> : cross_entropy_kernel<0, false, true, false>
            : whole ? cross_entropy_kernel<VECTORS, true, false, true>
        : gradient ? cross_entropy_kernel<VECTORS, true, false, false>
                   : cross_entropy_kernel<0, false, false, false>;
    LAUNCH(kernel, (unsigned)loss->M, THREADS, whole ? rest : 0, cuda.stream, (act *)logits, losses, rows,
           id_bytes(vocab), loss->first, loss->T, vocab, loss->V, loss->softcap, loss->z_loss, loss->scale,
           loss->loss_scale, loss->counted);
}

static __global__ void __launch_bounds__(256) sum_losses_kernel(double *total, const float *losses, int n) {
    SHARED(double, sums, 256);
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += 256) sum += losses[i];
    sums[threadIdx.x] = sum;
    for (unsigned half = 128; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *total += sums[0];
}

void FOR_ACT(cuda_sum_losses)(double *total, const float *losses, int n) {
    LAUNCH(sum_losses_kernel, 1, 256, 0, cuda.stream, total, losses, n);
}
