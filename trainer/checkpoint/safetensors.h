// safetensors files: u64 length, a JSON header {name: {dtype, shape, data_offsets}}, then the tensors end to end.
// The files written here have "hash.NAME" (XXH3-128 of the bytes of the tensor) in __metadata__.
#pragma once

#include "common/bytes.h"
#include "kernels/dtype.h"
#include "trainer/config/config.h"
#include <stdbool.h>

enum { SAFE_NAME_BYTES = 128, SAFE_DIMS = 8, SAFE_HASH_BYTES = 16 };

typedef struct {
    char name[SAFE_NAME_BYTES], dtype[8];
    uint64_t shape[SAFE_DIMS];
    int dims;
    uint64_t begin, end; // bytes, from the end of the header
    bool hashed, used;   // used: the reader of the file has loaded it
    uint8_t hash[SAFE_HASH_BYTES];
} SafeTensor;

// Writing: first the names of all tensors, of one type, then their numbers in the same order, in pieces of any size.
typedef struct {
    int fd;
    Dtype type;
    const char *path; // borrowed
    SafeTensor *tensors;
    size_t count, at; // at: the tensor being written
    uint64_t header_bytes, written;
    void *hasher; // XXH3 state
} SafeWriter;

// Fails if the file exists. A NULL path: nothing is written, and safe_finish gives the hash.
int safe_create(SafeWriter *writer, const char *path, Dtype type);
void safe_name(SafeWriter *writer, const char *name, uint64_t rows, uint64_t cols); // cols 0: a vector
int safe_write(SafeWriter *writer, const float *values, size_t count);
// Writes the header, fsyncs, closes; header_hash may be NULL. -1 when anything failed since safe_create.
int safe_finish(SafeWriter *writer, uint8_t header_hash[SAFE_HASH_BYTES]);
void safe_abandon(SafeWriter *writer); // closes; accepts a zeroed or finished one

// Reading: lengths, types, overlaps and gaps of the header are checked. 65 with the reason.
typedef struct {
    Bytes map;
    const uint8_t *data;
    SafeTensor *tensors; // in order of data
    size_t count;
    uint8_t header_hash[SAFE_HASH_BYTES];
} SafeFile;

int safe_open(SafeFile *file, const char *path);
void safe_close(SafeFile *file);                               // accepts a zeroed struct
SafeTensor *safe_find(const SafeFile *file, const char *name); // NULL when the file has no such tensor
int safe_verify(const SafeFile *file, const char *path);       // all hashes, in all threads; 65 names the tensor
// 65 when the file has the hash of a tensor and the bytes do not match it. Files of other programs have no hashes.
int safe_check(const SafeFile *file, const SafeTensor *tensor);

void safe_hash(const void *data, size_t size, uint8_t hash[SAFE_HASH_BYTES]); // XXH3-128
