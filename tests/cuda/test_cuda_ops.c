// Every row of ops.def: CUDA against the CPU backend, values and gradients.
#include "common/rng.h"
#include "kernels/adamw_scalars.h"
#include "kernels/cuda/cuda_internal.h"
#include "tests/cuda/pair.h"
#include <math.h>

enum { ANY = 64 }; // a shape's field that does not matter to the operation

static void *offset(void *tensor, size_t bytes) { return (char *)tensor + bytes; }

TEST(cuda_embedding_agrees_with_the_cpu) {
    const int B = 3, T = 50, C = 136, V = 192, N = B * T;
    pair_open((Shape){B, T, C, C / 8, V, ANY, 1});
    Array *rows = array_tokens((size_t)B * (size_t)(T + 1), 60), *wte = array_normal(PARS, (size_t)(V * C), 1, 0);
    Array *wpe = array_normal(PARS, (size_t)(T * C), 1, 0), *out = array_filled(RESIDUALS, (size_t)(N * C), NAN);
    ON_BOTH(on->embed_forward(AT(out), AT(rows), AT(wte), AT(wpe), B, T, C));
    CHECK_NEAR(out, rounded_once);
    pair_close();
}

static void embedding_gradient(int B, int T, int C, int rounds) {
    const int V = 128, N = B * T;
    pair_open((Shape){B, T, C, C / 8, V, ANY, 1});
    Array *rows = array_tokens((size_t)B * (size_t)(T + 1), 60), *dout = array_normal(RESIDUALS, (size_t)(N * C), 1, 0);
    Array *dwte = array_normal(GRADS, (size_t)(V * C), 1, 0), *dwpe = array_normal(GRADS, (size_t)(T * C), 1, 0);
    for (int add = 0; add < rounds; add++) {
        ON_BOTH(on->embed_backward(AT(dwte), AT(dwpe), AT(dout), AT(rows), B, T, C, add));
        CHECK_NEAR(dwte, 1e-6);
        CHECK_NEAR(dwpe, 1e-6);
    }
    pair_close();
}

TEST(cuda_embedding_gradient_is_gathered_in_order) {
    embedding_gradient(3, 700, 72, 2);  // three chunks of sorted tokens, or 66 of the emulator's small ones
    embedding_gradient(1, 4128, 8, 1);  // more chunks of the small ones than a block has threads
    embedding_gradient(1, 40, 1048, 2); // two blocks of channels
}

static void layernorm(int N, int C, bool with_branch, bool with_bias) {
    pair_open((Shape){1, N, C, C / 8, ANY, ANY, 1});
    const size_t n = (size_t)(N * C), c = (size_t)C, rows = (size_t)N;
    Array *in = array_normal(RESIDUALS, n, 2, 1), *branch = array_normal(ACTS, n, 1, 0);
    Array *weight = array_normal(PARS, c, 0.5, 1), *bias = array_normal(PARS, c, 1, 0);
    Array *sum = array_filled(RESIDUALS, n, NAN), *out = array_filled(ACTS, n, NAN);
    Array *mean = array_filled(FLOATS, rows, NAN), *rstd = array_filled(FLOATS, rows, NAN);
    ON_BOTH(on->layernorm_forward(AT(sum), AT(out), AT(mean), AT(rstd), AT(in), with_branch ? AT(branch) : NULL,
                                  AT(weight), with_bias ? AT(bias) : NULL, N, C));
    CHECK_NEAR(sum, rounded_once);
    CHECK_NEAR(out, 2 * rounded_once); // of a rounded sum
    CHECK_NEAR(mean, 1e-3);
    CHECK_NEAR(rstd, 5e-4);
    ON_BOTH(on->layernorm_forward(AT(in), AT(out), AT(mean), AT(rstd), AT(in), AT(branch), AT(weight), NULL, N, C));
    CHECK_NEAR(in, rounded_once);
    pair_close();
}

TEST(cuda_layernorm_agrees_with_the_cpu) {
    layernorm(35, 768, true, true);
    layernorm(5, 64, false, false);
    layernorm(9, 1024, true, false);
    layernorm(7, 1600, true, true);
}

