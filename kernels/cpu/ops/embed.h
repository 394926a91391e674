// Token and position embedding.
#pragma once

#include "common/id_array.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/simd.h"

TEAM_LOOP(embed_tokens, int, (Res *, out), (const void *, rows), (const int32_t *, positions), (const Par *, wte),
          (const Par *, wpe), (int, T), (int, C), (unsigned, bytes)) {
    for (int n = first; n < end; n++) {
        int b = n / T, t = n % T;
        const size_t id = id_at(rows, (size_t)b * ((size_t)T + 1) + (size_t)t, bytes);
        const size_t position = (size_t)(positions ? positions[n] : t);
        const float *token = (const float *)wte + id * (size_t)C;
        const float *place = wpe ? (const float *)wpe + position * (size_t)C : NULL;
        float *sum = (float *)out + (size_t)n * (size_t)C;
        for (int k = 0; k < C; k += W)
            v_store_part(sum + k, v_load_part(token + k, C - k) + (place ? v_load_part(place + k, C - k) : v_set(0)),
                         C - k);
    }
}

static void cpu_embed_forward(Res *out, const void *rows, const int32_t *positions, const Par *wte, const Par *wpe,
                              int B, int T, int C, int vocab) {
    embed_tokens(B * T, 1, out, rows, positions, wte, wpe, T, C, id_bytes((unsigned)vocab));
}

// Each thread owns strips of columns and walks all tokens, so that a token met twice is summed in the batch's order.
TEAM_LOOP(embed_gradient_strips, int, (float *, dwte), (float *, dwpe), (const float *, dout), (const void *, rows),
          (int, B), (int, T), (int, C), (unsigned, bytes), (bool, add)) {
    for (int t = 0; dwpe && t < T && !add; t++)
        memset(dwpe + (size_t)t * (size_t)C + first, 0, (size_t)(end - first) * sizeof(float));
    for (int n = 0; n < B * T; n++) {
        int b = n / T, t = n % T;
        float *token = dwte + id_at(rows, (size_t)b * ((size_t)T + 1) + (size_t)t, bytes) * (size_t)C;
        float *place = dwpe ? dwpe + (size_t)t * (size_t)C : NULL;
        const float *d = dout + (size_t)n * (size_t)C;
        for (int k = first; k < end; k += W) {
            V v = v_load_part(d + k, end - k);
            v_store_part(token + k, v_load_part(token + k, end - k) + v, end - k);
            if (place) v_store_part(place + k, v_load_part(place + k, end - k) + v, end - k);
        }
    }
}

static void cpu_embed_backward(Grad *dwte, Grad *dwpe, const Res *dout, const void *rows, int B, int T, int C,
                               int vocab, bool add) {
    embed_gradient_strips(C, 64, (float *)dwte, (float *)dwpe, (const float *)dout, rows, B, T, C,
                          id_bytes((unsigned)vocab), add);
}
