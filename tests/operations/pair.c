// pair.h: two backends side by side.
#include "tests/operations/pair.h"
#include "common/id_array.h"
#include "common/machine/cpu.h"
#include "common/rng.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/dtype.h"
#include "tests/operations/reference.h"
#include <math.h>

enum { CPU_RUNS = 4 };

static const Backend *sides[2];
static void *scratch[2];
static Array *arrays;
static uint64_t seed;
#define ACT_TYPE(NAME, ...) DTYPE_##NAME,
static const Dtype acts[] = {ACTS(ACT_TYPE, )};
static Dtype type = DTYPE_AUTO;
Device pair_device = DEVICE_CPU;
OptimizerState pair_optimizer_state;
bool pair_times, pair_edges;
double rounded_once;

void pair_each_type(void (*test)(void)) {
    const char *wanted = getenv("TEST_DTYPE");
    if (wanted) CHECK(dtype_parse(wanted, &type));
    if (wanted || pair_device != DEVICE_CPU)
        test();
    else
        for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) type = acts[i], test();
    type = DTYPE_AUTO;
}

// The distance from 1 to the next number of a type.
static double unit_of(Dtype of) {
    float next, unit = 1;
    uint32_t stored;
    do {
        unit /= 2;
        dtype_write(&stored, of, &(float){1 + unit}, 1), dtype_read(&next, of, &stored, 1);
    } while (unit > 0x1p-23f && next > 1);
    return 2 * (double)unit;
}

void pair_open(Shape shape) {
    char why[256];
    BackendChoice choice = {.device = pair_device,
                            .dtype = type,
                            .threads = CPU_RUNS,
                            .deterministic = !pair_times,
                            .optimizer_state = pair_optimizer_state};
    sides[REFERENCE] = reference_backend();
    CHECK(sides[TESTED] = backend_open(&choice, why));
    rounded_once = fmax(1e-6, 1.024 / 4 * unit_of(sides[TESTED]->act_type));
    shape.threads = CPU_RUNS; // CPU
    for (int i = 0; i < 2; i++) {
        size_t bytes = sides[i]->scratch_bytes(&shape);
        CHECK(scratch[i] = sides[i]->alloc(bytes));
        sides[i]->bind_scratch(scratch[i], bytes);
    }
    seed = 1;
}

void pair_close(void) {
    for (Array *array = arrays, *next; array; array = next) {
        next = array->next;
        for (int i = 0; i < 2; i++) sides[i]->release(array->memory[i]), free(array->result[i]);
        free(array->start), free(array->bits), free(array);
    }
    arrays = NULL;
    for (int i = 0; i < 2; i++) sides[i]->release(scratch[i]), sides[i]->close();
}

// The operations of the tested backend in each run. Products by weights are the open backend's in all.
static const Backend *in_variant(int run) {
    static const CpuVariant *const variants[] = CPU_VARIANTS(fp32);
    static Backend backend;
    const Isa isa = run < 3 ? ISA_PORTABLE : ISA_AVX2;
    if (pair_device != DEVICE_CPU || sides[TESTED]->act_type != DTYPE_FP32 || run < 2 || isa > cpu_isa())
        return sides[TESTED];
    backend = *sides[TESTED];
    variants[isa]->install(&backend);
    return &backend;
}

const Backend *pair_backend(int run) { return run == REFERENCE ? sides[REFERENCE] : in_variant(run); }
void *array_at(Array *array, int run) { return array->memory[run > 0]; }

static size_t element_bytes(Kind kind, int side) {
    const Backend *b = sides[side];
    size_t bytes[] = {b->act_bytes, b->par_bytes, b->grad_bytes, b->res_bytes, b->moment_bytes, 4, 8, 2, 4, 1};
    return bytes[kind];
}

// Two bytes are of the activations' type; moments of two bytes are bf16.
static Dtype half_type(Kind kind, int side) { return kind == MOMENTS ? DTYPE_BF16 : sides[side]->act_type; }

// By kernels/half.h, which tests/unit/kernels/test_half.c compares with its definition. A double is rounded twice, to
// float first, which adds 2^-14 of the rounding error. Numbers that were two bytes before come back exactly.
static uint16_t to_half(double value, Kind kind, int side) {
    const float rounded = (float)value;
    uint16_t half;
    dtype_write(&half, half_type(kind, side), &rounded, 1);
    return half;
}

static double from_half(uint16_t bits, Kind kind, int side) {
    float value;
    dtype_read(&value, half_type(kind, side), &bits, 1);
    return (double)value;
}

static Array *array_new(Kind kind, size_t count) {
    Array *array = calloc(1, sizeof *array);
    array->kind = kind, array->count = count;
    array->start = calloc(count, sizeof(double));
    for (int i = 0; i < 2; i++) {
        array->result[i] = calloc(count, sizeof(double));
        CHECK(array->memory[i] = sides[i]->alloc(count * element_bytes(kind, i)));
    }
    array->next = arrays;
    return arrays = array;
}

static void round_start(Array *array, Kind kind) {
    const size_t bytes = element_bytes(kind, TESTED);
    for (size_t i = 0; i < array->count && kind < DOUBLES; i++)
        array->start[i] = bytes == 2 ? from_half(to_half(array->start[i], kind, TESTED), kind, TESTED)
                                     : (double)(float)array->start[i];
}