static void layernorm_gradient(int N, int C, bool first, bool add, bool shared) {
    pair_open((Shape){1, N, C, C / 8, ANY, ANY, 1});
    const size_t n = (size_t)(N * C), c = (size_t)C;
    Array *x = array_normal(RESIDUALS, n, 2, 1), *dout = array_normal(ACTS, n, 1, 0);
    Array *weight = array_normal(PARS, c, 0.5, 1), *mean = array_filled(FLOATS, (size_t)N, 0);
    Array *rstd = array_filled(FLOATS, (size_t)N, 0), *dsum = array_normal(RESIDUALS, n, 1, 0);
    Array *acts = array_filled(ACTS, n, NAN), *dweight = array_normal(GRADS, c, 1, 0);
    Array *dbias = array_normal(GRADS, c, 1, 0), *below = array_normal(GRADS, c, 1, 0);
    for (int i = 0; i < N; i++) {
        double m = 0, v = 0;
        for (int k = 0; k < C; k++) m += x->start[i * C + k] / C;
        for (int k = 0; k < C; k++) v += (x->start[i * C + k] - m) * (x->start[i * C + k] - m) / C;
        mean->start[i] = m, rstd->start[i] = 1 / sqrt(v + 1e-5);
    }
    ON_BOTH(on->layernorm_backward(AT(dsum), shared && run > 0 ? AT(dsum) : AT(acts), AT(dweight), AT(dbias), AT(below),
                                   AT(dout), AT(x), AT(mean), AT(rstd), AT(weight), N, C, first, add));
    CHECK_NEAR(dsum, rounded_once);
    if (!shared) CHECK_NEAR(acts, rounded_once);
    CHECK_NEAR(dweight, 1e-6);
    CHECK_NEAR(dbias, 1e-6);
    CHECK_NEAR(below, rounded_once); // sums of rounded numbers
    pair_close();
}

TEST(cuda_layernorm_gradient_agrees_with_the_cpu) {
    layernorm_gradient(1600, 64, true, false, false); // more rows than warps: 384 blocks of 4
    layernorm_gradient(40, 768, false, true, true);
    layernorm_gradient(9, 1024, false, false, false);
    layernorm_gradient(9, 1280, false, true, false);
    layernorm_gradient(9, 1600, false, true, false);
}

TEST(cuda_layernorm_gradient_takes_no_biases) {
    const int N = 20, C = 64;
    pair_open((Shape){1, N, C, C / 8, ANY, ANY, 1});
    const size_t n = (size_t)(N * C);
    Array *x = array_normal(RESIDUALS, n, 1, 0), *dout = array_normal(ACTS, n, 1, 0);
    Array *weight = array_normal(PARS, (size_t)C, 0.5, 1), *mean = array_filled(FLOATS, (size_t)N, 0);
    Array *rstd = array_filled(FLOATS, (size_t)N, 1), *dsum = array_normal(RESIDUALS, n, 1, 0);
    Array *acts = array_filled(ACTS, n, NAN), *dweight = array_normal(GRADS, (size_t)C, 1, 0);
    ON_BOTH(on->layernorm_backward(AT(dsum), AT(acts), AT(dweight), NULL, NULL, AT(dout), AT(x), AT(mean), AT(rstd),
                                   AT(weight), N, C, false, true));
    CHECK_NEAR(acts, rounded_once);
    CHECK_NEAR(dweight, 1e-6);
    pair_close();
}

static void gelu(int N, int C) {
    pair_open((Shape){1, N, C, C / 8, ANY, ANY, 1});
    const size_t n = (size_t)(N * C);
    Array *in = array_normal(ACTS, n, 2, 0), *out = array_filled(ACTS, n, NAN), *d = array_normal(ACTS, n, 1, 0);
    Array *dbias = array_normal(GRADS, (size_t)C, 1, 0);
    for (int exact = 0; exact < 2; exact++) {
        ON_BOTH(on->gelu_forward(AT(out), AT(in), n, exact));
        CHECK_NEAR(out, rounded_once);
        ON_BOTH(on->gelu_backward(AT(d), AT(dbias), AT(in), N, C, exact, exact));
        CHECK_NEAR(d, rounded_once);
        CHECK_NEAR(dbias, rounded_once);
        ON_BOTH(on->gelu_backward(AT(d), NULL, AT(in), N, C, exact, true));
        CHECK_NEAR(d, rounded_once);
    }
    pair_close();
}

TEST(cuda_gelu_agrees_with_the_cpu) {
    gelu(300, 328);
    gelu(1100, 64); // more rows than 128 blocks of 8 warps take at once
}

