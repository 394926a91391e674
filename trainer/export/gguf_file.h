// GGUF files, version 3: a header, pairs of a key and a value, the names of tensors, and their numbers.
//
//   header   "GGUF", u32 3, u64 the number of tensors, u64 the number of pairs
//   pair     a key, u32 the type of the value, the value. A string is u64 its length and its bytes; an array is u32 the
//            type of its items, u64 their number, the items
//   tensor   a name, u32 the number of dimensions, u64 each, the row's length first, u32 the type, u64 the offset of
//            its numbers in the data
//   data     from the next multiple of 32 on; each tensor begins at one, too
//
// Source: docs/gguf.md of the repository ggml, and quantize_row_q8_0_ref of its ggml-quants.c.
#pragma once

#include "common/file/file.h"
#include "kernels/dtype.h"

enum { GGUF_NAME_BYTES = 128 };

// Types of numbers: those of dtype.h, and q8_0, in which 32 numbers have one scale in float16 and 8 bits each.
enum { GGUF_Q8_0 = DTYPE_COUNT, GGUF_TYPES, GGUF_Q8_0_VALUES = 32 };
typedef unsigned GgufType;
const char *gguf_type_name(GgufType type);

typedef struct {
    char name[GGUF_NAME_BYTES];
    GgufType type;
    uint64_t rows, cols; // cols 0: a vector
    uint64_t bytes, offset;
} GgufTensor;

// Pairs and tensors are added first, then the file is opened, and the numbers are written in the order of tensors. Zero
// it before use.
typedef struct {
    NewFile file;
    Buffer pairs;
    uint64_t pair_count;
    GgufTensor *tensors;
    size_t count, at; // at: the tensor being written
    uint64_t written; // bytes of that tensor
} GgufFile;

void gguf_add_number(GgufFile *gguf, const char *key, uint32_t number);
void gguf_add_real(GgufFile *gguf, const char *key, float number);
void gguf_add_flag(GgufFile *gguf, const char *key, bool flag);
void gguf_add_text(GgufFile *gguf, const char *key, Bytes text);
void gguf_add_type(GgufFile *gguf, GgufType type); // of the matrices

// An array, whose items are added next.
void gguf_add_texts(GgufFile *gguf, const char *key, uint64_t count);
void gguf_add_numbers(GgufFile *gguf, const char *key, uint64_t count);
void gguf_item_text(GgufFile *gguf, Bytes text);
void gguf_item_number(GgufFile *gguf, int32_t number);

void gguf_name(GgufFile *gguf, const char *name, GgufType type, uint64_t rows, uint64_t cols);

int gguf_open(GgufFile *gguf, const char *path);
// The next numbers, in q8_0 whole rows. -1 after fail(): 65 when the type cannot hold one.
int gguf_write(GgufFile *gguf, const float *values, size_t count);
int gguf_commit(GgufFile *gguf);
void gguf_abandon(GgufFile *gguf); // also of a committed one
