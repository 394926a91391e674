// Which calls are timed and when, which algorithm is taken and kept for later runs, and that timing changes no number.
// The clock of the emulated runtime decides which candidate, and which form of GELU, is the fastest.
#include "common/rng.h"
#include "kernels/cuda/cuda_internal.h"
#include "tests/cuda/emulator/device.h"
#include "tests/test.h"
#include <dirent.h>
#include <math.h>

enum { TIMED = 5 };    // calls of a candidate
#define BIAS_ERROR 1.5 // of a sum of 64 numbers of about 10, or 60 of relu2, that are rounded once or twice
enum { M = 64, ROWS = 128, COLS = 128, WIDE = M * ROWS, NARROW = M * COLS, MOST = ROWS * COLS };

typedef struct {
    const Backend *on;
    void *scratch, *in, *dout, *bias, *out, *pre, *d; // in, d (M,COLS); dout, out, pre (M,ROWS); bias (ROWS)
    void *dw, *dbias;                                 // (ROWS,COLS), (COLS)
    Weight w;
} Bench;

static void fill(const Bench *b, void *at, size_t count, uint64_t seed) {
    uint16_t values[MOST];
    for (size_t i = 0; i < count; i++) {
        float value = (float)rng_normal(seed, 0, i);
        uint32_t bits;
        memcpy(&bits, &value, 4);
        values[i] = (uint16_t)(bits >> 16);
    }
    b->on->upload(at, values, count * 2);
}

static size_t more_scratch; // than the shape needs

static Bench bench_open_with(bool deterministic, const char *cache) {
    char why[256];
    const BackendChoice choice = {
        .device = DEVICE_CUDA, .dtype = DTYPE_BF16, .threads = 1, .deterministic = deterministic, .cache_dir = cache};
    Bench b = {.on = backend_cuda(&choice, why)};
    CHECK(b.on);
    const Shape shape = {1, M, ROWS, 2, 64, M, 1};
    void **buffers[] = {&b.in, &b.dout, &b.bias, &b.out, &b.pre, &b.d, &b.dw, &b.dbias};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) CHECK(*buffers[i] = b.on->alloc(MOST * 4));
    size_t bytes = b.on->scratch_bytes(&shape) + more_scratch;
    CHECK(b.scratch = b.on->alloc(bytes));
    b.on->bind_scratch(b.scratch, bytes);
    void *weights = b.on->alloc(MOST * 2);
    b.w = (Weight){weights, NULL, ROWS, COLS};
    fill(&b, weights, MOST, 4);
    fill(&b, b.in, NARROW, 1), fill(&b, b.dout, WIDE, 2), fill(&b, b.bias, ROWS, 3);
    return b;
}

static Bench bench_open(bool deterministic) { return bench_open_with(deterministic, NULL); }

static void bench_close(Bench *b) {
    void *buffers[] = {b->in, b->dout, b->bias,  b->out,     b->pre,
                       b->d,  b->dw,   b->dbias, b->scratch, (void *)(uintptr_t)b->w.param};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) b->on->release(buffers[i]);
    b->on->close();
    CHECK_EQUAL(emu_counts.live, 0);
}

// bf16 values as floats
static float *halves(const Bench *b, const void *at, size_t count, float *values) {
    uint16_t bits[MOST];
    b->on->download(bits, at, count * 2);
    for (size_t i = 0; i < count; i++) {
        uint32_t word = (uint32_t)bits[i] << 16;
        memcpy(&values[i], &word, 4);
    }
    return values;
}

static void forward(const Bench *b) { b->on->matmul_forward(b->pre, b->in, &b->w, b->bias, M); }

TEST(cuda_keeps_the_fastest_candidate) {
    Bench plain = bench_open(true);
    uint64_t timings = emu_counts.timings;
    CHECK(plain.on->graph_begin(0, true));
    forward(&plain);
    plain.on->graph_end(0);
    CHECK_EQUAL(emu_counts.timings, timings);
    CHECK_EQUAL(emu_counts.candidate, 0);
    float want[WIDE];
    halves(&plain, plain.pre, WIDE, want);
    bench_close(&plain);
    for (int fastest = 0; fastest < 2; fastest++) {
        emu_device.fastest = fastest;
        Bench b = bench_open(false);
        timings = emu_counts.timings;
        forward(&b); // an evaluation before the first step
        CHECK_EQUAL(emu_counts.timings, timings);
        CHECK_EQUAL(emu_counts.candidate, 0);
        CHECK(b.on->graph_begin(0, true));
        forward(&b);
        b.on->graph_end(0);
        CHECK_EQUAL(emu_counts.timings - timings, 2 * TIMED); // the others do not work
        CHECK_EQUAL(emu_counts.candidate, fastest);
        forward(&b);
        CHECK_EQUAL(emu_counts.candidate, fastest);
        CHECK_EQUAL(emu_counts.timings - timings, 2 * TIMED);
        CHECK_CLOSE(halves(&b, b.pre, WIDE, (float[WIDE]){0}), want, WIDE, 0.01, 0.01);
        bench_close(&b);
    }
    emu_device.fastest = 1;
}

