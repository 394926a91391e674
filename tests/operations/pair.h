// Runs one operation on the reference backend (reference.h) and on a real one with the same numbers, and compares. The
// real one runs several times and must give the same bits: in the CUDA emulator (tests/cuda/emulator) the four runs are
// the four orders of threads, blocks and streams; on the CPU they have 4 to 1 threads, and in fp32 run 2 has the
// operations of portable code and run 3 those of AVX2, where the backend has a larger instruction set.
#pragma once

#include "kernels/backend.h"
#include "tests/test.h"

typedef enum { ACTS, PARS, GRADS, RESIDUALS, MOMENTS, FLOATS, DOUBLES, TOKENS, WIDE_TOKENS, BYTES } Kind;

// One array on both sides. `start` is what both hold before an operation: rounded to what the tested backend stores, so
// that both sides compute with the same.
typedef struct Array {
    Kind kind;
    size_t count;
    double *start, *result[2];
    void *memory[2];
    unsigned char *bits; // of the first run of the tested backend
    struct Array *next;
} Array;

enum { REFERENCE, TESTED };
extern int emu_order __attribute__((weak)); // of the emulator, where there is one

extern Device pair_device;                  // the backend to test: DEVICE_CPU, unless the program sets another
extern OptimizerState pair_optimizer_state; // of it
extern bool pair_times;                     // deterministic=False
extern bool pair_edges; // among normal numbers, zeros, subnormal and large ones; only the bits of runs are compared

// OPERATION(name) { ... } is a test that runs for each activation type of the backend: on the CPU all three, on a
// device the type that $TEST_DTYPE names, or the one it chooses itself.
#define OPERATION(name)                                                                                                \
    static void name##_in_one_type(void);                                                                              \
    TEST(operation_##name) { pair_each_type(name##_in_one_type); }                                                     \
    static void name##_in_one_type(void)
void pair_each_type(void (*test)(void));

// Opens both, with scratch for shape; pair_close checks that nothing on the device still stands.
void pair_open(Shape shape);
void pair_close(void);
const Backend *pair_backend(int run);

Array *array_normal(Kind kind, size_t count, double scale, double mean); // normal numbers
Array *array_filled(Kind kind, size_t count, double value);              // NaN for what an operation shall write
Array *array_tokens(size_t count, int vocab);
Array *array_bytes(const void *bytes, size_t count); // a struct as it is
void array_narrow(Array *array);                     // rounds its start to the activations' type
void array_send(int side);                           // all arrays' starts to one side
void *array_at(Array *array, int run);               // memory of the backend of this run

// The runs of a loop: the reference once, then the tested backend, every array at its start before each.
bool pair_begin(int run);
#define ON_BOTH(...)                                                                                                   \
    for (int run = 0; pair_begin(run); run++) {                                                                        \
        const Backend *on = pair_backend(run);                                                                         \
        __VA_ARGS__;                                                                                                   \
    }
#define AT(array) array_at(array, run)

// The tested numbers against the reference's: none not finite that is finite there, and sqrt(sum d^2 / sum want^2) <=
// limit.
#define CHECK_NEAR(array, limit) check_near(array, limit, #array, __FILE__, __LINE__)
void check_near(const Array *array, double limit, const char *name, const char *file, int line);

// The largest error that rounding every number to the tested activations once makes, in the sense of CHECK_NEAR: 2^-9
// for bf16, 2^-12 for fp16; for fp32 the rounding of its sums.
extern double rounded_once;
