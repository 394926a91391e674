// Every operation against torch (tests/oracle/trainer/make_kernels.py), in fp32, bf16 and fp16.
#include "tests/unit/kernels/fixture_kernels.h"

static const Shape shape = {.B = 4, .T = 130, .C = 256, .H = 1, .V = 128, .chunk_rows = 64};
#define EACH_DTYPE(k)                                                                                                  \
    for (Dtype dtype_ = DTYPE_FP32; dtype_ <= DTYPE_FP16; dtype_++)                                                    \
        for (Kernels k = kernels_open(dtype_, 0, &shape); k.ops; kernels_close(&k), k.ops = NULL)

// A gradient that was overwritten (`once`) and then added to (`twice`).
static void expect_gradient(Kernels *k, const char *name, const float *once, const float *twice, size_t n) {
    expect_torch(k, name, once, n);
    float *half = host(n, sizeof *half);
    for (size_t i = 0; i < n; i++) half[i] = twice[i] / 2;
    expect_torch(k, name, half, n);
}

TEST(kernels_embedding_matches_torch) {
    EACH_DTYPE(k) {
        enum { B = 2, T = 5, C = 40, V = 64 };
        uint16_t *rows = put(&k, (float *)token_ids(1, B * (T + 1), V), B * (T + 1) / 2, 4);
        Res *out = take(&k, B * T * C * 4);
        Par *wte = PUT_PAR(&k, numbers(2, V * C, 1), V * C), *wpe = PUT_PAR(&k, numbers(3, T * C, 1), T * C);
        k.ops->embed_forward(out, rows, wte, wpe, B, T, C, V);
        expect_torch(&k, "embed out", GET_RES(&k, out, B * T * C), B * T * C);

        Res *dout = PUT_RES(&k, numbers(4, B * T * C, 1), B * T * C);
        Grad *dwte = take(&k, V * C * 4), *dwpe = PUT_GRAD(&k, numbers(9, T * C, 1), T * C);
        k.ops->zero(dwte, V * C * k.ops->grad_bytes);
        k.ops->embed_backward(dwte, dwpe, dout, rows, B, T, C, V, false);
        float *once = GET_GRAD(&k, dwpe, T * C);
        expect_torch(&k, "embed dwte", GET_GRAD(&k, dwte, V * C), V * C);
        k.ops->embed_backward(dwte, dwpe, dout, rows, B, T, C, V, true);
        expect_gradient(&k, "embed dwpe", once, GET_GRAD(&k, dwpe, T * C), T * C);
    }
}