// To what the tested backend stores.
static void settle(Array *array) { round_start(array, array->kind); }
void array_narrow(Array *array) { round_start(array, ACTS); }

Array *array_normal(Kind kind, size_t count, double scale, double mean) {
    Array *array = array_new(kind, count);
    static const double edges[] = {1, 0x1p-140, 1, -0.0, 0x1p50, 1, 0x1p-70};
    for (size_t i = 0; i < count; i++) {
        array->start[i] = mean + scale * rng_normal(seed, 0, i);
        if (pair_edges) array->start[i] *= edges[(i + seed) % (sizeof edges / sizeof *edges)];
    }
    seed++;
    settle(array);
    return array;
}

Array *array_filled(Kind kind, size_t count, double value) {
    Array *array = array_new(kind, count);
    for (size_t i = 0; i < count; i++) array->start[i] = value;
    settle(array);
    return array;
}

Array *array_tokens(size_t count, int vocab) {
    Array *array = array_new(id_bytes((unsigned)vocab) == 2 ? TOKENS : WIDE_TOKENS, count);
    for (size_t i = 0; i < count; i++) array->start[i] = floor(rng_uniform(seed, 0, i) * vocab);
    seed++;
    return array;
}

Array *array_bytes(const void *bytes, size_t count) {
    Array *array = array_new(BYTES, count);
    for (size_t i = 0; i < count; i++) array->start[i] = ((const unsigned char *)bytes)[i];
    return array;
}

static void send(const Array *array, int side) {
    size_t bytes = element_bytes(array->kind, side), count = array->count;
    unsigned char *host = malloc(bytes * count);
    for (size_t i = 0; i < count; i++) {
        double value = array->start[i];
        float narrow = (float)value;
        uint32_t word = 0;
        if (array->kind >= TOKENS)
            word = (uint32_t)value;
        else if (bytes == sizeof(uint16_t))
            word = to_half(value, array->kind, side);
        else if (bytes == sizeof narrow)
            memcpy(&word, &narrow, sizeof narrow);
        memcpy(host + i * bytes, bytes == 8 ? (void *)&value : (void *)&word, bytes);
    }
    sides[side]->upload(array->memory[side], host, bytes * count);
    free(host);
}

static void fetch(Array *array, int run) {
    int side = run > 0;
    size_t bytes = element_bytes(array->kind, side), count = array->count;
    unsigned char *host = malloc(bytes * count);
    sides[side]->download(host, array->memory[side], bytes * count);
    if (run <= 1)
        for (size_t i = 0; i < count; i++) {
            float narrow;
            uint16_t half;
            if (bytes == 8) memcpy(&array->result[side][i], host + i * bytes, 8);
            uint32_t word;
            if (bytes == 4 && array->kind == WIDE_TOKENS)
                memcpy(&word, host + i * bytes, 4), array->result[side][i] = word;
            else if (bytes == 4)
                memcpy(&narrow, host + i * bytes, 4), array->result[side][i] = (double)narrow;
            if (bytes == 2)
                memcpy(&half, host + i * bytes, 2),
                    array->result[side][i] = array->kind == TOKENS ? half : from_half(half, array->kind, side);
        }
    if (run == 1)
        array->bits = host;
    else {
        if (run > 1 && memcmp(array->bits, host, bytes * count))
            test_failed("the same bits in every run", __FILE__, __LINE__);
        free(host);
    }
}

void array_send(int side) {
    for (Array *array = arrays; array; array = array->next) send(array, side);
}

bool pair_begin(int run) {
    // The emulator has four orders, of which $PAIR_ORDERS=2 takes the first and the last; a device shows whether it
    // repeats itself.
    const bool two = getenv("PAIR_ORDERS");
    const int runs = two ? 3 : 1 + CPU_RUNS;
    for (Array *array = arrays; array && run > 0; array = array->next) fetch(array, run - 1);
    if (run == runs) return false;
    if (run == 0)
        for (Array *array = arrays; array; array = array->next) free(array->bits), array->bits = NULL;
    if (&emu_order) emu_order = run > 0 ? (run - 1) * (two ? 3 : 1) : 0;
    // oneDNN is prepared for the threads of the first run.
    if (pair_device == DEVICE_CPU && run > 0) CHECK(team_set_threads(CPU_RUNS + 1 - run) == 0);
    array_send(run > 0);
    return true;
}

void check_near(const Array *array, double limit, const char *name, const char *file, int line) {
    double off = 0, all = 0;
    if (pair_edges) return;
    for (size_t i = 0; i < array->count; i++) {
        double got = array->result[TESTED][i], want = array->result[REFERENCE][i];
        if (isnan(want) && isnan(got)) continue; // what neither wrote
        if (isinf(want) && got == want) continue;
        if (!isfinite(got) || !isfinite(want)) {
            print_error("%s[%zu] is %g, not %g\n", name, i, got, want);
            test_failed("finite", file, line);
        }
        off += (got - want) * (got - want), all += want * want;
    }
    double error = sqrt(off / (all + 1e-300));
    if (getenv("PAIR_VERBOSE"))
        print_message("%s:%d %s: relative error %.2e of %.2e\n", file, line, name, error, limit);
    if (error <= limit) return;
    print_error("%s: relative error %.3e, at most %.3e is allowed\n", name, error, limit);
    test_failed("near", file, line);
}
