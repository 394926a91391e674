// The operations that multiply by weights: packed for both directions from the fp32 parameters, or used as they are.
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/matmul_amx.h"
#include "kernels/cpu/onednn.h"
#include <assert.h>

enum { WIDE_ROWS = 128 }; // rows widened at a time

static const CpuVariant *variant;
static CpuProducts products;
static bool has_panels; // gradients may be multiplied by multiply_panels(), see by_panels()
static bool portable;   // every product is, whose bits no processor changes then; weights are as they are
bool cpu_amx;
static const Backend *operations;

size_t matmul_packed_bytes(int rows, int cols) {
    switch (products) {
    case PRODUCTS_PACKED:
        return product_layout_bytes(FORWARD, rows, cols) + product_layout_bytes(BACKWARD_INPUT, rows, cols);
    case PRODUCTS_WIDENED:
        return (size_t)rows * (size_t)cols * sizeof(float);
    default:
        return 0;
    }
}

static char *packed_of(const Weight *w, Direction direction) {
    const bool second = products == PRODUCTS_PACKED && direction == BACKWARD_INPUT;
    return (char *)w->packed + (second ? product_layout_bytes(FORWARD, w->rows, w->cols) : 0);
}

static const void *weights_of(const Weight *w, Direction direction) {
    return products == PRODUCTS_PLAIN || portable ? (const void *)w->param : packed_of(w, direction);
}

// Whether a product is computed by panels. dw always: panels are copied once for all strips, and oneDNN copies its
// operands for each block. din if the rows of the weights are a multiple of 4 KiB apart: they share few sets of the
// caches, and oneDNN is half as fast, unless the weights are packed.
static bool by_panels(Direction direction, int cols) {
    const bool collide = products != PRODUCTS_PACKED && cols % 1024 == 0;
    return portable || !product_has_onednn() ||
           (has_panels && (direction == BACKWARD_WEIGHT || (direction == BACKWARD_INPUT && collide)));
}

// product() by panels or by oneDNN, with the scratch memory after `used` bytes. `bias`: of FORWARD alone, or NULL.
// `upper`: of BACKWARD_WEIGHT, elements below the diagonal may be left out.
static void multiply(Direction direction, int M, int rows, int cols, bool add, bool upper, const void *a, const void *b,
                     const float *bias, void *c, size_t used) {
    const bool weight = direction == BACKWARD_WEIGHT, forward = direction == FORWARD;
    const int N = forward ? rows : cols;
    if (by_panels(direction, cols))
        variant->multiply_panels(&(PanelProduct){.c = c,
                                                 .a = a,
                                                 .b = b,
                                                 .bias = bias,
                                                 .M = weight ? rows : M,
                                                 .N = N,
                                                 .K = weight    ? M
                                                      : forward ? cols
                                                                : rows,
                                                 .a_turned = weight,
                                                 .b_turned = forward,
                                                 .add = add,
                                                 .upper = upper},
                                 scratch_take(&used, variant->panels_scratch(N, team_threads())));
    else
        product(direction, M, rows, cols, add, a, b, bias, c);
}

// For two-byte operands that the processor cannot multiply: widens WIDE_ROWS rows at a time to fp32, multiplies, and
// narrows the result.
static void multiply_widened(Direction direction, int M, const Weight *w, const Act *in, const Par *bias, Act *out) {
    const size_t in_cols = (size_t)(direction == FORWARD ? w->cols : w->rows);
    const size_t out_cols = (size_t)(direction == FORWARD ? w->rows : w->cols);
    size_t used = 0;
    float *wide_in = scratch_take(&used, WIDE_ROWS * in_cols * sizeof(float));
    float *wide_out = scratch_take(&used, WIDE_ROWS * out_cols * sizeof(float));
    for (int row = 0; row < M; row += WIDE_ROWS) {
        const int count = M - row < WIDE_ROWS ? M - row : WIDE_ROWS;
        variant->widen(wide_in, (const uint16_t *)in + (size_t)row * in_cols, (size_t)count * in_cols);
        multiply(direction, count, w->rows, w->cols, false, false, wide_in, weights_of(w, direction),
                 (const float *)bias, wide_out, used);
        variant->narrow((uint16_t *)out + (size_t)row * out_cols, wide_out, (size_t)count * out_cols);
    }
}

