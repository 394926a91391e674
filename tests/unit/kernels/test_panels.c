// The products of float32 in one order: the bits of a scalar loop, under every instruction set that the processor has.
#include "common/machine/cpu.h"
#include "kernels/cpu/cpu_internal.h"
#include "tests/test.h"
#include <math.h>
#include <stdlib.h>

// Numbers of every size: subnormal ones, and such that partial sums are large beside the result.
static void fill(float *x, int count, uint64_t *state, int exponents) {
    for (int i = 0; i < count; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        const int exponent = (int)(*state >> 58) % exponents;
        x[i] = ldexpf((float)((int)(*state >> 33 & 0xffffff) - 0x800000) * 0x1p-23f, -exponent);
    }
}

static float element(const PanelProduct *p, int m, int n) {
    const float *a = p->a, *b = p->b;
    float sum = p->add ? p->c[m * p->N + n] : p->bias ? p->bias[n] : 0;
    for (int k = 0; k < p->K; k++)
        sum = fmaf(a[p->a_turned ? k * p->M + m : m * p->K + k], b[p->b_turned ? n * p->K + k : k * p->N + n], sum);
    return sum;
}

static float *floats(int count) {
    float *x = aligned_alloc(64, round_up((size_t)count * sizeof *x, 64));
    CHECK(x);
    return x;
}

// `form`: bit 0 a turned, 1 b turned, 2 added to c, 3 with a bias. exponents 64: the smallest products are subnormal.
static void check_product(int M, int N, int K, int form, int exponents) {
    const CpuVariant *const units[] = CPU_VARIANTS(fp32);
    uint64_t state = (uint64_t)(M * 31 + N * 7 + K + form);
    float *a = floats(M * K), *b = floats(K * N), *bias = floats(N), *c = floats(M * N), *start = floats(M * N),
          *want = floats(M * N);
    fill(a, M * K, &state, exponents), fill(b, K * N, &state, exponents), fill(bias, N, &state, 30);
    fill(start, M * N, &state, 30);
    for (int i = 0; exponents == 64 && i < M * K; i++) a[i] *= 0x1p-60f;
    const PanelProduct p = {c, a, b, form & 8 ? bias : NULL, M, N, K, form & 1, form & 2, form & 4, false};
    const size_t bytes = (size_t)(M * N) * sizeof *c;
    memcpy(c, start, bytes);
    for (int i = 0; i < M * N; i++) want[i] = element(&p, i / N, i % N);
    for (Isa isa = ISA_PORTABLE; isa <= cpu_isa(); isa++) {
        float *scratch = floats((int)(units[isa]->panels_scratch(N, 4) / sizeof *scratch));
        for (int threads = 1; threads <= 4; threads++) {
            CHECK(team_set_threads(threads) == 0);
            memcpy(c, start, bytes);
            units[isa]->multiply_panels(&p, scratch);
            CHECK(!memcmp(c, want, bytes));
            if (M > 1 || (form & 7) != 2) continue;
            memset(c, 0xff, bytes);
            units[isa]->multiply_row_plain(c, a, b, p.bias, N, K);
            CHECK(!memcmp(c, want, bytes));
        }
        free(scratch);
    }
    CHECK(team_set_threads(1) == 0);
    free(a), free(b), free(bias), free(c), free(start), free(want);
}

TEST(panels_have_the_bits_of_a_scalar_loop_under_every_instruction_set) {
    static const int shapes[][3] = {{1, 1, 1},     {1, 50, 33},   {7, 33, 19},    {13, 65, 100},
                                    {70, 37, 300}, {5, 17, 2100}, {13, 530, 1030}}; // the last: a is shared
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int form = 0; form < 16; form++)
            check_product(shapes[i][0], shapes[i][1], shapes[i][2], form, form % 3 ? 30 : 64);
    check_product(250, 256, 1030, 1, 30); // tiles of a need more memory than panels of b would
    check_product(3, 4100, 9, 2, 30);     // of more columns than there are panels at a time
}

// The operations of an open backend by rows x cols weights, of which no copy is packed.
static void check_operations(const Backend *on, int M, int rows, int cols) {
    const Shape shape = {1, M, cols, 1, rows, M, 2};
    const size_t bytes = on->scratch_bytes(&shape);
    uint64_t state = (uint64_t)(M + rows * cols);
    float *in = floats(M * cols), *dout = floats(M * rows), *param = floats(rows * cols), *bias = floats(rows);
    float *out = floats(M * rows), *din = floats(M * cols), *dw = floats(rows * cols), *start = floats(rows * cols);
    void *scratch = on->alloc(bytes);
    fill(in, M * cols, &state, 20), fill(dout, M * rows, &state, 20), fill(param, rows * cols, &state, 20);
    fill(bias, rows, &state, 20), fill(start, rows * cols, &state, 20);
    on->bind_scratch(scratch, bytes);
    const Weight w = {(const Par *)param, NULL, rows, cols};
    for (int biased = 0; biased < 2; biased++) {
        on->matmul_forward((Act *)out, (const Act *)in, &w, biased ? (const Par *)bias : NULL, M);
        const PanelProduct p = {out, in, param, biased ? bias : NULL, M, rows, cols, .b_turned = true};
        for (int i = 0; i < M * rows; i++) CHECK(out[i] == element(&p, i / rows, i % rows));
    }
    on->matmul_backward_input((Act *)din, (const Act *)dout, &w, M);
    const PanelProduct input = {din, dout, param, NULL, M, cols, rows, .add = false};
    for (int i = 0; i < M * cols; i++) CHECK(din[i] == element(&input, i / cols, i % cols));
    for (int add = 0; add < 2; add++) {
        memcpy(dw, start, sizeof *dw * (size_t)(rows * cols));
        on->matmul_backward_weight((Grad *)dw, (const Act *)dout, (const Act *)in, M, rows, cols, add);
        const PanelProduct p = {start, dout, in, NULL, rows, cols, M, .a_turned = true, .add = add};
        for (int i = 0; i < rows * cols; i++) CHECK(dw[i] == element(&p, i / cols, i % cols));
    }
    on->release(scratch);
    free(in), free(dout), free(param), free(bias), free(out), free(din), free(dw), free(start);
}

TEST(products_of_a_portable_backend_have_the_bits_of_a_scalar_loop) {
    char why[256];
    const BackendChoice choice = {.device = DEVICE_CPU, .dtype = DTYPE_FP32, .threads = 2};
    const Backend *backend = backend_open(&choice, why);
    CHECK(backend && backend->set_portable);
    backend->set_portable(true);
    static const int shapes[][3] = {{1, 50, 33}, {1, 192, 128}, {37, 192, 128}, {5, 19, 2100}, {3, 1100, 8}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_operations(backend, shapes[i][0], shapes[i][1], shapes[i][2]);
    backend->close();
}
