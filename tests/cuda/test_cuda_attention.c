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
    for (cuda_attention_form = ATTENTION_SPLIT; cuda_attention_form < ATTENTION_TMA; cuda_attention_form++) {
        const int T = whole ? 1024 : 136; // two blocks of keys at least
        for (int masked = 0; masked < 3; masked++) operation_attention(1, T, 2, 64, masked == 1, masked == 2);
    }
    cuda_attention_form = ATTENTION_AUTO;
}

// Three blocks of keys at least: the last tiles' sums of dQ are stored, added to, and finished.
TEST(cuda_attention_by_tma_agrees_with_the_reference) {
    if (!is_hopper()) return;
    const int T = &emu_order && !getenv("EMU_WHOLE") ? 400 : 1024;
    for (int masked = 0; masked < 3; masked++) operation_attention(1, T, 1, 64, masked == 1, masked == 2);
    operation_attention(2, 70, 3, 64, true, true);
}

enum { D = 64 };

// Arrays of attention on the device, of a batch of sequences of random numbers: each begins `apart` rows after the one
// before it, and goes round.
typedef struct {
    const Backend *on;
    Attention of;
    void *qkv, *out, *dout, *dqkv, *dbias;
    float *lse;
    int32_t *starts; // documents of 150 tokens
    size_t bytes;    // of a sequence of `out`
} Arrays;

// A batch of rotated copies of a sequence of `bytes` bytes. host: room for it.
static void fill_batch(const Arrays *x, void *to, Array *sequence, size_t bytes, int apart, char *host) {
    const size_t T = (size_t)x->of.T;
    x->on->download(host, array_at(sequence, 1), bytes);
    for (size_t b = 0; b < (size_t)x->of.B; b++) {
        const size_t first = b * (size_t)apart % T * (bytes / T);
        char *copy = (char *)to + b * bytes;
        x->on->upload(copy, host + first, bytes - first);
        if (first) x->on->upload(copy + bytes - first, host, first);
    }
}

static Arrays arrays_open(int B, int T, int H, int apart) {
    pair_open((Shape){B, T, H * D, H, 64, 64, 1});
    Arrays x = {.on = pair_backend(TESTED), .of = {.B = B, .T = T, .H = H, .D = D}};
    const size_t one = (size_t)(T * H * D), n = (size_t)B;
    Array *qkv = array_normal(ACTS, 3 * one, 1, 0), *dout = array_normal(ACTS, one, 1, 0);
    array_send(TESTED);
    x.bytes = one * x.on->act_bytes;
    x.qkv = x.on->alloc(3 * n * x.bytes), x.dqkv = x.on->alloc(3 * n * x.bytes);
    x.out = x.on->alloc(n * x.bytes), x.dout = x.on->alloc(n * x.bytes);
    x.lse = x.on->alloc((size_t)(B * H * T) * sizeof *x.lse),
    x.dbias = x.on->alloc((size_t)(3 * H * D) * sizeof(float));
    x.starts = x.on->alloc((size_t)(B * T) * sizeof *x.starts);
    int32_t *starts = malloc((size_t)(B * T) * sizeof *starts);
    char *host = malloc(3 * x.bytes);
    CHECK(x.qkv && x.dqkv && x.out && x.dout && x.lse && x.dbias && x.starts && starts && host);
    for (int i = 0; i < B * T; i++) starts[i] = i % T / 150 * 150;
    x.on->upload(x.starts, starts, (size_t)(B * T) * sizeof *starts);
    fill_batch(&x, x.qkv, qkv, 3 * x.bytes, apart, host);
    fill_batch(&x, x.dout, dout, x.bytes, apart, host);
    free(starts), free(host);
    return x;
}

static void arrays_close(Arrays *x) {
    void *all[] = {x->qkv, x->dqkv, x->out, x->dout, x->lse, x->dbias, x->starts};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) x->on->release(all[i]);
    pair_close();
}

static void attend(const Arrays *x) { x->on->attention_forward(x->out, x->lse, x->qkv, &x->of); }

