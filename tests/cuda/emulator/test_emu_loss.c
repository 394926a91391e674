// The softmax of a row that registers and shared memory hold has the bits of one whose rest is read a second time.
#include "common/rng.h"
#include "kernels/backend.h"
#include "tests/cuda/emulator/device.h"
#include "tests/test.h"

enum { ROWS = 2, V = 50304, VOCAB = 50257, BLOCK = 1 };

static void gradient_of_loss(uint16_t *logits, float losses[ROWS]) {
    char why[256];
    const Backend *on = backend_cuda(&(BackendChoice){.dtype = DTYPE_FP16, .threads = 1, .deterministic = true}, why);
    CHECK(on);
    const uint16_t rows[ROWS][BLOCK + 1] = {{3, 50001}, {7, 11}};
    const float scale = 1024;
    void *on_device[] = {on->alloc(ROWS * V * 2), on->alloc(sizeof(float) * ROWS), on->alloc(sizeof rows),
                         on->alloc(sizeof scale)};
    for (int i = 0; i < ROWS * V; i++) logits[i] = fp16_of((float)(4 * rng_normal(1, 2, (uint64_t)i)));
    on->upload(on_device[0], logits, ROWS * V * 2), on->upload(on_device[2], rows, sizeof rows);
    on->upload(on_device[3], &scale, sizeof scale);
    const CrossEntropy loss = {.M = ROWS,
                               .T = BLOCK,
                               .vocab = VOCAB,
                               .V = V,
                               .z_loss = 1e-4f,
                               .gradient = true,
                               .scale = 0.01f,
                               .loss_scale = on_device[3]};
    on->cross_entropy(on_device[0], on_device[1], on_device[2], &loss);
    on->download(logits, on_device[0], ROWS * V * 2), on->download(losses, on_device[1], sizeof(float) * ROWS);
    for (int i = 0; i < 4; i++) on->release(on_device[i]);
    on->close();
}

TEST(cuda_loss_has_the_same_bits_where_a_row_does_not_fit) {
    static uint16_t logits[2][ROWS * V];
    float losses[2][ROWS];
    const int capability = emu_device.capability;
    for (int i = 0; i < 2; i++) {
        emu_device.capability = i ? 75 : 80;
        gradient_of_loss(logits[i], losses[i]);
    }
    emu_device.capability = capability;
    CHECK(!memcmp(logits[0], logits[1], sizeof logits[0]) && !memcmp(losses[0], losses[1], sizeof losses[0]));
    CHECK(losses[0][0] > 0);
}
