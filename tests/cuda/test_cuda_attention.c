// What only CUDA's attention has: forms of the gradient that are selected by the size of the grid, and blocks that hand
// tiles to each other. The operations themselves are described in tests/operations.
#include "kernels/cuda/cuda_internal.h"
#include "tests/operations/operations.h"
#include "tests/operations/pair.h"
#include <math.h>
#include <string.h>

__attribute__((constructor)) static void test_cuda(void) { pair_device = DEVICE_CUDA; }

// A device may be one; the emulator is where it is asked to.
static bool is_hopper(void) {
    const char *capability = getenv("EMU_CAPABILITY");
    return !&emu_order || (capability && !strcmp(capability, "90"));
}

// A small grid takes the split form by itself; a real run the fused one, which hands tiles of dQ from block to block.
TEST(cuda_attention_gradient_agrees_with_the_reference_in_every_form) {
    const bool whole = !&emu_order || getenv("EMU_WHOLE"); // the emulator needs minutes for 1024
    const AttentionForm last = whole || is_hopper() ? ATTENTION_WGMMA : ATTENTION_FUSED_3;
    for (cuda_attention_form = ATTENTION_SPLIT; cuda_attention_form <= last; cuda_attention_form++) {
        const int T = whole ? 1024 : cuda_attention_form == ATTENTION_WGMMA ? 328 : 136; // two blocks of keys at least
        for (int masked = 0; masked < 3; masked++) operation_attention(1, T, 2, 64, masked == 1, masked == 2);
    }
    cuda_attention_form = ATTENTION_AUTO;
}

// Three blocks of keys: the last one's sums of dQ are stored, the next one's added, and the first one's written.
TEST(cuda_attention_by_tma_agrees_with_the_reference) {
    if (!is_hopper()) return;
    cuda_attention_form = ATTENTION_TMA;
    for (int masked = 0; masked < 3; masked++) operation_attention(1, 400, 1, 64, masked == 1, masked == 2);
    operation_attention(2, 70, 3, 64, true, true);
    cuda_attention_form = ATTENTION_AUTO;
}

enum { D = 64 };

// Arrays of attention of random numbers, on the device.
typedef struct {
    const Backend *on;
    Attention of;
    Array *qkv, *out, *lse, *dout, *dqkv, *starts; // starts: documents of 150 tokens
} Arrays;

static Arrays arrays_open(int B, int T, int H) {
    pair_open((Shape){B, T, H * D, H, 64, 64, 1});
    const size_t n = (size_t)(B * T * H * D);
    Arrays x = {.on = pair_backend(TESTED), .of = {.B = B, .T = T, .H = H, .D = D}};
    x.qkv = array_normal(ACTS, 3 * n, 1, 0), x.out = array_filled(ACTS, n, NAN);
    x.lse = array_filled(FLOATS, (size_t)(B * H * T), NAN), x.dout = array_normal(ACTS, n, 1, 0);
    x.dqkv = array_filled(ACTS, 3 * n, NAN);
    int32_t *starts = malloc((size_t)(B * T) * sizeof *starts);
    CHECK(starts);
    for (int i = 0; i < B * T; i++) starts[i] = i % T / 150 * 150;
    x.starts = array_bytes(starts, (size_t)(B * T) * sizeof *starts);
    free(starts);
    array_send(TESTED);
    return x;
}

static void attend(const Arrays *x) {
    x->on->attention_forward(array_at(x->out, 1), array_at(x->lse, 1), array_at(x->qkv, 1), &x->of);
}

static void attend_back(const Arrays *x) {
    x->on->attention_backward(array_at(x->dqkv, 1), NULL, array_at(x->dout, 1), array_at(x->out, 1),
                              array_at(x->lse, 1), array_at(x->qkv, 1), &x->of, false);
}

// Blocks hand tiles of dQ to each other through flags. The emulator runs blocks one after another, so only a device can
// show a fence that is missing: hundreds of launches with all blocks at once, the same bits every time.
TEST(cuda_attention_gradient_repeats_its_bits) {
    const bool emulated = &emu_order != NULL;
    const int B = emulated ? 1 : 8, T = emulated ? 70 : 1000, H = emulated ? 1 : 12, launches = emulated ? 2 : 400;
    Arrays x = arrays_open(B, T, H);
    const size_t bytes = 3 * (size_t)(B * T * H * D) * x.on->act_bytes;
    unsigned char *first = malloc(bytes), *now = malloc(bytes);
    CHECK(first && now);
    for (int way = 0; way < 4; way++) {
        cuda_attention_form = way & 1 ? ATTENTION_TMA : ATTENTION_AUTO;
        x.of.starts = way & 2 ? array_at(x.starts, 1) : NULL;
        attend(&x);
        for (int launch = 0; launch < launches; launch++) {
            attend_back(&x);
            x.on->download(launch ? now : first, array_at(x.dqkv, 1), bytes);
            CHECK(!launch || !memcmp(first, now, bytes));
        }
    }
    cuda_attention_form = ATTENTION_AUTO;
    free(first), free(now);
    pair_close();
}

// The forward pass adds in one order, whatever copies its tiles.
TEST(cuda_attention_has_the_same_bits_by_tma) {
    const int T = &emu_order ? 200 : 1024;
    const Arrays x = arrays_open(1, T, 2);
    const size_t bytes = (size_t)(T * 2 * D) * x.on->act_bytes;
    unsigned char *out[2] = {malloc(bytes), malloc(bytes)};
    CHECK(out[0] && out[1]);
    for (int by_tma = 0; by_tma < 2; by_tma++) {
        cuda_attention_form = by_tma ? ATTENTION_TMA : ATTENTION_WGMMA;
        attend(&x);
        x.on->download(out[by_tma], array_at(x.out, 1), bytes);
    }
    cuda_attention_form = ATTENTION_AUTO;
    CHECK(!memcmp(out[0], out[1], bytes));
    free(out[0]), free(out[1]);
    pair_close();
}
