// Runs one operation on the CPU backend and on the CUDA backend with the same numbers, and compares. The CUDA side runs
// four times and must give the same bits: on a device that is repeatability, in the emulator (tests/cuda/emulator) the
// four runs are the four orders of threads, blocks and streams.
#pragma once

#include "kernels/backend.h"
#include "tests/test.h"

typedef enum { ACTS, PARS, GRADS, RESIDUALS, MOMENTS, FLOATS, DOUBLES, TOKENS, BYTES } Kind;

// One array on both sides. `start` is what both hold before an operation; numbers that CUDA keeps in two bytes are
// rounded to them from the beginning, so that both sides compute with the same.
typedef struct Array {
    Kind kind;
    size_t count;
    double *start, *result[2];
    void *memory[2];
    unsigned char *bits; // of the first CUDA run
    struct Array *next;
} Array;

enum { CPU, CUDA };
extern int emu_order __attribute__((weak)); // of the emulator, where there is one

// Both backends, with scratch for shape; CUDA in the type that $TEST_DTYPE names, or else chooses itself. Closed by
// pair_close, which checks that nothing on the device still stands.
void pair_open(Shape shape);
extern OptimizerState pair_optimizer_state; // of CUDA
extern bool pair_times;                     // CUDA: deterministic=False
void pair_close(void);
const Backend *pair_backend(int side);

Array *array_normal(Kind kind, size_t count, double scale, double mean); // normal numbers
Array *array_filled(Kind kind, size_t count, double value);              // NaN for what an operation shall write
Array *array_tokens(size_t count, int vocab);
Array *array_bytes(const void *bytes, size_t count); // a struct as it is
void array_send(int side);                           // all arrays' starts to one side
void *array_at(const Array *array, int run);         // memory of the backend of this run

// The runs of a loop over both sides: CPU once, CUDA four times, every array at its start before each.
enum { RUNS = 5 };
bool pair_begin(int run);
#define ON_BOTH(...)                                                                                                   \
    for (int run = 0; pair_begin(run); run++) {                                                                        \
        const Backend *on = pair_backend(run > 0);                                                                     \
        __VA_ARGS__;                                                                                                   \
    }
#define AT(array) array_at(array, run)

// CUDA's numbers against the CPU's: none not finite that is finite there, and sqrt(sum d^2 / sum want^2) <= limit.
#define CHECK_NEAR(array, limit) check_near(array, limit, #array, __FILE__, __LINE__)
void check_near(const Array *array, double limit, const char *name, const char *file, int line);

// The largest error that rounding every number to CUDA's activations once makes, in the sense of CHECK_NEAR: 2^-9 of
// bf16, 2^-12 of fp16.
extern double rounded_once;
