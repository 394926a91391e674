// Copies from the host on the emulated runtime: from page-locked memory through stages, and from other memory.
#include "kernels/cuda/cuda_internal.h"
#include "tests/cuda/emulator/device.h"
#include "tests/test.h"

static const Backend *opened(void) {
    const BackendChoice choice = {.device = DEVICE_CUDA, .dtype = DTYPE_BF16, .threads = 1, .deterministic = true};
    char why[256];
    const Backend *backend = backend_cuda(&choice, why);
    CHECK(backend);
    return backend;
}

// Batches arrive faster than they are used, from one pinned slot: each operation must read its own.
TEST(cuda_uploads_neither_late_nor_early) {
    enum { BATCHES = 7, COUNT = 512 };
    static uint16_t slot[COUNT] __attribute__((aligned(4096)));
    for (emu_order = 0; emu_order < 4; emu_order++) {
        const Backend *backend = opened();
        const Shape shape = {1, COUNT - 1, 64, 1, 64, 64, 1};
        size_t bytes = backend->scratch_bytes(&shape);
        void *scratch = backend->alloc(bytes), *tokens = backend->alloc(sizeof slot);
        void *wte = backend->alloc(128 * 64 * 2), *wpe = backend->alloc(COUNT * 64 * 2), *out[BATCHES];
        backend->bind_scratch(scratch, bytes);
        backend->pin(slot, sizeof slot);
        uint16_t table[128][64]; // bf16 of exactly the token
        for (int i = 0; i < 128; i++)
            for (int k = 0; k < 64; k++) {
                float value = (float)i;
                uint32_t bits;
                memcpy(&bits, &value, 4);
                table[i][k] = (uint16_t)(bits >> 16);
            }
        backend->upload(wte, table, sizeof table);
        backend->zero(wpe, COUNT * 64 * 2);
        for (int batch = 0; batch < BATCHES; batch++) {
            out[batch] = backend->alloc((COUNT - 1) * 64 * 2);
            for (int i = 0; i < COUNT; i++) slot[i] = (uint16_t)(batch * 10 + i % 7);
            backend->upload(tokens, slot, sizeof slot);
            backend->embed_forward(out[batch], tokens, NULL, wte, wpe, 1, COUNT - 1, 64, 100);
        }
        uint64_t waits = emu_counts.host_waits;
        for (int batch = 0; batch < BATCHES; batch++) {
            static uint16_t got[COUNT - 1][64];
            backend->download(got, out[batch], sizeof got);
            for (int i = 0; i < COUNT - 1; i++) CHECK_EQUAL(got[i][5], table[batch * 10 + i % 7][5]);
            backend->release(out[batch]);
        }
        CHECK(emu_counts.host_waits > waits);
        backend->release(scratch), backend->release(tokens), backend->release(wte), backend->release(wpe);
        backend->close();
        CHECK_EQUAL(emu_counts.live, 0);
    }
    emu_order = 0;
}

// Batches of more than a stage, and of all stages, two in flight: each is whole, and none overruns its stage.
TEST(cuda_uploads_more_than_a_stage) {
    enum { BATCHES = 3 };
    static const size_t sizes[] = {STAGE_BYTES, STAGE_BYTES + 1, UPLOAD_BYTES};
    const Backend *backend = opened();
    const Shape shape = {1, 64, 64, 1, 64, 64, 1};
    const size_t bytes = backend->scratch_bytes(&shape);
    void *scratch = backend->alloc(bytes), *device[BATCHES];
    unsigned char *slot = aligned_alloc(4096, UPLOAD_BYTES), *got = malloc(UPLOAD_BYTES);
    CHECK(slot && got);
    backend->bind_scratch(scratch, bytes);
    backend->pin(slot, UPLOAD_BYTES);
    for (emu_order = 0; emu_order < 4; emu_order++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            for (int batch = 0; batch < BATCHES; batch++) {
                device[batch] = backend->alloc(UPLOAD_BYTES);
                memset(slot, batch + 1, sizes[i]);
                backend->upload(device[batch], slot, sizes[i]);
            }
            for (int batch = 0; batch < BATCHES; batch++) {
                backend->download(got, device[batch], sizes[i]);
                CHECK(got[0] == batch + 1 && !memcmp(got, got + 1, sizes[i] - 1));
                backend->release(device[batch]);
            }
        }
    emu_order = 0;
    backend->unpin(slot);
    free(slot), free(got);
    backend->release(scratch);
    backend->close();
    CHECK_EQUAL(emu_counts.live, 0);
}

// A restarted loader maps a new ring, often at the address of the last one.
TEST(cuda_unpins_memory_before_it_is_freed) {
    enum { RINGS = 40, BYTES = 1 << 16 };
    const Backend *backend = opened();
    const Shape shape = {1, 64, 64, 1, 64, 64, 1};
    size_t bytes = backend->scratch_bytes(&shape);
    void *scratch = backend->alloc(bytes), *tokens = backend->alloc(BYTES);
    backend->bind_scratch(scratch, bytes);
    int live = emu_counts.live;
    void *kept = aligned_alloc(4096, BYTES);
    backend->pin(kept, BYTES);
    for (int i = 0; i < RINGS; i++) {
        unsigned char *ring = aligned_alloc(4096, BYTES), got[16];
        memset(ring, i, BYTES);
        backend->pin(ring, BYTES);
        backend->upload(tokens, ring + 4096, 64); // over the copy stream: it is pinned
        backend->unpin(ring);
        CHECK_EQUAL(emu_counts.live, live + 1);
        free(ring);
        backend->download(got, tokens, sizeof got);
        CHECK(got[0] == i && got[15] == i);
    }
    backend->unpin(kept);
    free(kept);
    backend->release(scratch), backend->release(tokens);
    backend->close();
    CHECK_EQUAL(emu_counts.live, 0);
}

TEST(cuda_uploads_from_memory_that_cannot_be_pinned) {
    enum { BYTES = 1 << 16 };
    emu_device.can_pin = false;
    const Backend *backend = opened();
    unsigned char *host = aligned_alloc(4096, BYTES), got[BYTES];
    void *device = backend->alloc(BYTES);
    backend->pin(host, BYTES);
    emu_device.can_pin = true;
    for (int i = 0; i < 3; i++) {
        memset(host, i, BYTES);
        backend->upload(device, host, BYTES);
        memset(host, 9, BYTES); // it may be reused at once
        backend->download(got, device, BYTES);
        CHECK(got[0] == i && got[BYTES - 1] == i);
    }
    backend->unpin(host);
    free(host);
    backend->release(device);
    backend->close();
    CHECK_EQUAL(emu_counts.live, 0);
}
