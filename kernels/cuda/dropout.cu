// Dropout of activations and of the residual stream, by the masks of kernels/dropout_mask.h: a thread has the eight
// columns of one Philox counter.
#include "kernels/cuda/ptx.cuh"

enum { THREADS = 256 };

// rows (B*T, C / 8 vectors); out may be in
static __global__ void __launch_bounds__(THREADS)
    dropout_kernel(act *out, const act *in, const Dropout *__restrict__ dropout, uint32_t layer_site, int T, int C,
                   size_t vectors) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= vectors) return;
    const Dropout mask = *dropout;
    const uint32_t groups = (uint32_t)C / 8, row = (uint32_t)(i / groups), group = (uint32_t)(i % groups);
    uint32_t bits[4] = {row % (uint32_t)T * groups + group, mask.first_sample + row / (uint32_t)T, mask.step,
                        layer_site};
    philox(bits, mask.seed[0], mask.seed[1]);
    float x[8];
    load8(x, in + i * 8);
#pragma unroll
    for (int k = 0; k < 8; k++) x[k] *= (bits[k / 2] >> k % 2 * 16 & 0xffffu) < mask.threshold ? 0 : mask.scale;
    store8(out + i * 8, x);
}

static void launch(act *out, const act *in, const Dropout *dropout, int layer, DropoutSite site, int B, int T, int C) {
    assert(C % 8 == 0);
    const size_t vectors = (size_t)B * T * C / 8;
    LAUNCH(dropout_kernel, blocks_of(vectors, THREADS), THREADS, 0, cuda.stream, out, in, dropout,
           (uint32_t)(layer * DROPOUT_SITES + site), T, C, vectors);
}

void FOR_ACT(cuda_dropout)(Act *out, Grad *dbias, const Act *in, const Dropout *dropout, int layer, DropoutSite site,
                           int B, int T, int C, bool add) {
    launch((act *)out, (const act *)in, dropout, layer, site, B, T, C);
    if (dbias) FOR_ACT(column_sums)(dbias, out, B * T, C, add);
}

void FOR_ACT(cuda_dropout_residual)(Res *x, const Dropout *dropout, int B, int T, int C) {
    launch((act *)x, (const act *)x, dropout, 0, DROPOUT_EMBEDDING, B, T, C);
}