// What the matmuls take as a weight, on the side of this run.
static Weight weight_of(const Array *param, const Array *packed, int rows, int cols, int run) {
    return (Weight){array_at(param, run), run ? NULL : array_at(packed, run), rows, cols};
}

TEST(cuda_matmul_agrees_with_the_cpu) {
    const int M = 37, rows = 192, cols = 128;
    pair_open((Shape){1, M, cols, cols / 8, rows, M, 1});
    const size_t packed_bytes = pair_backend(CPU)->packed_bytes(rows, cols);
    Array *in = array_normal(ACTS, (size_t)(M * cols), 1, 0), *out = array_filled(ACTS, (size_t)(M * rows), NAN);
    Array *param = array_normal(PARS, (size_t)(rows * cols), 0.1, 0), *bias = array_normal(PARS, (size_t)rows, 1, 0);
    Array *packed = array_filled(FLOATS, packed_bytes / 4 + 16, 0),
          *dout = array_normal(ACTS, (size_t)(M * rows), 1, 0);
    Array *din = array_filled(ACTS, (size_t)(M * cols), NAN), *dw = array_normal(GRADS, (size_t)(rows * cols), 1, 0);
    for (int biased = 0; biased < 2; biased++) {
        ON_BOTH(Weight w = weight_of(param, packed, rows, cols, run); on->pack(&w);
                on->matmul_forward(AT(out), AT(in), &w, biased ? AT(bias) : NULL, M));
        CHECK_NEAR(out, rounded_once);
    }
    ON_BOTH(Weight w = weight_of(param, packed, rows, cols, run); on->pack(&w);
            on->matmul_backward_input(AT(din), AT(dout), &w, M));
    CHECK_NEAR(din, rounded_once);
    for (int add = 0; add < 2; add++) {
        ON_BOTH(on->matmul_backward_weight(AT(dw), AT(dout), AT(in), M, rows, cols, add));
        CHECK_NEAR(dw, 1e-5);
    }
    pair_close();
}

// Plain, recorded, replayed twice; the plain run may choose by time how the others are made.
TEST(cuda_matmul_and_gelu_agree_with_the_cpu) {
    const int M = 37, rows = 192, cols = 128;
    for (int form = 0; form < 4; form++) {
        bool exact = form / 2, biased = form % 2;
        pair_times = form != 1;
        pair_open((Shape){1, M, rows, rows / 8, rows, M, 1});
        const size_t packed_bytes = pair_backend(CPU)->packed_bytes(rows, cols);
        Array *in = array_normal(ACTS, (size_t)(M * cols), 1, 0), *bias = array_normal(PARS, (size_t)rows, 1, 0);
        Array *pre = array_filled(ACTS, (size_t)(M * rows), NAN), *out = array_filled(ACTS, (size_t)(M * rows), NAN);
        Array *param = array_normal(PARS, (size_t)(rows * cols), 0.1, 0);
        Array *packed = array_filled(FLOATS, packed_bytes / 4 + 16, 0), *d = array_filled(ACTS, in->count, NAN);
        Array *dout = array_normal(ACTS, out->count, 1, 0), *dbias = array_normal(GRADS, (size_t)cols, 1, 0);
        ON_BOTH(if (on->graph_begin(0)) {
            Weight w = weight_of(param, packed, rows, cols, run);
            on->pack(&w);
            on->matmul_gelu_forward(AT(out), AT(pre), AT(in), &w, biased ? AT(bias) : NULL, M, exact);
            on->matmul_gelu_backward(AT(d), biased ? AT(dbias) : NULL, AT(dout), AT(in), &w, M, exact, form == 3);
            on->graph_end(0);
        });
        CHECK_NEAR(pre, rounded_once);
        CHECK_NEAR(out, 2 * rounded_once);
        CHECK_NEAR(d, 2 * rounded_once);
        CHECK_NEAR(dbias, 2 * rounded_once);
        pair_close();
    }
    pair_times = false;
}

