// The CPU backend's inside: one unit of vector kernels for each activation type and instruction set, the matrix
// products around oneDNN, and the scratch they share.
#pragma once

#include "kernels/backend.h"

// Sums over rows are cut here, whatever the number of threads: their bits depend on the shape alone.
enum { CHUNK_ROWS = 32 };

// Kernels of one activation type, compiled for one instruction set (variant.h).
typedef struct {
    void (*install)(Backend *backend, OptimizerState state); // every operation but the matrix products
    size_t (*attention_bytes)(int T, int D);                 // scratch of one thread
    // For weights in oneDNN's blocked layout, rows of `block` outputs: rows and cols are multiples of it and of 32.
    void (*pack_transposed)(const float *w, int rows, int cols, int block, void *packed); // for w^T
    void (*pack_plain)(const float *w, int rows, int cols, int block, void *packed);      // for w
    void (*widen)(float *out, const void *in, size_t n);
    void (*narrow)(void *out, const float *in, size_t n);
} CpuVariant;

extern const CpuVariant cpu_fp32_portable, cpu_fp32_avx2, cpu_fp32_avx512;
extern const CpuVariant cpu_bf16_portable, cpu_bf16_avx2, cpu_bf16_avx512;
extern const CpuVariant cpu_fp16_portable, cpu_fp16_avx2, cpu_fp16_avx512;

// Scratch: each operation lays out what it needs from the start, nothing lives longer than the call.
void *scratch_take(size_t *used, size_t bytes); // used from 0; 64-byte aligned; fits by scratch_bytes()

// How matrix products are made.
typedef enum {
    PRODUCTS_PACKED,  // oneDNN's blocked weights, made from the fp32 parameters
    PRODUCTS_PLAIN,   // straight from the parameters
    PRODUCTS_WIDENED, // fp16, and bf16 on a processor that does not multiply it: fp32 products of their operands
} CpuProducts;

void matmul_open(const CpuVariant *unit, Dtype dtype, CpuProducts products);
void matmul_install(Backend *backend);
size_t matmul_packed_bytes(int rows, int cols);
size_t matmul_scratch_bytes(const Shape *shape);
void matmul_close(void);

// Says in `how` what it took: "2 threads, bfloat16 (avx512)".
const Backend *backend_cpu(const BackendChoice *choice, char how[96]);
