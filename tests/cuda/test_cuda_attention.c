// What only CUDA's attention has: forms of the gradient that are selected by the size of the grid, and blocks that hand
// tiles to each other. The operations themselves are described in tests/operations.
#include "kernels/cuda/cuda_internal.h"
#include "tests/operations/operations.h"
#include "tests/operations/pair.h"
#include <math.h>
#include <string.h>

__attribute__((constructor)) static void test_cuda(void) { pair_device = DEVICE_CUDA; }

// A small grid takes the split form by itself; a real run the fused one, which hands tiles of dQ from block to block.
TEST(cuda_attention_gradient_agrees_with_the_reference_in_every_form) {
    const bool whole = !&emu_order || getenv("EMU_WHOLE"); // the emulator needs minutes for 1024
    const char *capability = getenv("EMU_CAPABILITY");
    const AttentionForm last = whole || (capability && !strcmp(capability, "90")) ? ATTENTION_WGMMA : ATTENTION_FUSED_3;
    for (cuda_attention_form = ATTENTION_SPLIT; cuda_attention_form <= last; cuda_attention_form++) {
        const int T = whole ? 1024 : cuda_attention_form == ATTENTION_WGMMA ? 328 : 136; // two blocks of keys at least
        for (int masked = 0; masked < 3; masked++) operation_attention(1, T, 2, 64, masked == 1, masked == 2);
    }
    cuda_attention_form = ATTENTION_AUTO;
}

// Blocks hand tiles of dQ to each other through flags. The emulator runs blocks one after another, so only a device can
// show a fence that is missing: a thousand launches with all blocks at once, the same bits every time.
TEST(cuda_attention_gradient_repeats_its_bits) {
    const bool emulated = &emu_order != NULL;
    const int B = emulated ? 1 : 8, T = emulated ? 70 : 1024, H = emulated ? 1 : 12, D = 64,
              launches = emulated ? 2 : 1000;
    pair_open((Shape){B, T, H * D, H, 64, 64, 1});
    const Backend *on = pair_backend(TESTED);
    const size_t n = (size_t)(B * T * H * D), bytes = 3 * n * on->act_bytes;
    Array *qkv = array_normal(ACTS, 3 * n, 1, 0), *out = array_filled(ACTS, n, NAN);
    Array *lse = array_filled(FLOATS, (size_t)(B * H * T), NAN), *dout = array_normal(ACTS, n, 1, 0);
    Array *dqkv = array_filled(ACTS, 3 * n, NAN);
    array_send(TESTED);
    unsigned char *first = malloc(bytes), *now = malloc(bytes);
    CHECK(first && now);
    on->attention_forward(array_at(out, 1), array_at(lse, 1), array_at(qkv, 1),
                          &(Attention){.B = B, .T = T, .H = H, .D = D});
    for (int launch = 0; launch < launches; launch++) {
        on->attention_backward(array_at(dqkv, 1), NULL, array_at(dout, 1), array_at(out, 1), array_at(lse, 1),
                               array_at(qkv, 1), &(Attention){.B = B, .T = T, .H = H, .D = D}, false);
        on->download(launch ? now : first, array_at(dqkv, 1), bytes);
        CHECK(!launch || !memcmp(first, now, bytes));
    }
    free(first), free(now);
    pair_close();
}
