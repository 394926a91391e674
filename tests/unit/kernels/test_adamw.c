// AdamW beyond tests/operations: states of two bytes, slices, and the weights that it packs.
#include "common/arena.h"
#include "common/rng.h"
#include "kernels/adamw_scalars.h"
#include "kernels/backend.h"
#include "tests/test.h"
#include <math.h>

typedef struct {
    const Backend *ops;
    char *arena;
    size_t used;
    float *one; // the number, a loss scale
} Kernels;

enum { KERNELS_ARENA = 32 << 20 };

// Zeroed host memory until the next kernels_open.
static Arena kernels_host;
static void *host(size_t n, size_t element) { return arena_push(&kernels_host, (n + 1) * element); }

static void *take(Kernels *k, size_t bytes) {
    void *p = k->arena + k->used;
    k->used += (bytes + 63) / 64 * 64;
    CHECK(k->used <= KERNELS_ARENA);
    return p;
}

// A tensor's elements from `bytes` on.
static void *offset(void *tensor, size_t bytes) { return (char *)tensor + bytes; }

// Floats on the backend, and its elements of `element` bytes, 2 (bf16) or 4, as floats.
static void *put(Kernels *k, const float *values, size_t n) {
    void *device = take(k, n * sizeof *values);
    k->ops->upload(device, values, n * sizeof *values);
    return device;
}
static float *get(const Kernels *k, const void *device, size_t n, size_t element) {
    float *values = host(n, sizeof *values);
    void *stored = host(n, element);
    k->ops->download(stored, device, n * element);
    dtype_read(values, element == 2 ? DTYPE_BF16 : DTYPE_FP32, stored, n);
    return values;
}

static Kernels kernels_open(Dtype dtype, OptimizerState optimizer_state) {
    static const Shape shape = {.B = 4, .T = 130, .C = 256, .H = 1, .V = 128, .chunk_rows = 64};
    char why[256];
    arena_close(&kernels_host);
    Kernels k = {0};
    k.ops = backend_open(&(BackendChoice){.device = DEVICE_CPU,
                                          .dtype = dtype,
                                          .threads = 2,
                                          .deterministic = true,
                                          .optimizer_state = optimizer_state},
                         why);
    CHECK(k.ops);
    k.arena = k.ops->alloc(KERNELS_ARENA);
    CHECK(k.arena);
    k.used = (k.ops->scratch_bytes(&shape) + 63) / 64 * 64;
    CHECK(k.used < KERNELS_ARENA);
    k.ops->bind_scratch(k.arena, k.ops->scratch_bytes(&shape));
    k.one = put(&k, &(float){1}, 1);
    return k;
}

// The norm of `count` gradients.
static void kernels_norm(Kernels *k, float *norm, const Grad *gradients, size_t count, const float *loss_scale) {
    const size_t used = k->used;
    double *sums = take(k, norm_pieces(count) * sizeof *sums);
    k->ops->square_sums(sums, gradients, count);
    k->ops->gradient_norm(norm, sums, norm_pieces(count), loss_scale);
    k->used = used;
}

static void kernels_close(Kernels *k) {
    k->ops->release(k->arena);
    k->ops->close();
}

static AdamW *put_adamw(Kernels *k, const AdamWSettings *settings) {
    AdamW step = adamw_init(settings), *device = take(k, sizeof step);
    k->ops->upload(device, &step, sizeof step);
    return device;
}

static float *numbers(uint64_t seed, size_t n) {
    float *values = host(n, sizeof *values);
    for (size_t i = 0; i < n; i++) values[i] = (float)rng_normal(seed, 0, i);
    return values;
}

static float truncated(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= 0xffff0000;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

// `rounded` has bf16's values next to those of `exact`. Adds up how far they are, in steps between neighbours.
static double rounding_error(const float *rounded, const float *exact, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        float below = truncated(exact[i]), step = ldexpf(1, ilogbf(exact[i]) - 7) * (exact[i] < 0 ? -1.0f : 1.0f);
        CHECK(rounded[i] == below || rounded[i] == below + step);
        sum += (double)((rounded[i] - exact[i]) / step);
    }
    return sum;
}

// Against the full state, which agrees with torch: neighbours in bf16, without bias, other ones with another seed.
TEST(kernels_adamw_init_two_bytes_rounds_the_full_one_randomly) {
    enum { N = 1003, DECAYED = 700, SEEDS = 64 };
    static float exact[3][N];
    const OptimizerState states[] = {STATE_FP32, STATE_BF16, STATE_BF16_SR};
    for (int s = 0; s < 3; s++) {
        Kernels k = kernels_open(DTYPE_FP32, states[s]);
        size_t width = k.ops->moment_bytes;
        CHECK_EQUAL(width, s ? 2 : 4);
        Par *params = take(&k, N * 4);
        Moment *m = take(&k, N * width), *v = take(&k, N * width);
        float *norm = take(&k, 4), *first = numbers(1, N);
        Grad *g = put(&k, numbers(10, N), N);
        double errors[3] = {0};
        float *before = NULL;
        kernels_norm(&k, norm, g, N, k.one);
        for (int seed = 0; seed < (s ? SEEDS : 1); seed++) {
            const AdamW *adamw = put_adamw(&k, &(AdamWSettings){3e-2, 0.9, 0.95, 1e-8, 0.1, 1, 1, (uint64_t)seed});
            k.ops->zero(m, N * width), k.ops->zero(v, N * width), k.ops->upload(params, first, N * 4);
            k.ops->adamw(m, v, &(Update){0, N, DECAYED, params, (float *)params, g, norm, k.one, NULL}, adamw);
            float *now[] = {get(&k, params, N, 4), get(&k, m, N, width), get(&k, v, N, width)};
            for (int i = 0; i < 3 && !s; i++) memcpy(exact[i], now[i], sizeof exact[i]);
            if (s == 1) CHECK(!memcmp(now[0], exact[0], sizeof exact[0]));
            for (int i = s == 2 ? 0 : 1; i < 3 && s; i++) errors[i] += rounding_error(now[i], exact[i], N);
            CHECK(!before || memcmp(before, now[1], N * sizeof(float)));
            before = now[1];
        }
        for (int i = 0; i < 3; i++) CHECK(fabs(errors[i]) < 5 * 0.5 * sqrt(N * SEEDS)); // five sigma at most
        kernels_close(&k);
    }
}

