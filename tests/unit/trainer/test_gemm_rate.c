// The measured GEMM rate, on backends whose products take a known time of a virtual clock; and the peaks
// of GPUs.
#include "tests/unit/trainer/fixture_trainer.h"
#include "trainer/model/gemm_rate.h"
#include "trainer/plan/gpu_card.h"
#include <math.h>
#include <string.h>

enum { US = 1000 }; // ns

static uint64_t virtual_ns; // the time of clock_ns; 0: that of the system

uint64_t __real_clock_ns(void), __wrap_clock_ns(void); // the Makefile puts the second one in place of the first
uint64_t __wrap_clock_ns(void) { return virtual_ns ? virtual_ns : __real_clock_ns(); }

static int calls, rows_given;

// 40 ms for the first call, which makes the kernel; then 4 ms.
static void slow_product(Act *out, const Act *in, const Weight *w, const Par *bias, int M) {
    (void)out, (void)in, (void)w, (void)bias;
    rows_given = M;
    virtual_ns += 4000 * US;
    if (!calls++) virtual_ns += 36000 * US;
}

static void copy(void *host, const void *device, size_t bytes) { memcpy(host, device, bytes); }

// A GPU: a call puts a product into a queue, and a download waits until all of them are done. The first call of a shape
// makes its kernel.
enum { LAUNCH_US = 5, ROW_NS = 50, MAKE_US = 20000, WAIT_US = 300 };
static uint64_t busy_until_ns;
static void queued_product(Act *out, const Act *in, const Weight *w, const Par *bias, int M) {
    (void)out, (void)in, (void)w, (void)bias;
    virtual_ns += LAUNCH_US * US;
    if (M != rows_given) virtual_ns += MAKE_US * US;
    rows_given = M, calls++;
    if (busy_until_ns < virtual_ns) busy_until_ns = virtual_ns;
    busy_until_ns += (uint64_t)M * ROW_NS;
}
static void wait_and_copy(void *host, const void *device, size_t bytes) {
    if (virtual_ns < busy_until_ns) virtual_ns = busy_until_ns;
    virtual_ns += WAIT_US * US;
    memcpy(host, device, bytes);
}

// The rate that is measured, as a part of `flops_per_ns`. The first product begins at 1 s.
static double measured(const Backend *backend, const Weight *weight, int rows, double flops_per_ns) {
    char out[1] = {0};
    calls = rows_given = 0, busy_until_ns = 0;
    virtual_ns = 1000000 * US;
    const double rate = gemm_rate(backend, weight, NULL, (Act *)out, rows);
    const double ms = (double)virtual_ns * 1e-6 - 1000;
    virtual_ns = 0;
    CHECK(ms < 300);
    return rate * 1e-9 / flops_per_ns;
}

TEST(gemm_rate_is_that_of_the_best_call_without_the_first) {
    for (int host = 0; host < 2; host++) {
        const Backend backend = {.in_host_memory = host, .matmul_forward = slow_product, .download = copy};
        const Weight weight = {.rows = 4000, .cols = 500};
        const double part = measured(&backend, &weight, 1000, 2.0 * 1000 * 4000 * 500 / (4000 * US));
        assert_int_equal(rows_given, host ? 250 : 1000); // a CPU's calls become shorter than a time slice
        CHECK(calls >= 40);
        CHECK(fabs(part - 1) < 1e-6);
    }
}

// A processor that another process has every second 4 ms. A call of all rows takes 10 ms without it.
static void shared_product(Act *out, const Act *in, const Weight *w, const Par *bias, int M) {
    (void)out, (void)in, (void)w, (void)bias;
    const uint64_t slice = 4000 * US;
    for (uint64_t left = (uint64_t)M * 10 * US; left;) {
        const uint64_t phase = virtual_ns % (2 * slice), rest = phase < slice ? slice - phase : 0;
        const uint64_t take = left < rest ? left : rest;
        virtual_ns += take ? take : 2 * slice - phase;
        left -= take;
    }
}

TEST(gemm_rate_of_a_shared_processor_is_that_of_the_calls_between_the_slices_of_others) {
    const Backend backend = {.in_host_memory = true, .matmul_forward = shared_product, .download = copy};
    const Weight weight = {.rows = 4000, .cols = 500};
    CHECK(fabs(measured(&backend, &weight, 1000, 2.0 * 4000 * 500 / (10 * US)) - 1) < 1e-6);
}

TEST(gemm_rate_uses_few_rows_of_a_wide_model) {
    const Backend backend = {.matmul_forward = slow_product, .download = copy};
    const Weight weight = {.rows = 1 << 18, .cols = 1 << 16};
    measured(&backend, &weight, 1024, 1);
    assert_int_equal(rows_given, 1);
}

// A wait takes as long as several products of 1000 rows. All rows of a step are measured, as their number decides how a
// GPU's multiprocessors divide a product.
TEST(gemm_rate_of_a_queue_is_that_of_all_rows_without_the_time_of_a_wait) {
    const Backend backend = {.matmul_forward = queued_product, .download = wait_and_copy};
    const Weight weight = {.rows = 3072, .cols = 768};
    const double row_flops = 2.0 * 3072 * 768;
    for (int rows = 1000; rows <= 64000; rows *= 64) {
        CHECK(fabs(measured(&backend, &weight, rows, row_flops / ROW_NS) - 1) < 0.05);
        assert_int_equal(rows_given, rows);
    }
}