TEST(kernels_layernorm_matches_torch) {
    EACH_DTYPE(k) {
        enum { N = 37, C = 40, NC = N * C };
        float *x = numbers(1, NC, 3), *branch = numbers(2, NC, 1), *sum = host(NC, 4);
        for (int i = 0; i < NC; i++) sum[i] = x[i] + branch[i];
        Res *in = PUT_RES(&k, x, NC), *total = take(&k, NC * 4);
        Act *out = take(&k, NC * 4);
        float *mean = take(&k, N * 4), *rstd = take(&k, N * 4);
        Par *w = PUT_PAR(&k, numbers(3, C, 1), C), *b = PUT_PAR(&k, numbers(4, C, 1), C);
        const Norm norm = {N, C, w, b, mean, rstd}, no_bias = {N, C, w, NULL, mean, rstd};
        k.ops->layernorm_forward(total, out, in, PUT_ACT(&k, branch, NC), &norm);
        compare(&k, "sum", GET_RES(&k, total, NC), sum, NC, 1);
        expect_torch(&k, "layernorm out", GET_ACT(&k, out, NC), NC);

        Res *exact = PUT_RES(&k, sum, NC); // in place, no branch
        k.ops->layernorm_forward(exact, out, exact, NULL, &norm);
        expect_torch(&k, "layernorm out", GET_ACT(&k, out, NC), NC);
        compare(&k, "sum in place", GET_RES(&k, exact, NC), sum, NC, 1);
        Act *without = take(&k, NC * 4);
        k.ops->layernorm_forward(exact, without, exact, NULL, &no_bias);
        float *biased = GET_ACT(&k, without, NC), *beta = numbers(4, C, 1);
        for (int i = 0; i < NC; i++) biased[i] += beta[i % C];
        expect_torch(&k, "layernorm out", biased, NC);

        // Backward: overwrites, then accumulates.
        Act *dout = PUT_ACT(&k, numbers(5, NC, 1), NC), *narrow = take(&k, NC * 4);
        Res *dsum = PUT_RES(&k, numbers(6, NC, 1), NC);
        Grad *dw = PUT_GRAD(&k, numbers(7, C, 1), C), *db = PUT_GRAD(&k, numbers(8, C, 1), C),
             *below = PUT_GRAD(&k, numbers(9, C, 1), C);
        const NormGradients to = {dw, db, below};
        k.ops->layernorm_backward(dsum, narrow, &to, dout, exact, &norm, true, false);
        float *d1 = GET_RES(&k, dsum, NC), *dw1 = GET_GRAD(&k, dw, C), *db1 = GET_GRAD(&k, db, C), column[C];
        float *below1 = GET_GRAD(&k, below, C);
        expect_torch(&k, "layernorm dsum", GET_ACT(&k, narrow, NC), NC);
        for (int c = 0; c < C; c++) {
            double total_c = 0;
            for (int n = 0; n < N; n++) total_c += (double)d1[n * C + c];
            column[c] = (float)total_c;
        }
        CHECK_CLOSE(below1, column, C, 1e-4, 1e-4);
        k.ops->layernorm_backward(dsum, narrow, &to, dout, exact, &norm, false, true);
        expect_gradient(&k, "layernorm dsum", d1, GET_RES(&k, dsum, NC), NC);
        expect_gradient(&k, "layernorm dweight", dw1, GET_GRAD(&k, dw, C), C);
        expect_gradient(&k, "layernorm dbias", db1, GET_GRAD(&k, db, C), C);
        float *below2 = GET_GRAD(&k, below, C);
        for (int c = 0; c < C; c++) column[c] *= 3; // once, and twice more
        CHECK_CLOSE(below2, column, C, 1e-4, 1e-4);
        k.ops->layernorm_backward(dsum, narrow, &(NormGradients){.weight = dw}, dout, exact, &norm, true, false);
        expect_torch(&k, "layernorm dweight", GET_GRAD(&k, dw, C), C);
    }
}

static void matmul(Kernels *k, const char *name, int M, int rows, int cols) {
    char record[64];
    const size_t in_n = (size_t)(M * cols), out_n = (size_t)(M * rows), w_n = (size_t)(rows * cols);
    Weight w = {PUT_PAR(k, numbers(2, w_n, 0.2f), w_n), NULL, rows, cols};
    w.packed = take(k, k->ops->packed_bytes(rows, cols));
    k->ops->pack(&w);
    Act *in = PUT_ACT(k, numbers(1, in_n, 1), in_n), *dout = PUT_ACT(k, numbers(4, out_n, 1), out_n);
    Act *out = take(k, out_n * 4), *din = take(k, in_n * 4);
    float *bias = numbers(3, (size_t)rows, 1);
    k->ops->matmul_forward(out, in, &w, PUT_PAR(k, bias, (size_t)rows), M);
    snprintf(record, sizeof record, "%s out", name);
    expect_torch(k, record, GET_ACT(k, out, out_n), out_n);
    k->ops->matmul_forward(out, in, &w, NULL, M);
    float *unbiased = GET_ACT(k, out, out_n);
    for (size_t i = 0; i < out_n; i++) unbiased[i] += bias[i % (size_t)rows];
    expect_torch(k, record, unbiased, out_n);

    k->ops->matmul_backward_input(din, dout, &w, M);
    snprintf(record, sizeof record, "%s din", name);
    expect_torch(k, record, GET_ACT(k, din, in_n), in_n);
    Grad *dw = PUT_GRAD(k, numbers(5, w_n, 1), w_n);
    k->ops->matmul_backward_weight(dw, dout, in, M, rows, cols, false);
    float *once = GET_GRAD(k, dw, w_n);
    k->ops->matmul_backward_weight(dw, dout, in, M, rows, cols, true);
    snprintf(record, sizeof record, "%s dw", name);
    expect_gradient(k, record, once, GET_GRAD(k, dw, w_n), w_n);
}

