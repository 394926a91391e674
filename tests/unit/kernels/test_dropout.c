// Dropout: the masks of the kernels against the scalar definition in kernels/dropout_mask.h, and their statistics.
#include "tests/unit/kernels/fixture_kernels.h"

static Dropout *put_dropout(Kernels *k, Dropout dropout) {
    Dropout *device = take(k, sizeof dropout);
    k->ops->upload(device, &dropout, sizeof dropout);
    return device;
}

// Shapes with columns that are no multiple of 8, and more than one block of vectors wide.
TEST(kernels_dropout_follows_the_definition_of_its_masks) {
    static const int shapes[][3] = {
        {1, 1,  1  },
        {2, 5,  13 },
        {3, 40, 129},
        {2, 33, 384}
    };
    const Dropout dropout = {
        {0xdeadbeef, 17},
        12345, 6, 6554, 1 / 0.9f
    };
    for (Dtype type = DTYPE_FP32; type <= DTYPE_FP16; type++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const int B = shapes[i][0], T = shapes[i][1], C = shapes[i][2];
            const size_t n = (size_t)(B * T * C);
            const Shape shape = {.B = B, .T = T, .C = C, .H = 1, .V = 64, .chunk_rows = 64, .threads = 2};
            Kernels k = kernels_open(type, 2, &shape);
            const Dropout *device = put_dropout(&k, dropout);
            float *x = numbers(1, n, 1), *column = host((size_t)C, 4);
            Act *in = PUT_ACT(&k, x, n), *out = take(&k, n * 4);
            Res *residual = PUT_RES(&k, x, n);
            Grad *dbias = take(&k, (size_t)C * 4);
            k.ops->dropout(out, dbias, in, device, 9, DROPOUT_MLP_OUT, B, T, C, false);
            k.ops->dropout_residual(residual, device, B, T, C);
            const float *rounded = GET_ACT(&k, in, n), *got = GET_ACT(&k, out, n),
                        *sum = GET_GRAD(&k, dbias, (size_t)C);
            const float *stream = GET_RES(&k, residual, n);
            for (size_t at = 0; at < n; at++) {
                const uint32_t col = (uint32_t)(at % (size_t)C), row = (uint32_t)(at / (size_t)C);
                const uint32_t b = row / (uint32_t)T, t = row % (uint32_t)T;
                const float factor = dropout_factor(&dropout, 9, DROPOUT_MLP_OUT, b, t, (uint32_t)C, col);
                const float other = dropout_factor(&dropout, 0, DROPOUT_EMBEDDING, b, t, (uint32_t)C, col);
                CHECK(fabsf(got[at] - rounded[at] * factor) <= fabsf(rounded[at]) * (k.tight ? 0 : 0.006f));
                CHECK(stream[at] == x[at] * other);
                column[col] += rounded[at] * factor;
            }
            CHECK_CLOSE(sum, column, (size_t)C, 1e-4, 1e-4);
            k.ops->dropout(in, dbias, in, device, 9, DROPOUT_MLP_OUT, B, T, C, true); // in place, sums added
            CHECK(!memcmp(got, GET_ACT(&k, in, n), n * sizeof *got));
            const float *twice = GET_GRAD(&k, dbias, (size_t)C);
            for (int c = 0; c < C; c++) CHECK(twice[c] == 2 * sum[c]);
            kernels_close(&k);
        }
}

// The share of zeros is p within 5 standard deviations, for each key that a mask depends on.
TEST(kernels_dropout_zeroes_the_share_it_is_given) {
    enum { COLS = 4096, ROWS = 64 };
    const double n = COLS * ROWS, p = 0.1;
    for (int change = 0; change < 6; change++) {
        Dropout dropout =
                    {
                        {1, 0},
                        1, 0, 6554, 1 / 0.9f
        },
                base = dropout;
        const uint32_t sample = change == 1;
        const int layer = change == 2;
        const DropoutSite site = change == 3 ? DROPOUT_MLP_OUT : DROPOUT_EMBEDDING;
        dropout.step += change == 4, dropout.seed[1] += change == 5;
        double zeros = 0, both = 0;
        for (uint32_t row = 0; row < ROWS; row++)
            for (uint32_t col = 0; col < COLS; col++) {
                const bool zero = dropout_factor(&dropout, layer, site, sample, row, COLS, col) == 0;
                zeros += zero;
                both += zero && dropout_factor(&base, 0, DROPOUT_EMBEDDING, 0, row, COLS, col) == 0;
            }
        CHECK(fabs(zeros - n * p) < 5 * sqrt(n * p * (1 - p)));
        if (change) CHECK(fabs(both - n * p * p) < 5 * sqrt(n * p * p * (1 - p * p))); // independent of the base mask
    }
}