TEST(cuda_times_nothing_during_a_capture) {
    Bench b = bench_open(false);
    CHECK(b.on->graph_begin(0, true));
    b.on->graph_end(0);
    uint64_t timings = emu_counts.timings, waits = emu_counts.host_waits;
    CHECK(b.on->graph_begin(0, true)); // the stand-in dies of an event in a recording
    forward(&b);
    b.on->graph_end(0);
    CHECK_EQUAL(emu_counts.timings, timings);
    CHECK_EQUAL(emu_counts.host_waits, waits);
    CHECK_EQUAL(emu_counts.candidate, 0);
    bench_close(&b);
}

// A first run that adds, as no step has it, and then one that does not.
TEST(cuda_timing_changes_no_gradient) {
    const float before[MOST] = {[0] = 3, [COLS + 1] = -5};
    float dw[2][3][MOST], dbias[2][3][COLS];
    for (int deterministic = 0; deterministic < 2; deterministic++) {
        Bench b = bench_open(deterministic);
        b.on->upload(b.dw, before, MOST * 4), b.on->upload(b.dbias, before, COLS * 4);
        for (int run = 0; run < 3; run++) { // adds, does not, adds
            CHECK(b.on->graph_begin(run, true));
            b.on->matmul_backward_weight(b.dw, b.dout, b.in, M, ROWS, COLS, run != 1);
            b.on->matmul_gelu_backward(b.d, b.dbias, b.dout, b.in, &b.w, M, false, run != 1);
            b.on->graph_end(run);
            b.on->download(dw[deterministic][run], b.dw, MOST * 4);
            b.on->download(dbias[deterministic][run], b.dbias, COLS * 4);
        }
        bench_close(&b);
    }
    CHECK(!memcmp(dw[0][0], dw[1][0], sizeof dw[0][0])); // untimed both
    CHECK_CLOSE(dw[0][1], dw[1][1], MOST, 1e-5, 1e-5);
    CHECK_CLOSE(dbias[0][1], dbias[1][1], COLS, 0.02, BIAS_ERROR);
    for (int i = 0; i < MOST; i++) CHECK(dw[0][2][i] == 2 * dw[0][1][i]);
    for (int i = 0; i < COLS; i++) CHECK(dbias[0][2][i] == 2 * dbias[0][1][i]);
}

typedef struct {
    float out[WIDE], pre[WIDE], d[NARROW], dbias[COLS];
    uint64_t epilogues, products; // in a recording
    char choices[CHOICES_BYTES];
} Results;

static void run_gelu_with(bool deterministic, bool biased, Activation form, const char *cache, Results *results) {
    Bench b = bench_open_with(deterministic, cache);
    for (int run = 0; run < 2; run++) { // plain, recorded
        results->epilogues = emu_counts.epilogues, results->products = emu_counts.products;
        CHECK(b.on->graph_begin(0, true));
        b.on->matmul_gelu_forward(b.out, b.pre, b.in, &b.w, biased ? b.bias : NULL, M, form);
        b.on->matmul_gelu_backward(b.d, biased ? b.dbias : NULL, b.dout, b.in, &b.w, M, form, false);
        b.on->graph_end(0);
        results->epilogues = emu_counts.epilogues - results->epilogues;
        results->products = emu_counts.products - results->products;
    }
    halves(&b, b.out, WIDE, results->out), halves(&b, b.pre, WIDE, results->pre);
    halves(&b, b.d, NARROW, results->d);
    if (biased) b.on->download(results->dbias, b.dbias, sizeof results->dbias);
    b.on->choices_get(results->choices, sizeof results->choices);
    bench_close(&b);
}

static void run_gelu(bool deterministic, bool biased, bool exact, Results *results) {
    run_gelu_with(deterministic, biased, exact, NULL, results);
}