TEST(kernels_matmul_matches_torch) {
    EACH_DTYPE(k) {
        matmul(&k, "matmul", 37, 128, 96);
        matmul(&k, "matmul odd", 19, 72, 40);
    }
}

TEST(kernels_gelu_matches_torch) {
    EACH_DTYPE(k) for (Activation form = ACTIVATION_GELU_TANH; form <= ACTIVATION_GELU; form++) {
        enum { N = 37, C = 40, NC = N * C };
        float column[C] = {0}, *x = numbers(1, NC, 8);
        if (!k.tight) { // x rounded moves the slope: the oracle's error, not ours
            Act *rounded = PUT_ACT(&k, x, NC);
            x = GET_ACT(&k, rounded, NC);
        }
        Act *in = PUT_ACT(&k, x, NC), *out = take(&k, NC * 4), *d = PUT_ACT(&k, numbers(2, NC, 1), NC);
        Grad *dbias = PUT_GRAD(&k, numbers(3, C, 1), C);
        k.ops->gelu_forward(out, in, NC, form);
        expect_torch(&k, form == ACTIVATION_GELU ? "gelu exact out" : "gelu tanh out", GET_ACT(&k, out, NC), NC);
        k.ops->gelu_backward(d, dbias, in, N, C, form, false);
        float *once = GET_ACT(&k, d, NC), *dbias1 = GET_GRAD(&k, dbias, C);
        expect_torch(&k, form == ACTIVATION_GELU ? "gelu exact din" : "gelu tanh din", once, NC);
        for (int i = 0; i < NC; i++) column[i % C] += once[i];
        compare(&k, "dbias", dbias1, column, C, 1);
        Act *again = PUT_ACT(&k, numbers(2, NC, 1), NC);
        k.ops->gelu_backward(again, dbias, in, N, C, form, true);
        float *dbias2 = GET_GRAD(&k, dbias, C);
        for (int c = 0; c < C; c++) CHECK(dbias2[c] == 2 * dbias1[c]);
        again = PUT_ACT(&k, numbers(2, NC, 1), NC);
        k.ops->gelu_backward(again, NULL, in, N, C, form, false);
        CHECK(!memcmp(GET_ACT(&k, again, NC), once, NC * sizeof *once));
    }
}

static void attention(Kernels *k, const char *name, int B, int T, int H, int D) {
    char record[64];
    const size_t C = (size_t)(H * D), n = (size_t)(B * T) * C, rows = (size_t)(B * H * T);
    Act *qkv = PUT_ACT(k, numbers(1, 3 * n, 2), 3 * n), *out = take(k, n * 4), *dqkv = take(k, 3 * n * 4);
    Act *dout = PUT_ACT(k, numbers(2, n, 1), n);
    float *lse = take(k, rows * 4), *column = host(3 * C, 4);
    k->ops->attention_forward(out, lse, qkv, &(Attention){.B = B, .T = T, .H = H, .D = D});
    snprintf(record, sizeof record, "%s out", name);
    expect_torch(k, record, GET_ACT(k, out, n), n);
    snprintf(record, sizeof record, "%s lse", name);
    expect_torch(k, record, get(k, lse, rows, 4), rows);

    Grad *dbias = PUT_GRAD(k, numbers(3, 3 * C, 1), 3 * C);
    k->ops->attention_backward(dqkv, dbias, dout, out, lse, qkv, &(Attention){.B = B, .T = T, .H = H, .D = D}, false);
    float *once = GET_ACT(k, dqkv, 3 * n), *dbias1 = GET_GRAD(k, dbias, 3 * C);
    snprintf(record, sizeof record, "%s dqkv", name);
    expect_torch(k, record, once, 3 * n);
    for (size_t i = 0; i < 3 * n; i++) column[i % (3 * C)] += once[i];
    CHECK_CLOSE(dbias1, column, 3 * C, k->tight ? 1e-4 : 3e-2, k->tight ? 1e-4 : 6e-2);
    k->ops->attention_backward(dqkv, dbias, dout, out, lse, qkv, &(Attention){.B = B, .T = T, .H = H, .D = D}, true);
    float *dbias2 = GET_GRAD(k, dbias, 3 * C);
    for (size_t c = 0; c < 3 * C; c++) CHECK(dbias2[c] == 2 * dbias1[c]);
    k->ops->attention_backward(dqkv, NULL, dout, out, lse, qkv, &(Attention){.B = B, .T = T, .H = H, .D = D}, false);
    CHECK(!memcmp(GET_ACT(k, dqkv, 3 * n), once, 3 * n * sizeof *once));
}