// The parts of each sequence have the same bits. `first`, `now`: room for a part.
static void check_equal(const Arrays *x, const void *from, size_t bytes, char *first, char *now) {
    for (int b = 0; b < x->of.B; b++) {
        x->on->download(b ? now : first, (const char *)from + (size_t)b * bytes, bytes);
        CHECK(!b || !memcmp(first, now, bytes));
    }
}

// Blocks hand tiles of dQ to each other through flags. The emulator runs blocks one after another, so only a device can
// show a fence that is missing: hundreds of launches with all blocks at once, the same bits every time, and in every
// sequence of a batch of equal ones. The sums of the launch before are overwritten: a block that reads too early would
// find them right.
static void repeat(int B, int T, int H, int launches) {
    const size_t columns = (size_t)(3 * H * D) * sizeof(float);
    Arrays x = arrays_open(B, T, H, 0);
    char *first = malloc(3 * x.bytes), *now = malloc(3 * x.bytes);
    CHECK(first && now);
    for (int way = 0; way < 4; way++) {
        cuda_attention_form = way & 1 ? ATTENTION_FUSED_3 : ATTENTION_AUTO;
        x.of.starts = way & 2 ? x.starts : NULL;
        for (int launch = 0; launch < launches; launch++) {
            x.on->zero(x.out, (size_t)B * x.bytes);
            attend(&x);
            x.on->zero(cuda.scratch, (size_t)(B * H * T) * D * sizeof(float));
            x.on->attention_backward(x.dqkv, x.dbias, x.dout, x.out, x.lse, x.qkv, &x.of, false);
            x.on->download(launch ? now : first, x.dbias, columns);
            CHECK(!launch || !memcmp(first, now, columns));
        }
        check_equal(&x, x.out, x.bytes, first, now);
        check_equal(&x, x.dqkv, 3 * x.bytes, first, now);
    }
    cuda_attention_form = ATTENTION_AUTO;
    free(first), free(now);
    arrays_close(&x);
}

TEST(cuda_attention_repeats_its_bits) {
    if (&emu_order) return repeat(2, 70, 1, 2);
    const char *dtype = getenv("TEST_DTYPE");
    const int launches = dtype && !strcmp(dtype, "float32") ? 5 : 200; // whose kernels are slow
    repeat(64, 1000, 12, launches);
    repeat(64, 1024, 12, launches);
}

static float narrow(const Backend *on, uint16_t bits) {
    _Float16 half;
    float value;
    const uint32_t wide = (uint32_t)bits << 16;
    memcpy(&half, &bits, sizeof half), memcpy(&value, &wide, sizeof value);
    return on->act_type == DTYPE_FP16 ? (float)half : value;
}

// A batch of a run, of different sequences, in the form that a run takes and in another one.
TEST(cuda_attention_of_a_batch_agrees_in_two_forms) {
    Arrays x = &emu_order ? arrays_open(2, 70, 1, 7) : arrays_open(64, 1024, 12, 7);
    const size_t count = (size_t)(x.of.B * x.of.T * x.of.H) * 3 * D, width = x.on->act_bytes;
    if (width != 2) return arrays_close(&x); // one form
    uint16_t *grads[2];
    for (int fused = 0; fused < 2; fused++) {
        cuda_attention_form = fused ? ATTENTION_FUSED_3 : ATTENTION_AUTO;
        CHECK(grads[fused] = malloc(count * width));
        attend(&x);
        x.on->attention_backward(x.dqkv, NULL, x.dout, x.out, x.lse, x.qkv, &x.of, false);
        x.on->download(grads[fused], x.dqkv, count * width);
    }
    cuda_attention_form = ATTENTION_AUTO;
    for (size_t rows = count / (size_t)(x.of.B * x.of.T) * 64, i = 0; i < count;) { // a tile of each head, at most
        double apart = 0, whole = 0;
        for (size_t end = i + rows < count ? i + rows : count; i < end; i++) {
            const double want = narrow(x.on, grads[1][i]), off = narrow(x.on, grads[0][i]) - want;
            apart += off * off, whole += want * want;
        }
        CHECK(whole > 0 && sqrt(apart / whole) < 0.02);
    }
    free(grads[0]), free(grads[1]);
    arrays_close(&x);
}