TEST(cuda_computes_gelu_in_the_epilogue_if_that_is_faster) {
    const struct {
        bool has, exact;
        int us;
    } cases[] = {
        {true, false, -1},
        {true, false, 3},
        {false, false, -1},
        {true, true, -1},
    };
    for (int i = 0; i < 8; i++) {
        static Results apart, got;
        bool biased = i % 2, exact = cases[i / 2].exact, taken = i < 2;
        emu_device.has_epilogues = cases[i / 2].has, emu_device.epilogue_us = cases[i / 2].us;
        run_gelu(true, biased, exact, &apart), run_gelu(false, biased, exact, &got);
        CHECK_EQUAL(apart.epilogues, 0);
        CHECK_EQUAL(got.epilogues, taken ? 2 : 0);
        CHECK_CLOSE(got.pre, apart.pre, WIDE, 0.01, 0.01);
        CHECK_CLOSE(got.out, apart.out, WIDE, 0.01, 0.01);
        CHECK_CLOSE(got.d, apart.d, NARROW, 0.02, 0.05);
        CHECK_CLOSE(got.dbias, apart.dbias, COLS, 0.02, BIAS_ERROR);
    }
    emu_device.has_epilogues = true, emu_device.epilogue_us = -1;
}

static void gelu_forward(const Bench *b) {
    b->on->matmul_gelu_forward(b->out, b->pre, b->in, &b->w, b->bias, M, ACTIVATION_GELU_TANH);
}

// The table holds 256 plans. When the choice of an epilogue needs the plan of the product, which has left the table,
// that takes the place of the epilogue's own.
TEST(cuda_finds_a_plan_that_a_full_table_replaced) {
    enum { TABLE = 256 };
    for (int others = TABLE - 2; others <= TABLE; others++) {
        Bench b = bench_open(false);
        void *out = b.on->alloc(TABLE * 2 * ROWS * 2), *in = b.on->alloc(TABLE * 2 * COLS * 2);
        b.on->zero(in, TABLE * 2 * COLS * 2);
        forward(&b), gelu_forward(&b); // outside of a warm-up: nothing is chosen
        for (int rows = 1; rows <= others; rows++) b.on->matmul_forward(out, in, &b.w, NULL, M + rows);
        const uint64_t epilogues = emu_counts.epilogues;
        CHECK(b.on->graph_begin(0, true));
        gelu_forward(&b);
        b.on->graph_end(0);
        CHECK(emu_counts.epilogues > epilogues);
        b.on->release(out), b.on->release(in);
        bench_close(&b);
    }
}

// As the lengths of items between two steps, whose products are more than the table holds.
TEST(cuda_keeps_the_choice_of_a_product_while_others_fill_the_table) {
    enum { TABLE = 256 };
    Bench b = bench_open(false);
    void *out = b.on->alloc(TABLE * 2 * ROWS * 2), *in = b.on->alloc(TABLE * 2 * COLS * 2);
    b.on->zero(in, TABLE * 2 * COLS * 2);
    CHECK(b.on->graph_begin(0, true));
    forward(&b);
    b.on->graph_end(0);
    const int candidate = emu_counts.candidate;
    for (int rows = 1; rows <= TABLE; rows++) b.on->matmul_forward(out, in, &b.w, NULL, M + rows);
    CHECK(emu_counts.candidate != candidate);
    forward(&b);
    CHECK_EQUAL(emu_counts.candidate, candidate);
    b.on->release(out), b.on->release(in);
    bench_close(&b);
}

// ---- choices that are kept

static struct {
    int candidate;    // of the product of this run
    uint64_t timings; // that it took to choose it
    char choices[CHOICES_BYTES];
    float out[WIDE];
} chosen;

// A process of a deterministic run: it chooses a product in a warm-up. cache NULL: without a folder; given NULL: no
// checkpoint.
static void choose(const char *cache, const char *given) {
    Bench b = bench_open_with(true, cache);
    if (given) b.on->choices_set(given);
    const uint64_t timings = emu_counts.timings;
    CHECK(b.on->graph_begin(0, true));
    forward(&b);
    b.on->graph_end(0);
    chosen.candidate = emu_counts.candidate, chosen.timings = emu_counts.timings - timings;
    forward(&b);
    CHECK_EQUAL(emu_counts.candidate, chosen.candidate);
    halves(&b, b.pre, WIDE, chosen.out);
    b.on->choices_get(chosen.choices, sizeof chosen.choices);
    bench_close(&b);
}

