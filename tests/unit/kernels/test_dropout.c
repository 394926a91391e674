// The statistics of dropout's masks. That the kernels follow their definition: tests/operations.
#include "kernels/dropout_mask.h"
#include "tests/test.h"
#include <math.h>

// The share of zeros is p within 5 standard deviations, for each key that a mask depends on.
TEST(kernels_dropout_zeroes_the_share_it_is_given) {
    enum { COLS = 4096, ROWS = 64 };
    const double n = COLS * ROWS, p = 0.1;
    for (int change = 0; change < 6; change++) {
        Dropout dropout = {{1, 0}, 1, 0, 6554, 1 / 0.9f}, base = dropout;
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