static void attention(int B, int T, int H, int D) {
    const int C = H * D;
    pair_open((Shape){B, T, C, H, ANY, ANY, 1});
    const size_t n = (size_t)(B * T * C);
    Array *qkv = array_normal(ACTS, 3 * n, 1, 0), *out = array_filled(ACTS, n, NAN);
    Array *lse = array_filled(FLOATS, (size_t)(B * H * T), NAN), *dout = array_normal(ACTS, n, 1, 0);
    Array *dqkv = array_filled(ACTS, 3 * n, NAN), *dbias = array_normal(GRADS, (size_t)(3 * C), 1, 0);
    ON_BOTH(on->attention_forward(AT(out), AT(lse), AT(qkv), NULL, 0, B, T, H, D); on->attention_backward(
        AT(dqkv), AT(dbias), AT(dout), AT(out), AT(lse), AT(qkv), NULL, 0, B, T, H, D, true));
    CHECK_NEAR(out, 2 * rounded_once); // weights are rounded as well
    CHECK_NEAR(lse, 1e-5);
    CHECK_NEAR(dqkv, 3 * rounded_once);
    CHECK_NEAR(dbias, 3 * rounded_once);
    pair_close();
}

TEST(cuda_attention_of_64_channels_agrees_with_the_cpu) {
    attention(1, 192, 2, 64);
    attention(2, 77, 3, 64);
    attention(1, 1, 1, 64);
}
// A small grid takes the split form by itself; a real run the fused one, which hands tiles of dQ from block to block.
TEST(cuda_attention_gradient_agrees_with_the_cpu_in_every_form) {
    const int T = &emu_order ? 136 : 1024; // the emulator needs minutes for 1024
    for (cuda_attention_form = ATTENTION_SPLIT; cuda_attention_form <= ATTENTION_FUSED_3; cuda_attention_form++)
        attention(1, T, 2, 64);
    cuda_attention_form = ATTENTION_AUTO;
}
TEST(cuda_attention_of_more_channels_agrees_with_the_cpu) {
    attention(1, 200, 2, 96);
    attention(1, 200, 2, 128);
}
TEST(cuda_attention_of_odd_channels_agrees_with_the_cpu) {
    attention(1, 130, 2, 48);
    attention(1, 70, 1, 8);
    attention(1, 70, 2, 80);
}

static void loss(int N, int T, int vocab, int V, int first, int M) {
    pair_open((Shape){N / T, T, 64, 64 / 8, V, M, 1});
    Array *logits = array_normal(ACTS, (size_t)M * (size_t)V, 3, 0), *losses = array_filled(FLOATS, (size_t)N, 0);
    Array *scale = array_filled(FLOATS, 1, 4), *rows = array_tokens((size_t)(N / T * (T + 1)), vocab),
          *total = array_filled(DOUBLES, 1, 0.5);
    for (int i = 0; i < M; i++)
        for (int c = vocab; c < V; c++)
            logits->start[(size_t)i * (size_t)V + (size_t)c] = NAN; // padding may hold anything
    ON_BOTH(on->cross_entropy(AT(logits), AT(losses), AT(rows), first, M, T, vocab, V, 1.0f / 256, AT(scale), false);
            on->sum_losses(AT(total), AT(losses), N));
    CHECK_NEAR(losses, 1e-6);
    CHECK_NEAR(total, 1e-6);
    CHECK_NEAR(logits, 0); // loss only: untouched
    ON_BOTH(on->cross_entropy(AT(logits), AT(losses), AT(rows), first, M, T, vocab, V, 1.0f / 256, AT(scale), true));
    CHECK_NEAR(losses, 1e-6);
    CHECK_NEAR(logits, rounded_once);
    for (int i = 0; i < M; i++)
        for (int c = vocab; c < V; c++) CHECK(logits->result[CUDA][(size_t)i * (size_t)V + (size_t)c] == 0);
    pair_close();
}

TEST(cuda_loss_agrees_with_the_cpu) {
    loss(12, 6, 65, 128, 4, 8);
    loss(6, 3, 5003, 5056, 0, 6);
    loss(2, 2, 50257, 50304, 0, 2);
    loss(300, 300, 65, 128, 292, 8); // sum_losses: more losses than a block has threads
}

TEST(cuda_gradient_norm_agrees_with_the_cpu_beyond_one_round_of_its_grid) {
    const size_t n = 2 * 1048576 + 8; // 512 blocks of 256 threads of 8
    pair_open((Shape){1, 64, 64, 8, ANY, ANY, 1});
    Array *grads = array_normal(GRADS, n, 1e-3, 0), *norm = array_filled(FLOATS, 1, NAN);
    Array *scale = array_filled(FLOATS, 1, 1);
    for (size_t i = n / 2; i < n; i++) grads->start[i] *= 3; // a round that is left out shows
    ON_BOTH(on->gradient_norm(AT(norm), AT(grads), n, AT(scale)));
    CHECK_NEAR(norm, 1e-6);
    pair_close();
}