TEST(cuda_keeps_choices_for_later_runs) {
    float first[WIDE];
    choose(NULL, NULL); // without a folder: what the heuristic suggests, which needs no file to repeat
    CHECK(chosen.candidate == 0 && chosen.timings == 0);
    emu_device.fastest = 1;
    choose("kept/cache", NULL);
    CHECK(chosen.candidate == 1 && chosen.timings > 0);
    memcpy(first, chosen.out, sizeof first);
    emu_device.fastest = 0; // the clock is noisy
    choose("kept/cache", NULL);
    CHECK(chosen.candidate == 1 && chosen.timings == 0);
    CHECK(!memcmp(first, chosen.out, sizeof first));
    emu_device.driver++; // another driver is another card
    choose("kept/cache", NULL);
    CHECK(chosen.candidate == 0 && chosen.timings > 0);
    emu_device.driver--;
    choose("kept/cache", NULL);
    CHECK(chosen.candidate == 1 && chosen.timings == 0);
    emu_device.fastest = 1;
}

TEST(cuda_takes_the_choices_of_a_checkpoint_before_those_of_the_file) {
    static char of_fast[CHOICES_BYTES], of_none[CHOICES_BYTES];
    choose(NULL, NULL);
    memcpy(of_none, chosen.choices, sizeof of_none);
    emu_device.fastest = 1;
    choose("resume/first", NULL);
    memcpy(of_fast, chosen.choices, sizeof of_fast);
    emu_device.fastest = 0;
    choose("resume/second", NULL);
    CHECK(chosen.candidate == 0);
    choose("resume/second", of_fast);
    CHECK(chosen.candidate == 1 && chosen.timings == 0);
    CHECK(!strcmp(chosen.choices, of_fast)); // for the next checkpoint
    choose(NULL, of_fast);
    CHECK(chosen.candidate == 1 && chosen.timings == 0);
    emu_device.fastest = 1; // a run that began without choices goes on without them
    choose("resume/first", of_none);
    CHECK(chosen.candidate == 0 && chosen.timings == 0);
    emu_device.driver++; // a checkpoint of another card: as a new run
    choose("resume/third", of_none);
    CHECK(chosen.candidate == 1 && chosen.timings > 0);
    emu_device.driver--;
}

// A larger scratch memory is a larger workspace, up to 128 MiB, and a choice is that of a workspace; but for that of a
// checkpoint, which a run with another scratch memory repeats.
TEST(cuda_chooses_a_product_for_each_workspace) {
    static char of_64[CHOICES_BYTES];
    const size_t least = 32 << 20, most = 128 << 20, mib[] = {0, 31, 32, 95, 96, 300},
                 want[] = {32, 32, 64, 64, 128, 128};
    for (int i = 0; i < 6; i++) {
        more_scratch = mib[i] << 20;
        choose("workspace", NULL);
        CHECK_EQUAL(emu_counts.workspace, want[i] << 20);
        CHECK_EQUAL(chosen.timings > 0, i % 2 == 0);
        if (want[i] == 64) memcpy(of_64, chosen.choices, sizeof of_64);
    }
    for (more_scratch = 0; more_scratch < most; more_scratch += most - least) {
        emu_device.fastest = 0, emu_device.workspace = 1 << 20;
        choose(more_scratch ? "workspace/larger" : "workspace/smaller", of_64);
        CHECK(chosen.candidate == 1 && chosen.timings == 0);
        CHECK(!strcmp(chosen.choices, of_64));
    }
    more_scratch = 0, emu_device.workspace = 64 << 20; // the algorithm needs what this run has not got
    choose(NULL, of_64);
    CHECK(chosen.candidate == 0);
    emu_device.fastest = 1, emu_device.workspace = 1 << 20;
}

