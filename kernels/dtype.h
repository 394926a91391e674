// The types of numbers in tensors and files, from the table kernels/dtypes.def. The conversions are in half.h.
#pragma once

#include "kernels/dtypes.def"
#include "kernels/half.h"
#include <stdbool.h>
#include <stddef.h>

#define DTYPE_CONSTANT(NAME, ...) DTYPE_##NAME,
typedef enum { DTYPES(DTYPE_CONSTANT, ) DTYPE_COUNT, DTYPE_AUTO = DTYPE_COUNT } Dtype; // AUTO: in a BackendChoice only

// ACTS(DTYPE_WORD, W) is W(DTYPE_FP32, "float32") and so on, for the words of a configuration key.
#define DTYPE_WORD(NAME, name, word, W, ...) W(DTYPE_##NAME, word)

const char *dtype_name(Dtype type); // "float32", "bfloat16", "float16", "auto"
bool dtype_parse(const char *name, Dtype *type);
const char *dtype_file_name(Dtype type);                   // "F32", "BF16", "F16"
bool dtype_parse_file_name(const char *name, Dtype *type); // false: of no type of the table
bool dtype_is_narrow(Dtype type);                          // its exponent has fewer bits than float's
size_t dtype_bytes(Dtype type);

// `count` numbers of that type to floats and back. The stored numbers need no alignment. They may lie at the end of the
// array that dtype_read writes.
void dtype_read(float *to, Dtype type, const void *from, size_t count);
void dtype_write(void *to, Dtype type, const float *from, size_t count);

// Number i of an array of that type, which need not be aligned.
static inline float dtype_value(Dtype type, const void *array, size_t i) {
#define CASE(NAME, name, number, ...)                                                                                  \
    case DTYPE_##NAME: {                                                                                               \
        number value;                                                                                                  \
        memcpy(&value, (const char *)array + i * sizeof value, sizeof value);                                          \
        return name##_value(value);                                                                                    \
    }
    switch (type) {
        DTYPES(CASE, )
    default:
        return 0;
    }
#undef CASE
}