static Array *adamw_array(const AdamWSettings *settings) {
    const AdamW step = adamw_init(settings);
    return array_bytes(&step, sizeof step);
}

TEST(cuda_update_agrees_with_the_cpu) {
    const size_t n = 20480 + 264, decays = 8 * 999;
    pair_open((Shape){1, 64, 64, 64 / 8, ANY, ANY, 1});
    Array *params = array_normal(PARS, n, 0.02, 0), *master = array_normal(FLOATS, n, 0, 0);
    Array *grads = array_normal(GRADS, n, 1e-3, 0), *m = array_normal(FLOATS, n, 1e-4, 0);
    Array *v = array_filled(FLOATS, n, 1e-7), *norm = array_filled(FLOATS, 1, NAN);
    memcpy(master->start, params->start, n * sizeof(double));
    Array *scale = array_filled(FLOATS, 1, 0.5), *steps[2];
    for (int clipped = 0; clipped < 2; clipped++)
        steps[clipped] = adamw_array(&(AdamWSettings){1e-3, 0.9, 0.95, 1e-8, 0.1, clipped ? 0.05 : 0, 5, 1});
    for (int clipped = 0; clipped < 2; clipped++) { // the CPU's parameters are their own master
        ON_BOTH(on->gradient_norm(AT(norm), AT(grads), n, AT(scale));
                on->adamw(AT(params), run ? AT(master) : AT(params), AT(grads), AT(m), AT(v), 0, n, decays,
                          AT(steps[clipped]), AT(norm), AT(scale)));
        CHECK_NEAR(norm, 1e-6);
        CHECK_NEAR(m, 1e-6);
        CHECK_NEAR(v, 1e-6);
        CHECK_NEAR(params, rounded_once);
        for (size_t i = 0; i < n; i++) master->result[CPU][i] = params->result[CPU][i];
        CHECK_NEAR(master, 1e-6);
    }
    grads->start[17] = INFINITY;
    ON_BOTH(on->gradient_norm(AT(norm), AT(grads), n, AT(scale));
            on->adamw(AT(params), run ? AT(master) : AT(params), AT(grads), AT(m), AT(v), 0, n, decays, AT(steps[1]),
                      AT(norm), AT(scale)));
    CHECK(!isfinite(norm->result[CUDA][0]));
    CHECK_NEAR(params, 0); // nothing was written
    for (size_t i = 0; i < n; i++) CHECK(m->result[CUDA][i] == (double)(float)m->start[i]);
    pair_close();
}

// The value that a second implementation of the rounding gives: random bits from common/rng.h. Stream 0 is for
// parameters, which have the type of activations, the others are moments.
static double rounded_randomly(double value, size_t element, uint32_t step, uint32_t stream, uint64_t rounding_seed) {
    uint32_t counter[4] = {(uint32_t)(element / 8), 0, step, stream}, bits[4];
    const uint32_t key[2] = {(uint32_t)rounding_seed, (uint32_t)(rounding_seed >> 32)};
    philox4x32(counter, key, bits);
    uint32_t random = bits[element % 8 / 2] >> (element & 1) * 16 & 0xffff;
    const bool fp16 = stream == 0 && pair_backend(CUDA)->act_type == DTYPE_FP16;
    int exponent;
    frexp(value, &exponent);
    double ulp = ldexp(1, fp16 ? exponent < -13 ? -24 : exponent - 11 : exponent - 8);
    double chance = fp16 ? (random >> 3) / 8192.0 : random / 65536.0, size = fabs(value) / ulp;
    return copysign(fmin(floor(size + chance) * ulp, fp16 ? 65504 : INFINITY), value);
}

// All but a few of the numbers are exactly that, and the errors cancel: sums of two fp32 paths differ in the last bit
// at times.
static void check_rounding(const Array *array, uint32_t stream, uint64_t rounding_seed) {
    size_t differ = 0;
    double bias = 0, ulps = 0;
    for (size_t i = 0; i < array->count; i++) {
        double want = array->result[CPU][i], got = array->result[CUDA][i];
        differ += got != rounded_randomly(want, i, 5, stream, rounding_seed);
        if (fabs(want) > 65504) continue;
        bias += got - want, ulps += fabs(want) / 256;
    }
    CHECK(differ < array->count / 500 + 2);
    CHECK(fabs(bias / ulps) < 5 / sqrt((double)array->count));
}