static void multiply_weight_widened(Grad *dw, const Act *dout, const Act *in, int M, int rows, int cols, bool add) {
    size_t used = 0;
    float *wide_dout = scratch_take(&used, WIDE_ROWS * (size_t)rows * sizeof(float));
    float *wide_in = scratch_take(&used, WIDE_ROWS * (size_t)cols * sizeof(float));
    for (int row = 0; row < M; row += WIDE_ROWS) {
        const int count = M - row < WIDE_ROWS ? M - row : WIDE_ROWS;
        variant->widen(wide_dout, (const uint16_t *)dout + (size_t)row * (size_t)rows, (size_t)count * (size_t)rows);
        variant->widen(wide_in, (const uint16_t *)in + (size_t)row * (size_t)cols, (size_t)count * (size_t)cols);
        product(BACKWARD_WEIGHT, count, rows, cols, add || row, wide_dout, wide_in, NULL, dw);
    }
}

void cpu_matmul_forward(Act *out, const Act *in, const Weight *w, const Par *bias, int M) {
    const bool packed = products == PRODUCTS_PACKED && !portable;
    const int block = M == 1 && packed ? product_layout_block(FORWARD, w->rows, w->cols) : 0;
    if (M == 1 && !packed)
        variant->multiply_row_plain(out, in, weights_of(w, FORWARD), (const float *)bias, w->rows, w->cols);
    else if (products == PRODUCTS_WIDENED)
        multiply_widened(FORWARD, M, w, in, bias, out);
    else if (block)
        variant->multiply_row(out, in, packed_of(w, FORWARD), (const float *)bias, w->rows, w->cols, block);
    else
        multiply(FORWARD, M, w->rows, w->cols, false, false, in, weights_of(w, FORWARD), (const float *)bias, out, 0);
}

// Whether the input gradient of w is a long sum that matmul_amx.c computes: the head's.
static bool is_long_sum(const Weight *w) {
    return cpu_amx && w->rows > 4 * w->cols && w->rows % 32 == 0 && w->cols % 64 == 0 &&
           product_layout_block(BACKWARD_INPUT, w->rows, w->cols) == 64;
}

void cpu_matmul_backward_input(Act *din, const Act *dout, const Weight *w, int M) {
    size_t used = 0;
    if (products == PRODUCTS_WIDENED)
        multiply_widened(BACKWARD_INPUT, M, w, dout, NULL, din);
    else if (is_long_sum(w))
        amx_backward_input((uint16_t *)din, (const uint16_t *)dout,
                           (const uint16_t *)(void *)packed_of(w, BACKWARD_INPUT), M, w->rows, w->cols,
                           scratch_take(&used, amx_input_scratch(w->cols, team_threads())));
    else
        multiply(BACKWARD_INPUT, M, w->rows, w->cols, false, false, dout, weights_of(w, BACKWARD_INPUT), NULL, din,
                 used);
}

static void multiply_weight(Grad *dw, const Act *dout, const Act *in, int M, int rows, int cols, bool add, bool upper) {
    size_t used = 0;
    if (products == PRODUCTS_WIDENED && !has_panels)
        multiply_weight_widened(dw, dout, in, M, rows, cols, add);
    else if (cpu_amx)
        amx_backward_weight((float *)dw, (const uint16_t *)dout, (const uint16_t *)in, M, rows, cols, add,
                            scratch_take(&used, amx_scratch(cols, team_threads())));
    else
        multiply(BACKWARD_WEIGHT, M, rows, cols, add, upper, dout, in, NULL, dw, used);
}

void cpu_matmul_backward_weight(Grad *dw, const Act *dout, const Act *in, int M, int rows, int cols, bool add) {
    multiply_weight(dw, dout, in, M, rows, cols, add, false);
}

void cpu_matmul_symmetric(Grad *out, const Act *a, const Act *b, int M, int n) {
    multiply_weight(out, a, b, M, n, n, false, true);
}