// Float32 operands as they are, or rounded to TF32, whose choices are kept apart.
TEST(cuda_rounds_float32_operands_to_tf32_where_the_precision_is_high) {
    enum { SIZE = 64 };
    static float in[SIZE * SIZE], out[2][SIZE * SIZE];
    static char choices[2][CHOICES_BYTES];
    char why[256];
    for (int i = 0; i < SIZE * SIZE; i++) in[i] = (float)rng_normal(9, 0, (uint64_t)i);
    for (int high = 0; high < 2; high++) {
        const BackendChoice choice = {.dtype = DTYPE_FP32,
                                      .threads = 1,
                                      .deterministic = true,
                                      .cache_dir = "precision",
                                      .matmul_precision = high ? PRECISION_HIGH : PRECISION_HIGHEST};
        const Backend *on = backend_cuda(&choice, why);
        CHECK(on && on->act_bytes == 4 && on->par_bytes == 4 && on->master_bytes == 0);
        if (high) on->choices_set(choices[0]);
        const size_t bytes = on->scratch_bytes(&(Shape){1, SIZE, SIZE, 1, 64, SIZE, 1});
        void *at[] = {on->alloc(bytes), on->alloc(sizeof in), on->alloc(sizeof in)};
        on->bind_scratch(at[0], bytes);
        on->upload(at[1], in, sizeof in);
        const Weight weight = {at[1], NULL, SIZE, SIZE};
        CHECK(on->graph_begin(0, true));
        on->matmul_forward(at[2], at[1], &weight, NULL, SIZE);
        on->graph_end(0);
        on->download(out[high], at[2], sizeof in);
        on->choices_get(choices[high], sizeof choices[high]);
        for (int i = 0; i < 3; i++) on->release(at[i]);
        on->close();
    }
    double exact = 0, rounded = 0, size = 0;
    for (int i = 0; i < SIZE * SIZE; i++) {
        double sum = 0;
        for (int k = 0; k < SIZE; k++) sum += (double)in[i / SIZE * SIZE + k] * (double)in[i % SIZE * SIZE + k];
        exact = fmax(exact, fabs((double)out[0][i] - sum)), rounded = fmax(rounded, fabs((double)out[1][i] - sum));
        size = fmax(size, fabs(sum));
    }
    CHECK(exact < 1e-6 * size && rounded > 1e-5 * size && rounded < 1e-3 * size);
    CHECK_TEXT(choices[0], "\nfloat32 64x64x64");
    CHECK_TEXT(choices[1], "\ntf32 64x64x64");
    CHECK(!strncmp(choices[1], choices[0], strlen(choices[0]))); // which a replay of the run's first part needs
}

// In a step other operations come between two products of the same operands.
TEST(cuda_times_products_whose_operands_no_cache_holds) {
    emu_device.fast_when_cached = 0;
    Bench b = bench_open(false);
    CHECK(b.on->graph_begin(0, true));
    forward(&b);
    b.on->graph_end(0);
    CHECK_EQUAL(emu_counts.candidate, 1);
    bench_close(&b);
    emu_device.fast_when_cached = -1;
}