TEST(cuda_update_rounds_randomly_and_without_bias) {
    const size_t n = 8192 + 64, decays = 4096;
    const uint64_t rounding_seed = 0x1234567890abcdefu;
    for (int stochastic = 0; stochastic < 2; stochastic++) {
        pair_optimizer_state = stochastic ? STATE_BF16_SR : STATE_BF16;
        pair_open((Shape){1, 64, 64, 8, ANY, ANY, 1});
        CHECK_EQUAL(pair_backend(CUDA)->master_bytes, stochastic ? 0 : 4);
        Array *params = array_normal(PARS, n, 0.02, 0), *master = array_normal(FLOATS, n, 0, 0);
        Array *grads = array_normal(GRADS, n, 1e-3, 0), *m = array_normal(MOMENTS, n, 1e-4, 0);
        Array *v = array_filled(MOMENTS, n, 1e-7), *norm = array_filled(FLOATS, 1, 1);
        Array *step = adamw_array(&(AdamWSettings){1e-3, 0.9, 0.95, 1e-8, 0.1, 0, 5, rounding_seed});
        Array *scale = array_filled(FLOATS, 1, 1);
        for (size_t i = 0; i < 256; i++) // small steps from zero, where fp16 is coarse
            params->start[i] = 0, m->start[i] = (double)i * 0x1p-28, grads->start[i] *= 0x1p-10;
        if (stochastic) m->start[n - 1] = -0x1p23; // to some ten millions: more than fp16 has
        memcpy(master->start, params->start, n * sizeof(double));
        ON_BOTH(for (size_t at = 0, end; at < n; at = end) { // CUDA in slices, one of them in both groups
            end = run && at + 3000 < n ? at + 3000 : n;
            on->adamw(offset(AT(params), 2 * at), offset(run ? AT(master) : AT(params), 4 * at),
                      offset(AT(grads), 4 * at), offset(AT(m), 2 * at), offset(AT(v), 2 * at), at, end - at, decays,
                      AT(step), AT(norm), AT(scale));
        });
        check_rounding(m, 1, rounding_seed);
        check_rounding(v, 2, rounding_seed);
        if (stochastic)
            check_rounding(params, 0, rounding_seed);
        else
            CHECK_NEAR(params, rounded_once);
        pair_close();
    }
    pair_optimizer_state = STATE_FP32;
}

// Blocks hand tiles of dQ to each other through flags. The emulator runs blocks one after another, so only a device can
// show a fence that is missing: a thousand launches with all blocks at once, the same bits every time.
TEST(cuda_attention_gradient_repeats_its_bits) {
    const bool emulated = &emu_order != NULL;
    const int B = emulated ? 1 : 8, T = emulated ? 70 : 1024, H = emulated ? 1 : 12, D = 64,
              launches = emulated ? 2 : 1000;
    pair_open((Shape){B, T, H * D, H, ANY, ANY, 1});
    const Backend *on = pair_backend(CUDA);
    const size_t n = (size_t)(B * T * H * D), bytes = 3 * n * on->act_bytes;
    Array *qkv = array_normal(ACTS, 3 * n, 1, 0), *out = array_filled(ACTS, n, NAN);
    Array *lse = array_filled(FLOATS, (size_t)(B * H * T), NAN), *dout = array_normal(ACTS, n, 1, 0);
    Array *dqkv = array_filled(ACTS, 3 * n, NAN);
    array_send(CUDA);
    unsigned char *first = malloc(bytes), *now = malloc(bytes);
    NEED(first && now);
    on->attention_forward(array_at(out, 1), array_at(lse, 1), array_at(qkv, 1), NULL, 0, B, T, H, D);
    for (int launch = 0; launch < launches; launch++) {
        on->attention_backward(array_at(dqkv, 1), NULL, array_at(dout, 1), array_at(out, 1), array_at(lse, 1),
                               array_at(qkv, 1), NULL, 0, B, T, H, D, false);
        on->download(launch ? now : first, array_at(dqkv, 1), bytes);
        CHECK(!launch || !memcmp(first, now, bytes));
    }
    free(first), free(now);
    pair_close();
}
