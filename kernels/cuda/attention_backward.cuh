// What the files of attention's gradient share.
#pragma once

#include "kernels/cuda/attention.cuh"

// Dropout of packed weights.
template <int N> INLINE void drop_packed(uint32_t (&p)[N][4], uint32_t kept) {
#pragma unroll
    for (int n = 0; n < 2 * N; n++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t pair = kept >> kept_bit<KEY_ROWS>(n, 2 * r);
            p[n >> 1][(n & 1) * 2 + r] &= (pair & 1 ? 0xffffu : 0) | (pair & 2 ? 0xffff0000u : 0);
        }
}

struct AttentionGradient {
    Act *dqkv;
    const Act *dout, *qkv;
    Attention a;
    float4 *dq_sums;    // (B,H,padded,width): of a tile so far
    float2 *statistics; // (B,H,padded): attention_statistics
    int *turns;         // a ticket, and how many blocks have added to each tile of dq_sums
    int turn_count, padded;
};

// By wgmma, heads of up to 64 channels.
void FOR_ACT(attention_gradient_by_wgmma)(const AttentionGradient &c);