static void write_bytes(const char *path, const char *bytes, size_t size) {
    FILE *file = fopen(path, "w");
    CHECK(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

// Every byte of the file, changed or as its last: the products are timed again, and the next run finds a whole file.
TEST(cuda_times_again_what_a_damaged_file_held) {
    emu_device.fastest = 1;
    choose("damaged", NULL);
    char path[600];
    DIR *folder = opendir("damaged");
    struct dirent *entry;
    CHECK(folder);
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.') snprintf(path, sizeof path, "damaged/%s", entry->d_name);
    closedir(folder);
    size_t size;
    char *whole = read_file(path, &size), *bad = malloc(size);
    CHECK(bad && size > 150 && size < 500);
    emu_device.fastest = 0;
    for (size_t at = 0; at < 2 * size; at += 37) {
        memcpy(bad, whole, size);
        if (at < size) bad[at] ^= 1;
        write_bytes(path, bad, at < size ? size : at - size + 1);
        choose("damaged", NULL);
        CHECK(chosen.candidate == 0 && chosen.timings > 0);
        choose("damaged", NULL);
        CHECK(chosen.candidate == 0 && chosen.timings == 0);
    }
    emu_device.reduction = 1; // in place, by atomics: the check of the line is right, and the library would run it
    emu_device.fastest = 1;
    write_bytes(path, "", 0);
    choose("damaged", NULL);
    CHECK(chosen.candidate == 1);
    emu_device.fastest = 0, emu_device.reduction = 2;
    choose("damaged", NULL);
    CHECK(chosen.candidate == 0 && chosen.timings > 0);
    choose("damaged", NULL);
    CHECK(chosen.candidate == 0 && chosen.timings == 0);
    write_bytes(path, "", 0);
    emu_device.fastest = 1;
    choose("damaged", NULL);
    CHECK(chosen.candidate == 1);
    emu_device.fastest = 0, emu_device.workspace = 64 << 20; // more than the library is given
    choose("damaged", NULL);
    CHECK(chosen.candidate == 0 && chosen.timings > 0);
    emu_device.workspace = 1 << 20;
    emu_device.fastest = 1;
    free(whole), free(bad);
    write_bytes("no_folder", "", 0);
    choose("no_folder/cache", NULL);
    CHECK(chosen.candidate == 0 && chosen.timings == 0);
}

// Of two products of one alignment the first has the better aligned bias.
TEST(cuda_keeps_a_choice_that_does_for_every_bias_of_the_alignment) {
    for (int run = 0; run < 2; run++) {
        Bench b = bench_open_with(true, "bias");
        const size_t in = run ? 0 : 16, bias = run ? 16 : 0;
        CHECK(b.on->graph_begin(0, true));
        b.on->matmul_forward(b.pre, (const Act *)((char *)b.in + in), &b.w, (const Par *)((char *)b.bias + bias), M);
        b.on->graph_end(0);
        bench_close(&b);
    }
}

TEST(cuda_keeps_the_choice_between_an_epilogue_and_a_kernel) {
    for (int faster = 0; faster < 2; faster++) {
        const char *cache = faster ? "gelu/fast" : "gelu/slow";
        static Results results;
        static char first[CHOICES_BYTES];
        for (int run = 0; run < 2; run++) {
            emu_device.epilogue_us = (faster ^ run) ? -1 : 3; // the second run's clock says the opposite
            const uint64_t timings = emu_counts.timings;
            run_gelu_with(true, true, false, cache, &results);
            CHECK_EQUAL(results.epilogues, faster ? 2 : 0);
            CHECK(run ? emu_counts.timings == timings : emu_counts.timings > timings);
            if (!run) memcpy(first, results.choices, sizeof first);
            CHECK(!strcmp(results.choices, first)); // a checkpoint does not tell which of the runs timed
        }
    }
    emu_device.epilogue_us = -1;
}

// As on a card that another program uses, where any time may be long: the sums of the bias took longer than the product
// and a GELU with these sums.
TEST(cuda_keeps_the_choice_of_an_epilogue_whatever_the_clock_says) {
    static Results results;
    uint64_t timings = 0;
    emu_device.slow = "column_sums";
    for (int run = 0; run < 2; run++) {
        timings = emu_counts.timings;
        run_gelu_with(true, true, false, "gelu/slow_sums", &results);
        emu_device.slow = NULL;
    }
    CHECK_EQUAL(emu_counts.timings, timings);
}

// Products of 5 us and GELUs of 1 us, or of 1 us both, but in the last run of a file, whose clock says the opposite.
TEST(cuda_keeps_the_choice_of_the_kernel_that_has_both) {
    static Results apart, results;
    emu_device.capability = 90;
    for (Activation form = ACTIVATION_GELU_TANH; form <= ACTIVATION_RELU2; form++) {
        const char *cache = "gelu/both"; // of all forms
        cuda_gelu_form = GELU_NOT_BY_WGMMA;
        run_gelu_with(true, true, form, NULL, &apart);
        CHECK_EQUAL(apart.products, 2);
        cuda_gelu_form = GELU_AUTO, emu_device.epilogue_us = 3;
        uint64_t timings = emu_counts.timings;
        for (int run = 0; run < 2; run++) {
            run_gelu_with(true, true, form, cache, &results);
            CHECK_EQUAL(results.products, 0);
            CHECK(run ? emu_counts.timings == timings : emu_counts.timings > timings);
            CHECK_CLOSE(results.pre, apart.pre, WIDE, 0.01, 0.01);
            CHECK_CLOSE(results.out, apart.out, WIDE, 0.01, 0.02);
            CHECK_CLOSE(results.d, apart.d, NARROW, 0.02, 0.05);
            CHECK_CLOSE(results.dbias, apart.dbias, COLS, 0.02, BIAS_ERROR);
            emu_device.slow = "matmul_gelu", timings = emu_counts.timings;
        }
        run_gelu_with(true, true, form, "gelu/slow", &results);
        CHECK_EQUAL(results.products, 2);
        emu_device.slow = NULL, emu_device.epilogue_us = -1, cuda_gelu_form = GELU_NOT_BY_WGMMA;
        timings = emu_counts.timings;
        run_gelu_with(true, true, form, cache, &results); // a program without the kernel: the other two ways are timed
        CHECK_EQUAL(results.products, 2);
        CHECK_EQUAL(emu_counts.timings > timings, form == ACTIVATION_GELU_TANH);
    }
    emu_device.capability = 80, cuda_gelu_form = GELU_AUTO;
}
