// Shared by the files of the CPU backend: the variants of the vector kernels, one for each activation type and
// instruction set (variant.c), the matrix products around oneDNN (matmul.c), and the scratch memory of all operations.
#pragma once

#include "common/sizes.h"
#include "kernels/backend.h"
#include "kernels/cpu/team.h"

static inline int smaller(int a, int b) { return a < b ? a : b; }

// Sums over rows are divided into chunks of this many, whatever the number of threads, so that their bits depend on the
// shape alone.
enum { CHUNK_ROWS = 32 };

// Numbers of a piece of a loop that is limited by memory.
enum { NUMBERS_PIECE = 4096 };

extern OptimizerState cpu_optimizer_state; // of the open backend; adamw reads it
extern bool cpu_amx;                       // bf16 products may use AMX tiles

// Where a weight (rows,cols) is packed in oneDNN's blocked layouts, and the tiles of it that one thread packs at a
// time. rows and cols are multiples of the block of each layout and of 32.
typedef struct {
    void *transposed, *plain; // for w^T, in blocks of tile_rows outputs, and for w, in blocks of `block`
    int tile_rows, block, tile_cols;
} Packing;

// c (M,N) (+)= a * b + bias; a (M,K) or turned (K,M), b (K,N) or turned (N,K). bias (N) NULL: none; it is not added
// with `add`. `upper`: elements below the diagonal may be left out.
typedef struct {
    float *c;
    const void *a, *b;
    const float *bias;
    int M, N, K;
    bool a_turned, b_turned, add, upper;
} PanelProduct;

// Kernels of one activation type, compiled for one instruction set.
typedef struct {
    void (*install)(Backend *backend);           // sets every operation of ops.def
    size_t (*scratch_bytes)(const Shape *shape); // the largest need of an operation
    void (*pack_tiles)(const float *w, int rows, int cols, const Packing *to);
    // matmul_forward of a single row, with the weights that pack_tiles has written to `transposed`.
    void (*multiply_row)(void *out, const void *in, const void *packed, const float *bias, int rows, int cols,
                         int block);
    void (*multiply_row_plain)(void *out, const void *in, const float *w, const float *bias, int rows, int cols);
    // Of floats, or, with a_turned, of activations. scratch: panels_scratch(N, threads) bytes.
    void (*multiply_panels)(const PanelProduct *product, void *scratch);
    size_t (*panels_scratch)(int N, int threads);
    bool panels_are_fast; // beside oneDNN's products
    void (*widen)(float *out, const void *in, size_t n);
    void (*narrow)(void *out, const float *in, size_t n);
} CpuVariant;

#define CPU_VARIANTS(name)                                                                                             \
    {                                                                                                                  \
        &cpu_##name##_portable, ON_X86(&cpu_##name##_avx2, &cpu_##name##_portable),                                    \
            ON_X86(&cpu_##name##_avx512, &cpu_##name##_portable)                                                       \
    } // by Isa
#define DECLARE(NAME, name, ...) extern const CpuVariant cpu_##name##_portable, cpu_##name##_avx2, cpu_##name##_avx512;
ACTS(DECLARE, )
#undef DECLARE

// Scratch memory: each operation uses it from its start; nothing in it outlives the call.
void scratch_bind(void *base, size_t bytes);
void *scratch_take(size_t *used, size_t bytes); // *used starts at 0; 64-byte aligned; fits by scratch_bytes()

// The scratch column of ops.def: cpu_<column>_scratch. matmul.c has cpu_matmul_scratch, the variants have the others.
static inline size_t cpu_no_scratch(const Shape *shape) { return (void)shape, 0; }
static inline size_t cpu_embed_scratch(const Shape *shape) { return (void)shape, 0; }
size_t cpu_matmul_scratch(const Shape *shape);

// The operations that multiply by weights, the same functions in every variant.
void cpu_matmul_forward(Act *out, const Act *in, const Weight *w, const Par *bias, int M);
void cpu_matmul_backward_input(Act *din, const Act *dout, const Weight *w, int M);
void cpu_matmul_backward_weight(Grad *dw, const Act *dout, const Act *in, int M, int rows, int cols, bool add);
void cpu_matmul_symmetric(Grad *out, const Act *a, const Act *b, int M, int n);
void cpu_matmul_gelu_forward(Act *out, Act *pre, const Act *in, const Weight *w, const Par *bias, int M,
                             Activation form);
void cpu_matmul_gelu_backward(Act *d, Grad *dbias, const Act *dout, const Act *pre, const Weight *w, int M,
                              Activation form, bool add);
void cpu_pack(const Weight *w);
// Whether `pack` of this weight writes tiles; else only cpu_pack() does it.
bool matmul_packing(const Weight *w, Packing *packing);

// How matrix products are computed.
typedef enum {
    PRODUCTS_PACKED,  // from weights in oneDNN's blocked layout, packed from the fp32 parameters
    PRODUCTS_PLAIN,   // from the fp32 parameters themselves
    PRODUCTS_WIDENED, // fp16, and bf16 on a processor without bf16 dot products: operands are widened to fp32
} CpuProducts;

// -1 after fail() (71). slow_bf16: its products are slower than those of fp32.
int matmul_open(const Backend *operations, const CpuVariant *variant, CpuProducts products, bool slow_bf16);
void matmul_set_portable(bool portable); // of float32
bool matmul_portable(void);
void matmul_close(void);
size_t matmul_packed_bytes(int rows, int cols);