TEST(gemm_rate_of_the_cpu_is_measured_with_and_without_a_network) {
    Tiny tiny;
    tiny_open(&tiny, &tiny_shape);
    const ModelShape shape = tiny.model.shape;
    assert_true(network_gemm_rate(&tiny.network) > 1e5);
    tiny_close(&tiny);
    tiny_open(&tiny, &tiny_shape);
    assert_true(gemm_rate_probe(tiny.backend, &shape, 64) > 1e5);
    tiny_close(&tiny);
}

// Each row by its own name, as a user may write it and as a plan for it has it. What names no
// card alone is refused.
TEST(each_card_is_found_by_its_name) {
    static const char *const names[] = {
#define GPU_CARD(name, ...) name,
#include "trainer/plan/gpu_cards.def"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char given[64], text[GPU_CARD_TEXT];
        const GpuCard *card = NULL;
        snprintf(given, sizeof given, "nvidia %.*s", (int)strcspn(names[i], ","), names[i]);
        for (char *c = given; *c; c++) *c = *c == ' ' ? '-' : *c;
        CHECK_EQUAL(gpu_card_find(&card, given), 0);
        CHECK(card->name == names[i] || !strcmp(card->name, names[i]));
        const GpuProperties gpu = gpu_card_properties(card, text);
        CHECK(gpu_card_of(gpu.card) == card && gpu.capability == card->capability);
        CHECK(gpu.free_bytes < gpu.memory_bytes);
    }
    static const struct {
        const char *given, *name; // NULL: none, with these names near it
        const char *near;
    } rows[] = {
        {"NVIDIA GeForce RTX 3060", "RTX 3060,", NULL},
        {"rtx3060 12GB", "RTX 3060,", NULL},
        {"RTX 3060 8GB", "RTX 3060 8GB,", NULL},
        {"T4 16GB", "T4,", NULL},
        {"H200 141 GB", "H200", NULL},
        {"A100 40GB", "A100", NULL},
        {"3090", "RTX 3090,", NULL},
        {"rtx4070tisuper", "RTX 4070 Ti SUPER,", NULL},
        // as drivers print them
        {"NVIDIA H100 80GB HBM3", "H100", NULL},
        {"NVIDIA A100-PCIE-40GB", "A100", NULL},
        {"NVIDIA A100-SXM4-40GB", "A100", NULL},
        {"NVIDIA A100 80GB PCIe", "A100 80GB", NULL},
        {"NVIDIA GH200 480GB", "GH200", NULL},
        {"NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", NULL},
        {"NVIDIA GeForce RTX 4060 Ti", "RTX 4060 Ti,", NULL},
        {"Tesla V100-SXM2-16GB", "V100-SXM2", NULL},
        {"NVIDIA GB10", NULL, "near it: "},
        {"NVIDIA H100 64GB HBM3", NULL, "near it: H100 PCIe, H100 NVL, H100"},
        {"NVIDIA A100-SXM-64GB", NULL, "near it: "},
        {"RTX 5000 Ada", NULL, "near it: "},
        {"RTX 3060 10GB", NULL, "near it: RTX 3060 Ti, RTX 3060 8GB, RTX 3060"},
        {"NVIDIA GeForce RTX 4060 Laptop GPU", NULL, "near it: RTX 4060 Ti 16GB, RTX 4060 Ti, RTX 4060"},
        {"2x H100", NULL, "near it: H100 PCIe,"},
        {"", NULL, "near it: GB200, B200,"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const GpuCard *card = NULL;
        if (rows[i].name) {
            CHECK_EQUAL(gpu_card_find(&card, rows[i].given), 0);
            CHECK(!strcmp(card->name, rows[i].name));
        } else {
            CHECK_EQUAL(gpu_card_find(&card, rows[i].given), -1);
            CHECK_ERROR(EX_USAGE, rows[i].near);
        }
    }
}

TEST(gpu_peak_is_found_by_the_name_of_the_card) {
    static const struct {
        const char *text;
        double tflops;
    } cases[] = {
        {"cuda: NVIDIA H100 80GB HBM3, compute capability 9.0, 79.1 GiB, bfloat16", 989},
        {"cuda: NVIDIA H100 PCIe, compute capability 9.0, 79.1 GiB, bfloat16", 756},
        {"cuda: NVIDIA A100-SXM4-40GB, compute capability 8.0, 39.4 GiB, bfloat16", 312},
        {"cuda: NVIDIA GeForce RTX 4070, compute capability 8.9, 11.7 GiB, bfloat16", 58},
        {"cuda: NVIDIA GeForce RTX 4070 SUPER, compute capability 8.9, 11.7 GiB, bfloat16", 71},
        {"cuda: NVIDIA GeForce RTX 4070 Laptop GPU, compute capability 8.9, 7.7 GiB, bfloat16", 0},
        {"cuda: NVIDIA GeForce RTX 3080 Ti, compute capability 8.6, 11.7 GiB, bfloat16", 68},
        {"cuda: NVIDIA GH200 480GB, compute capability 9.0, 94.5 GiB, bfloat16", 989},
        {"cuda: NVIDIA L4, compute capability 8.9, 22.0 GiB, bfloat16", 121},
        {"cpu: as requested; 2 threads, bfloat16 (avx512)", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const GpuCard *card = gpu_card_of(cases[i].text);
        assert_true((card ? card->flops : 0) == cases[i].tflops * 1e12);
    }
}
