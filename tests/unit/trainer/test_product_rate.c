// The measured rate of matrix products, on a backend whose products take a known time; and the peaks of GPUs.
#include "common/log.h"
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/model/product_rate.h"
#include "trainer/run/run.h"
#include <string.h>
#include <unistd.h>

static int calls, rows_given;
static uint64_t first_ns, best_ns; // what the calls took: a loaded machine wakes them late

// 40 ms for the first call, which makes the kernel; then 4 ms.
static void slow_product(Act *out, const Act *in, const Weight *w, const Par *bias, int M) {
    (void)out, (void)in, (void)w, (void)bias;
    rows_given = M;
    const uint64_t started = clock_ns();
    usleep(calls ? 4000 : 40000);
    const uint64_t ns = clock_ns() - started;
    if (!calls++)
        first_ns = ns, best_ns = UINT64_MAX;
    else if (ns < best_ns)
        best_ns = ns;
}

static void copy(void *host, const void *device, size_t bytes) { memcpy(host, device, bytes); }

TEST(product_rate_is_that_of_the_best_call_without_the_first) {
    const Backend backend = {.matmul_forward = slow_product, .download = copy};
    const Weight weight = {.rows = 4000, .cols = 500};
    char out[1] = {0};
    calls = 0;
    const double rate = product_rate(&backend, &weight, NULL, (Act *)out, 1000), flops = 2.0 * 1000 * 4000 * 500;
    assert_int_equal(rows_given, 1000);
    assert_true(calls >= 3);
    assert_true(rate <= flops / ((double)best_ns * 1e-9)); // a call cannot take less than its product
    if (first_ns > 2 * best_ns) assert_true(rate > flops / ((double)first_ns * 1e-9));
}

TEST(product_rate_takes_few_rows_of_a_wide_model) {
    const Backend backend = {.matmul_forward = slow_product, .download = copy};
    const Weight weight = {.rows = 1 << 18, .cols = 1 << 16};
    char out[1] = {0};
    product_rate(&backend, &weight, NULL, (Act *)out, 1024);
    assert_int_equal(rows_given, 1);
}

TEST(product_rate_of_the_cpu_is_measured_with_and_without_a_network) {
    Tiny tiny;
    tiny_open(&tiny, &tiny_shape);
    const ModelShape shape = tiny.model.shape;
    assert_true(network_product_rate(&tiny.network) > 1e5);
    tiny_close(&tiny);
    tiny_open(&tiny, &tiny_shape);
    assert_true(product_rate_probe(tiny.backend, &shape, 64) > 1e5);
    tiny_close(&tiny);
}

TEST(gpu_peak_is_found_by_the_name_of_the_card) {
    static const struct {
        const char *text;
        double tflops;
    } cases[] = {
        {"cuda: NVIDIA H100 80GB HBM3, compute capability 9.0, 79.1 GiB, bfloat16",         989},
        {"cuda: NVIDIA H100 PCIe, compute capability 9.0, 79.1 GiB, bfloat16",              756},
        {"cuda: NVIDIA A100-SXM4-40GB, compute capability 8.0, 39.4 GiB, bfloat16",         312},
        {"cuda: NVIDIA GeForce RTX 4070, compute capability 8.9, 11.7 GiB, bfloat16",       58 },
        {"cuda: NVIDIA GeForce RTX 4070 SUPER, compute capability 8.9, 11.7 GiB, bfloat16", 0  },
        {"cpu: as requested; 2 threads, bfloat16 (avx512)",                                 0  },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(gpu_peak_rate(cases[i].text) == cases[i].tflops * 1e12);
}