// Offload of any size, their borders off the vectors and in both groups, have the bits of the whole; so has a loss
// scale.
TEST(kernels_adamw_in_slices_or_scaled_has_the_same_bits) {
    enum { N = 1003, DECAYED = 700 };
    const OptimizerState states[] = {STATE_FP32, STATE_BF16, STATE_BF16_SR};
    const size_t slices[] = {N, 1, 333, 704, 96};
    for (int s = 0; s < 3; s++) {
        Kernels k = kernels_open(DTYPE_FP32, states[s]);
        const AdamW *adamw = put_adamw(&k, &(AdamWSettings){3e-2, 0.9, 0.95, 1e-8, 0.1, 1, 1, 7});
        size_t width = k.ops->moment_bytes;
        Par *params = take(&k, N * 4);
        Moment *m = take(&k, N * width), *v = take(&k, N * width);
        float *norm = take(&k, 4), *first = numbers(1, N), *whole[3] = {0}, whole_norm = 0;
        for (size_t i = 0; i < sizeof slices / sizeof *slices; i++) {
            const float by = i % 2 ? 1024 : 1, *scale = put(&k, &by, 1);
            float *gradients = numbers(10, N);
            for (size_t j = 0; j < N; j++) gradients[j] *= by;
            Grad *g = put(&k, gradients, N);
            k.ops->zero(m, N * width), k.ops->zero(v, N * width), k.ops->upload(params, first, N * 4);
            kernels_norm(&k, norm, g, N, scale);
            for (size_t at = 0, n; at < N; at += n) {
                n = N - at < slices[i] ? N - at : slices[i];
                Par *part = offset(params, 4 * at);
                const Update update = {at, n, DECAYED, part, (float *)part, offset(g, 4 * at), norm, scale, NULL};
                k.ops->adamw(offset(m, at * width), offset(v, at * width), &update, adamw);
            }
            float *now[] = {get(&k, params, N, 4), get(&k, m, N, width), get(&k, v, N, width)};
            if (i)
                CHECK(*norm == whole_norm);
            else
                whole_norm = *norm, memcpy(whole, now, sizeof now);
            for (int k3 = 0; k3 < 3; k3++) CHECK(!memcmp(now[k3], whole[k3], N * sizeof(float)));
        }
        kernels_close(&k);
    }
}

TEST(kernels_adamw_that_packs_has_the_bits_of_adamw_and_pack) {
    const int shapes[][2] = {
        {192, 128}, {64, 1600}, {72, 40} // fills no block of a packed layout
    };
    for (Dtype dtype = DTYPE_FP32; dtype <= DTYPE_FP16; dtype++)
        for (OptimizerState moments_type = STATE_FP32; moments_type <= STATE_BF16_SR; moments_type++) {
            Kernels k = kernels_open(dtype, moments_type);
            const AdamW *adamw = put_adamw(&k, &(AdamWSettings){3e-2, 0.9, 0.95, 1e-8, 0.1, 1, 1, 7});
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
                const int rows = shapes[i][0], cols = shapes[i][1];
                const size_t n = (size_t)(rows * cols), moments = n * k.ops->moment_bytes,
                             bytes = k.ops->packed_bytes(rows, cols);
                if (!bytes) continue;
                Grad *g = put(&k, numbers(10, n), n);
                float *norm = take(&k, 4);
                kernels_norm(&k, norm, g, n, k.one);
                char *results[2];
                for (int packs = 0; packs < 2; packs++) {
                    Par *params = put(&k, numbers(1, n), n);
                    Moment *m = take(&k, moments), *v = take(&k, moments);
                    const Weight w = {params, take(&k, bytes), rows, cols};
                    k.ops->zero(m, moments), k.ops->zero(v, moments), k.ops->zero(w.packed, bytes);
                    const Weight *packed = packs ? &w : NULL;
                    const Update update = {4096, n, 4096 + n / 2, params, (float *)params, g, norm, k.one, packed};
                    k.ops->adamw(m, v, &update, adamw);
                    if (!packs) k.ops->pack(&w);
                    results[packs] = host(n * 4 + 2 * moments + bytes, 1);
                    k.ops->download(results[packs], params, n * 4);
                    k.ops->download(results[packs] + n * 4, m, moments);
                    k.ops->download(results[packs] + n * 4 + moments, v, moments);
                    k.ops->download(results[packs] + n * 4 + 2 * moments, w.packed, bytes);
                }
                CHECK(!memcmp(results[0], results[1], n * 4 + 2 * moments + bytes));
            }
            kernels_close(&k);
        }
}
