// What the kernel tests share: a backend with its memory, the inputs that make_kernels.py uses too, and torch's
// answers.
#pragma once

#include "common/arena.h"
#include "kernels/adamw_scalars.h"
#include "kernels/backend.h"
#include "tests/test.h"
#include <math.h>

typedef struct {
    const Backend *ops;
    char *arena;
    size_t used;
    bool tight; // fp32
    float *one; // the number, a loss scale
} Kernels;

enum { KERNELS_ARENA = 32 << 20 };

// Zeroed host memory until the next kernels_open.
static Arena kernels_host;
static inline void *host(size_t n, size_t element) { return arena_push(&kernels_host, (n + 1) * element); }

static inline void *take(Kernels *k, size_t bytes) {
    void *p = k->arena + k->used;
    k->used += (bytes + 63) / 64 * 64;
    CHECK(k->used <= KERNELS_ARENA);
    return p;
}

// A tensor's elements from `bytes` on.
static inline void *offset(void *tensor, size_t bytes) { return (char *)tensor + bytes; }

static inline float *kernels_number(Kernels *k, float value) {
    float *device = take(k, sizeof value);
    k->ops->upload(device, &value, sizeof value);
    return device;
}

static inline Kernels kernels_open_state(Dtype dtype, int threads, OptimizerState optimizer_state, const Shape *shape) {
    char why[256];
    arena_close(&kernels_host);
    Kernels k = {.tight = dtype == DTYPE_FP32};
    k.ops = backend_open(&(BackendChoice){.device = DEVICE_CPU,
                                          .dtype = dtype,
                                          .threads = threads,
                                          .deterministic = true,
                                          .optimizer_state = optimizer_state},
                         why);
    CHECK(k.ops);
    k.arena = k.ops->alloc(KERNELS_ARENA);
    CHECK(k.arena);
    k.used = (k.ops->scratch_bytes(shape) + 63) / 64 * 64;
    CHECK(k.used < KERNELS_ARENA);
    k.ops->bind_scratch(k.arena, k.ops->scratch_bytes(shape));
    k.one = kernels_number(&k, 1);
    return k;
}

// The norm of `count` gradients.
static inline void kernels_norm(Kernels *k, float *norm, const Grad *gradients, size_t count, const float *loss_scale) {
    const size_t used = k->used;
    double *sums = take(k, norm_pieces(count) * sizeof *sums);
    k->ops->square_sums(sums, gradients, count);
    k->ops->gradient_norm(norm, sums, norm_pieces(count), loss_scale);
    k->used = used;
}

static inline Kernels kernels_open(Dtype dtype, int threads, const Shape *shape) {
    return kernels_open_state(dtype, threads, STATE_FP32, shape);
}

static inline void kernels_close(Kernels *k) {
    k->ops->release(k->arena);
    k->ops->close();
}

static inline AdamW *put_adamw(Kernels *k, const AdamWSettings *settings) {
    AdamW step = adamw_init(settings), *device = take(k, sizeof step);
    k->ops->upload(device, &step, sizeof step);
    return device;
}

// Floats as backend elements of `element` bytes and back. Two bytes are of act_type; moments beside fp32 are bf16.
static inline Dtype type_of(const Kernels *k, size_t element) {
    if (element == sizeof(float)) return DTYPE_FP32;
    return k->ops->act_bytes == element ? k->ops->act_type : DTYPE_BF16;
}
static inline void *put(Kernels *k, const float *values, size_t n, size_t element) {
    void *device = take(k, n * element);
    void *stored = host(n, element);
    dtype_write(stored, type_of(k, element), values, n);
    k->ops->upload(device, stored, n * element);
    return device;
}
static inline float *get(const Kernels *k, const void *device, size_t n, size_t element) {
    float *values = host(n, sizeof *values);
    void *stored = host(n, element);
    k->ops->download(stored, device, n * element);
    dtype_read(values, type_of(k, element), stored, n);
    return values;
}
#define PUT_ACT(k, v, n)  put(k, v, n, (k)->ops->act_bytes)
#define PUT_PAR(k, v, n)  put(k, v, n, (k)->ops->par_bytes)
#define PUT_RES(k, v, n)  put(k, v, n, (k)->ops->res_bytes)
#define PUT_GRAD(k, v, n) put(k, v, n, (k)->ops->grad_bytes)
#define GET_ACT(k, p, n)  get(k, p, n, (k)->ops->act_bytes)
#define GET_RES(k, p, n)  get(k, p, n, (k)->ops->res_bytes)
#define GET_GRAD(k, p, n) get(k, p, n, (k)->ops->grad_bytes)

// scale * multiples of 2^-23 in [-1, 1): splitmix64, as in make_kernels.py
static inline float *numbers(uint64_t seed, size_t n, float scale) {
    float *values = host(n, sizeof *values);
    for (size_t i = 0; i < n; i++) {
        uint64_t z = (seed << 32) + i + 0x9E3779B97F4A7C15;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
        z ^= z >> 31;
        values[i] = ((float)(z >> 40) / 8388608.0f - 1) * scale;
    }
    return values;
}
static inline uint16_t *token_ids(uint64_t seed, size_t n, int vocab) {
    float *values = numbers(seed, n, 1);
    uint16_t *ids = host(n, sizeof *ids);
    for (size_t i = 0; i < n; i++) {
        int id = (int)((values[i] + 1) / 2 * (float)vocab);
        ids[i] = (uint16_t)(id < vocab ? id : vocab - 1);
    }
    return ids;
}

// |got - want| within fp32, bf16 or fp16 (three bits more) error, of each value and of the largest one
static inline void compare(const Kernels *k, const char *name, const float *got, const float *want, size_t n,
                           size_t step) {
    double largest = 0;
    for (size_t i = 0; i * step < n; i++) largest = fmax(largest, fabs((double)want[i]));
    const double bf16 = k->ops->act_type == DTYPE_FP16 ? 0.125 : 1;
    const double rtol = k->tight ? 2e-5 : 2e-2 * bf16, atol = largest * (k->tight ? 2e-6 : 1e-2 * bf16);
    float *picked = host(n, sizeof *picked);
    for (size_t i = 0; i * step < n; i++) picked[i] = got[i * step];
    test_close(picked, want, (n + step - 1) / step, rtol, atol, name, __FILE__, __LINE__);
}

// Compares with a record of tests/data/kernels_torch.bin.
static inline void expect_torch(const Kernels *k, const char *name, const float *got, size_t n) {
    static char *records;
    static size_t size;
    if (!records) {
        char path[4096];
        snprintf(path, sizeof path, "%s/kernels_torch.bin", test_data);
        records = read_file(path, &size);
        CHECK(records);
    }
    for (size_t at = 0; at < size;) {
        uint32_t count, step;
        memcpy(&count, records + at + 40, 4);
        memcpy(&step, records + at + 44, 4);
        const size_t kept = (count + step - 1) / step;
        if (!strcmp(records + at, name)) {
            CHECK_EQUAL(n, count);
            float *want = host(kept, sizeof *want);
            memcpy(want, records + at + 48, kept * sizeof *want);
            compare(k, name, got, want, n, step);
            return;
        }
        at += 48 + kept * sizeof(float);
    }
    test_failed(name, __FILE__, __LINE__);
}

static inline double dot(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}