TEST(kernels_attention_matches_torch) {
    EACH_DTYPE(k) {
        attention(&k, "attention 64", 1, 128, 2, 64);
        attention(&k, "attention 48", 2, 70, 2, 48);
        attention(&k, "attention 8", 2, 5, 3, 8);
        attention(&k, "attention 120", 1, 67, 1, 120);
        attention(&k, "attention 256", 1, 9, 1, 256);
    }
}

TEST(kernels_cross_entropy_matches_torch_and_ignores_padded_columns) {
    EACH_DTYPE(k) {
        enum { B = 3, T = 11, N = B * T, VOCAB = 117, V = 128, FIRST = 20 };
        float *x = numbers(1, N * V, 6), *zero = host(N * V, 4);
        uint16_t *rows = put(&k, (float *)token_ids(2, B * (T + 1), VOCAB), B * (T + 1) / 2, 4);
        Act *logits = PUT_ACT(&k, x, N * V);
        float *losses = take(&k, N * 4), *before = GET_ACT(&k, logits, N * V), losses_no[N];
        CrossEntropy loss = {.M = N, .T = T, .vocab = VOCAB, .V = V, .scale = 0.25f, .loss_scale = k.one};
        k.ops->cross_entropy(logits, losses, rows, &loss);
        memcpy(losses_no, get(&k, losses, N, 4), sizeof losses_no);
        expect_torch(&k, "cross_entropy losses", losses_no, N);
        CHECK(!memcmp(before, GET_ACT(&k, logits, N * V), N * V * sizeof *before));

        // In two chunks, the first row of the second in the middle of a sequence.
        loss.gradient = true, loss.M = FIRST;
        k.ops->cross_entropy(logits, losses, rows, &loss);
        loss.first = FIRST, loss.M = N - FIRST;
        k.ops->cross_entropy(offset(logits, FIRST * V * k.ops->act_bytes), losses, rows, &loss);
        CHECK(!memcmp(losses_no, get(&k, losses, N, 4), sizeof losses_no));
        float *gradient = GET_ACT(&k, logits, N * V);
        expect_torch(&k, "cross_entropy gradient", gradient, N * V);
        for (int n = 0; n < N; n++) CHECK(!memcmp(gradient + n * V + VOCAB, zero, (V - VOCAB) * sizeof *zero));

        double *total = take(&k, sizeof *total), sum = 0.5;
        k.ops->upload(total, &sum, sizeof sum);
        k.ops->sum_losses(total, losses, N);
        double want = 0.5;
        for (int n = 0; n < N; n++) want += (double)losses_no[n];
        k.ops->download(&sum, total, sizeof sum);
        CHECK(fabs(sum - want) < 1e-12 * want);
    }
}