void cpu_matmul_gelu_forward(Act *out, Act *pre, const Act *in, const Weight *w, const Par *bias, int M,
                             Activation form) {
    cpu_matmul_forward(pre, in, w, bias, M);
    operations->gelu_forward(out, pre, (size_t)M * (size_t)w->rows, form);
}

void cpu_matmul_gelu_backward(Act *d, Grad *dbias, const Act *dout, const Act *pre, const Weight *w, int M,
                              Activation form, bool add) {
    cpu_matmul_backward_input(d, dout, w, M);
    operations->gelu_backward(d, dbias, pre, M, w->cols, form, add);
}

bool matmul_packing(const Weight *w, Packing *packing) {
    enum { TILE_BLOCKS = 12 }; // of columns: the bytes of AdamW for a tile fit the second-level cache
    if (products != PRODUCTS_PACKED) return false;
    assert((uintptr_t)w->packed % 64 == 0);
    const int block = product_layout_block(BACKWARD_INPUT, w->rows, w->cols);
    *packing = (Packing){packed_of(w, FORWARD), packed_of(w, BACKWARD_INPUT),
                         product_layout_block(FORWARD, w->rows, w->cols), block, TILE_BLOCKS * block};
    return packing->tile_rows && block;
}

void cpu_pack(const Weight *w) {
    const float *params = (const float *)w->param;
    if (products == PRODUCTS_WIDENED) { // rounds to two bytes, as stored weights of that type would be
        const size_t count = (size_t)w->rows * (size_t)w->cols, piece = (size_t)WIDE_ROWS * (size_t)w->cols;
        size_t used = 0;
        uint16_t *rounded = scratch_take(&used, piece * sizeof *rounded);
        for (size_t i = 0; i < count; i += piece) {
            const size_t n = count - i < piece ? count - i : piece;
            variant->narrow(rounded, params + i, n);
            variant->widen((float *)w->packed + i, rounded, n);
        }
    }
    if (products != PRODUCTS_PACKED) return;
    Packing packing;
    if (matmul_packing(w, &packing))
        variant->pack_tiles(params, w->rows, w->cols, &packing);
    else
        for (Direction direction = FORWARD; direction <= BACKWARD_INPUT; direction++)
            product_reorder(direction, params, w->rows, w->cols, packed_of(w, direction));
}

size_t cpu_matmul_scratch(const Shape *s) {
    const size_t C = (size_t)s->C, V = (size_t)s->V, hidden = 7 * C + 128, head = V + C;
    const int threads = s->threads > 0 ? s->threads : team_threads();
    const bool any = operations->act_type == DTYPE_FP32 || !product_has_onednn(); // if `portable`
    const int inner = 16 * s->C / 3 + 128;                                        // at most: gate and up of SwiGLU
    const int widest = any && s->V > inner ? s->V : inner;
    const size_t panels = has_panels || any ? variant->panels_scratch(widest, threads) : 0;
    if (products == PRODUCTS_WIDENED) return WIDE_ROWS * sizeof(float) * size_larger(hidden, head) + 128 + panels;
    return cpu_amx ? size_larger(amx_scratch(4 * s->C, threads), amx_input_scratch(s->C, threads)) : panels;
}

int matmul_open(const Backend *its_operations, const CpuVariant *its_variant, CpuProducts how, bool slow_bf16) {
    operations = its_operations;
    variant = its_variant;
    products = how;
    cpu_amx = operations->act_type == DTYPE_BF16 && how == PRODUCTS_PACKED && product_has_amx() && amx_open();
    portable = false;
    has_panels =
        !product_has_onednn() ||
        (variant->panels_are_fast && (how == PRODUCTS_WIDENED || operations->act_type == DTYPE_FP32 || slow_bf16));
    return product_open(operations->act_type == DTYPE_BF16 && how != PRODUCTS_WIDENED, how == PRODUCTS_PACKED);
}

void matmul_set_portable(bool is_portable) { portable = is_portable; }

bool matmul_portable(void) { return portable; }

void matmul_close(void) { product_close(); }