TEST(kernels_adamw_and_norm_match_torch) {
    EACH_DTYPE(k) {
        if (!k.tight) continue; // parameters are fp32 in both
        enum { N = 1003, DECAYED = 700 };
        AdamWSettings settings = {3e-2, 0.9, 0.95, 1e-8, 0.1, 1, 0, 0};
        Par *params = PUT_PAR(&k, numbers(1, N, 1), N);
        Moment *m = take(&k, N * 4), *v = take(&k, N * 4);
        float *norm = take(&k, 4);
        k.ops->zero(m, N * 4), k.ops->zero(v, N * 4);
        for (settings.step = 1; settings.step <= 3; settings.step++) {
            Grad *g = PUT_GRAD(&k, numbers(9 + settings.step, N, 1), N);
            kernels_norm(&k, norm, g, N, k.one);
            const Update update = {0, N, DECAYED, params, (float *)params, g, norm, k.one, NULL};
            k.ops->adamw(m, v, &update, put_adamw(&k, &settings));
        }
        expect_torch(&k, "adamw norm", get(&k, norm, 1, 4), 1);
        float *after = get(&k, params, N, 4);
        expect_torch(&k, "adamw params", after, N);

        float *bad = numbers(20, N, 1);
        bad[N - 1] = NAN;
        Grad *g = PUT_GRAD(&k, bad, N);
        kernels_norm(&k, norm, g, N, k.one);
        CHECK(!isfinite(*get(&k, norm, 1, 4)));
        const Update update = {0, N, DECAYED, params, (float *)params, g, norm, k.one, NULL};
        k.ops->adamw(m, v, &update, put_adamw(&k, &settings));
        CHECK(!memcmp(after, get(&k, params, N, 4), N * sizeof *after));
    }
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
        const Shape small = {.B = 1, .T = 8, .C = 64, .H = 1, .V = 64, .chunk_rows = 8};
        Kernels k = kernels_open_state(DTYPE_FP32, 2, states[s], &small);
        size_t width = k.ops->moment_bytes;
        CHECK_EQUAL(width, s ? 2 : 4);
        Par *params = take(&k, N * 4);
        Moment *m = take(&k, N * width), *v = take(&k, N * width);
        float *norm = take(&k, 4), *first = numbers(1, N, 1);
        Grad *g = PUT_GRAD(&k, numbers(10, N, 1), N);
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
        const Shape small = {.B = 1, .T = 8, .C = 64, .H = 1, .V = 64, .chunk_rows = 8};
        Kernels k = kernels_open_state(DTYPE_FP32, 2, states[s], &small);
        const AdamW *adamw = put_adamw(&k, &(AdamWSettings){3e-2, 0.9, 0.95, 1e-8, 0.1, 1, 1, 7});
        size_t width = k.ops->moment_bytes;
        Par *params = take(&k, N * 4);
        Moment *m = take(&k, N * width), *v = take(&k, N * width);
        float *norm = take(&k, 4), *first = numbers(1, N, 1), *whole[3] = {0}, whole_norm = 0;
        for (size_t i = 0; i < sizeof slices / sizeof *slices; i++) {
            const float by = i % 2 ? 1024 : 1, *scale = kernels_number(&k, by);
            float *gradients = numbers(10, N, 1);
            for (size_t j = 0; j < N; j++) gradients[j] *= by;
            Grad *g = PUT_GRAD(&k, gradients, N);
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
            Kernels k = kernels_open_state(dtype, 2, moments_type, &shape);
            const AdamW *adamw = put_adamw(&k, &(AdamWSettings){3e-2, 0.9, 0.95, 1e-8, 0.1, 1, 1, 7});
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
                const int rows = shapes[i][0], cols = shapes[i][1];
                const size_t n = (size_t)(rows * cols), moments = n * k.ops->moment_bytes,
                             bytes = k.ops->packed_bytes(rows, cols);
                if (!bytes) continue;
                Grad *g = PUT_GRAD(&k, numbers(10, n, 1), n);
                float *norm = take(&k, 4);
                kernels_norm(&k, norm, g, n, k.one);
                char *results[2];
                for (int packs = 0; packs < 2; packs++) {
                    Par *params = PUT_PAR(&k, numbers(1, n, 1), n);
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
