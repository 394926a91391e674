// Matrix products by oneDNN: primitives made once for each shape, weights prepacked both ways from the fp32 parameters.
#include "common/err.h"
#include "kernels/cpu/cpu.h"
#include <assert.h>
#include <oneapi/dnnl/dnnl.h>
#include <string.h>

#if DNNL_VERSION_MAJOR != 2
#error "written for oneDNN 2.x, as Debian 12 has it"
#endif

typedef enum { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT } Direction;

enum {
    PRODUCTS_MAX = 256, // a model has about 10 shapes; eval and sampling add theirs
    LAYOUTS_MAX = 64,
    LAYOUT_ROWS = 256, // what a layout is asked for; every M then multiplies with it
    WIDE_ROWS = 128    // rows widened at a time
};

// C (m,n) = A (m,k) * B (k,n)
typedef struct {
    Direction direction;
    int M, rows, cols;
    bool bias, add;
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c, bias_memory;
} Product;

typedef struct {
    Direction direction;
    int rows, cols;
    dnnl_memory_desc_t desc;
    int block; // ours to pack, 0: by oneDNN's reorder
} Layout;

static struct {
    const CpuUnit *unit;
    CpuProducts products;
    dnnl_data_type_t type; // of the operands that oneDNN sees
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    Product product[PRODUCTS_MAX];
    int product_count, product_next;
    Layout layout[LAYOUTS_MAX];
    int layout_count;
} mm;

#define DNN(call)                                                                                                      \
    do {                                                                                                               \
        dnnl_status_t status_ = call;                                                                                  \
        if (status_ != dnnl_success)                                                                                   \
            die(status_ == dnnl_out_of_memory ? EX_MEMORY : EX_BUG, "oneDNN answers %d to %s", (int)status_, #call);   \
    } while (0)

static dnnl_memory_desc_t matrix(int rows, int cols, dnnl_data_type_t type, bool transposed) {
    dnnl_dims_t dims = {rows, cols}, strides = {transposed ? 1 : cols, transposed ? rows : 1};
    dnnl_memory_desc_t desc;
    DNN(dnnl_memory_desc_init_by_strides(&desc, 2, dims, type, strides));
    return desc;
}

static dnnl_primitive_desc_t product_desc(Direction direction, int M, int rows, int cols, bool bias, bool add,
                                          const dnnl_memory_desc_t *weights) {
    dnnl_memory_desc_t a, b, c, bias_desc = matrix(1, rows, dnnl_f32, false);
    if (direction == BACKWARD_WEIGHT) {
        a = matrix(rows, M, mm.type, true), b = matrix(M, cols, mm.type, false);
        c = matrix(rows, cols, dnnl_f32, false);
    } else {
        bool forward = direction == FORWARD;
        a = matrix(M, forward ? cols : rows, mm.type, false), b = *weights;
        c = matrix(M, forward ? rows : cols, mm.type, false);
    }
    dnnl_post_ops_t post;
    dnnl_primitive_attr_t attributes;
    DNN(dnnl_post_ops_create(&post));
    if (add) DNN(dnnl_post_ops_append_sum(post, 1));
    DNN(dnnl_primitive_attr_create(&attributes));
    DNN(dnnl_primitive_attr_set_post_ops(attributes, post));
    dnnl_matmul_desc_t desc;
    DNN(dnnl_matmul_desc_init(&desc, &a, &b, bias ? &bias_desc : NULL, &c));
    dnnl_primitive_desc_t primitive;
    DNN(dnnl_primitive_desc_create(&primitive, &desc, attributes, mm.engine, NULL));
    dnnl_primitive_attr_destroy(attributes);
    dnnl_post_ops_destroy(post);
    return primitive;
}

// The block of columns when the layout is the one that pack_transposed and pack_plain write, else 0.
static int known_block(const dnnl_memory_desc_t *desc) {
    const dnnl_blocking_desc_t *b = &desc->format_desc.blocking;
    const int pair = mm.type == dnnl_bf16 ? 2 : 1;
    if (desc->format_kind != dnnl_blocked || b->inner_nblks != pair + 1 || b->inner_blks[0] != 16 ||
        b->inner_idxs[0] != 0 || b->inner_idxs[1] != 1 || b->inner_blks[1] % 16)
        return 0;
    if (pair == 2 && (b->inner_blks[2] != 2 || b->inner_idxs[2] != 0)) return 0;
    const dnnl_dim_t k = desc->padded_dims[0], n = desc->padded_dims[1], block = b->inner_blks[1];
    if (k != desc->dims[0] || n != desc->dims[1] || desc->offset0 || desc->extra.flags) return 0;
    return b->strides[0] == 16 * pair * block && b->strides[1] == k * block ? (int)block : 0;
}

static const Layout *layout_of(Direction direction, int rows, int cols) {
    for (int i = 0; i < mm.layout_count; i++) {
        const Layout *l = &mm.layout[i];
        if (l->direction == direction && l->rows == rows && l->cols == cols) return l;
    }
    assert(mm.layout_count < LAYOUTS_MAX);
    Layout *l = &mm.layout[mm.layout_count++];
    *l = (Layout){.direction = direction, .rows = rows, .cols = cols};
    const bool forward = direction == FORWARD;
    dnnl_dims_t dims = {forward ? cols : rows, forward ? rows : cols};
    if (mm.products == PRODUCTS_PACKED) {
        dnnl_memory_desc_t any;
        DNN(dnnl_memory_desc_init_by_tag(&any, 2, dims, mm.type, dnnl_format_tag_any));
        dnnl_primitive_desc_t primitive = product_desc(direction, LAYOUT_ROWS, rows, cols, false, false, &any);
        l->desc = *dnnl_primitive_desc_query_md(primitive, dnnl_query_weights_md, 0);
        l->block = known_block(&l->desc);
        dnnl_primitive_desc_destroy(primitive);
    } else {
        l->desc = matrix((int)dims[0], (int)dims[1], mm.type, forward);
    }
    return l;
}

static size_t layout_bytes(int rows, int cols, Direction direction) {
    return (dnnl_memory_desc_get_size(&layout_of(direction, rows, cols)->desc) + 63) / 64 * 64;
}

size_t matmul_packed_bytes(int rows, int cols) {
    switch (mm.products) {
    case PRODUCTS_PACKED:
        return layout_bytes(rows, cols, FORWARD) + layout_bytes(rows, cols, BACKWARD_INPUT);
    case PRODUCTS_WIDENED:
        return (size_t)rows * (size_t)cols * sizeof(float);
    default:
        return 0;
    }
}

static const Product *product_of(Direction direction, int M, int rows, int cols, bool bias, bool add) {
    for (int i = 0; i < mm.product_count; i++) {
        const Product *p = &mm.product[i];
        if (p->direction == direction && p->M == M && p->rows == rows && p->cols == cols && p->bias == bias &&
            p->add == add)
            return p;
    }
    Product *p = &mm.product[mm.product_next];
    if (mm.product_count < PRODUCTS_MAX)
        mm.product_count++;
    else { // the oldest goes
        DNN(dnnl_primitive_destroy(p->primitive));
        DNN(dnnl_memory_destroy(p->a));
        DNN(dnnl_memory_destroy(p->b));
        DNN(dnnl_memory_destroy(p->c));
        if (p->bias) DNN(dnnl_memory_destroy(p->bias_memory));
    }
    mm.product_next = (mm.product_next + 1) % PRODUCTS_MAX;
    *p = (Product){.direction = direction, .M = M, .rows = rows, .cols = cols, .bias = bias, .add = add};
    const dnnl_memory_desc_t *weights = direction == BACKWARD_WEIGHT ? NULL : &layout_of(direction, rows, cols)->desc;
    dnnl_primitive_desc_t desc = product_desc(direction, M, rows, cols, bias, add, weights);
    DNN(dnnl_memory_create(&p->a, dnnl_primitive_desc_query_md(desc, dnnl_query_src_md, 0), mm.engine, NULL));
    DNN(dnnl_memory_create(&p->b, dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0), mm.engine, NULL));
    DNN(dnnl_memory_create(&p->c, dnnl_primitive_desc_query_md(desc, dnnl_query_dst_md, 0), mm.engine, NULL));
    if (bias)
        DNN(dnnl_memory_create(&p->bias_memory, dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 1), mm.engine,
                               NULL));
    DNN(dnnl_primitive_create(&p->primitive, desc));
    dnnl_primitive_desc_destroy(desc);
    return p;
}

static void set(dnnl_memory_t memory, const void *data) {
    DNN(dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)data)); // oneDNN's memory knows no const
}

static void multiply(Direction direction, int M, int rows, int cols, bool add, const void *a, const void *b,
                     const Par *bias, void *c) {
    const Product *p = product_of(direction, M, rows, cols, bias != NULL, add);
    set(p->a, a), set(p->b, b), set(p->c, c);
    dnnl_exec_arg_t arguments[4] = {
        {DNNL_ARG_SRC,     p->a},
        {DNNL_ARG_WEIGHTS, p->b},
        {DNNL_ARG_DST,     p->c}
    };
    if (bias) {
        set(p->bias_memory, bias);
        arguments[3] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, p->bias_memory};
    }
    DNN(dnnl_primitive_execute(p->primitive, mm.stream, bias ? 4 : 3, arguments));
}

static const void *weights_of(const Weight *w, Direction direction) {
    switch (mm.products) {
    case PRODUCTS_PACKED:
        return (const char *)w->packed + (direction == FORWARD ? 0 : layout_bytes(w->rows, w->cols, FORWARD));
    case PRODUCTS_WIDENED:
        return w->packed;
    default:
        return w->param;
    }
}

// bf16 without bf16 products: WIDE_ROWS rows at a time become fp32, and the result is narrowed again.
static void multiply_widened(Direction direction, int M, const Weight *w, const uint16_t *in, const Par *bias,
                             uint16_t *out) {
    const size_t in_cols = (size_t)(direction == FORWARD ? w->cols : w->rows);
    const size_t out_cols = (size_t)(direction == FORWARD ? w->rows : w->cols);
    size_t used = 0;
    float *wide_in = scratch_take(&used, WIDE_ROWS * in_cols * sizeof(float));
    float *wide_out = scratch_take(&used, WIDE_ROWS * out_cols * sizeof(float));
    for (int row = 0; row < M; row += WIDE_ROWS) {
        const int count = M - row < WIDE_ROWS ? M - row : WIDE_ROWS;
        mm.unit->widen(wide_in, in + (size_t)row * in_cols, (size_t)count * in_cols);
        multiply(direction, count, w->rows, w->cols, false, wide_in, weights_of(w, direction), bias, wide_out);
        mm.unit->narrow(out + (size_t)row * out_cols, wide_out, (size_t)count * out_cols);
    }
}

static void multiply_weight_widened(float *dw, const uint16_t *dout, const uint16_t *in, int M, int rows, int cols,
                                    bool add) {
    size_t used = 0;
    float *wide_dout = scratch_take(&used, WIDE_ROWS * (size_t)rows * sizeof(float));
    float *wide_in = scratch_take(&used, WIDE_ROWS * (size_t)cols * sizeof(float));
    for (int row = 0; row < M; row += WIDE_ROWS) {
        const int count = M - row < WIDE_ROWS ? M - row : WIDE_ROWS;
        mm.unit->widen(wide_dout, dout + (size_t)row * (size_t)rows, (size_t)count * (size_t)rows);
        mm.unit->widen(wide_in, in + (size_t)row * (size_t)cols, (size_t)count * (size_t)cols);
        multiply(BACKWARD_WEIGHT, count, rows, cols, add || row, wide_dout, wide_in, NULL, dw);
    }
}

static void matmul_forward(Act *out, const Act *in, const Weight *w, const Par *bias, int M) {
    if (mm.products == PRODUCTS_WIDENED)
        multiply_widened(FORWARD, M, w, in, bias, out);
    else
        multiply(FORWARD, M, w->rows, w->cols, false, in, weights_of(w, FORWARD), bias, out);
}

static void matmul_backward_input(Act *din, const Act *dout, const Weight *w, int M) {
    if (mm.products == PRODUCTS_WIDENED)
        multiply_widened(BACKWARD_INPUT, M, w, dout, NULL, din);
    else
        multiply(BACKWARD_INPUT, M, w->rows, w->cols, false, dout, weights_of(w, BACKWARD_INPUT), NULL, din);
}

static void matmul_backward_weight(Grad *dw, const Act *dout, const Act *in, int M, int rows, int cols, bool add) {
    if (mm.products == PRODUCTS_WIDENED)
        multiply_weight_widened(dw, dout, in, M, rows, cols, add);
    else
        multiply(BACKWARD_WEIGHT, M, rows, cols, add, dout, in, NULL, dw);
}

static void reorder(const Weight *w, const Layout *layout, void *packed) {
    const bool forward = layout->direction == FORWARD;
    dnnl_memory_desc_t plain = matrix((int)layout->desc.dims[0], (int)layout->desc.dims[1], dnnl_f32, forward);
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_memory_t from, to;
    DNN(dnnl_reorder_primitive_desc_create(&desc, &plain, mm.engine, &layout->desc, mm.engine, NULL));
    DNN(dnnl_primitive_create(&primitive, desc));
    DNN(dnnl_memory_create(&from, &plain, mm.engine, (void *)(uintptr_t)w->param));
    DNN(dnnl_memory_create(&to, &layout->desc, mm.engine, packed));
    DNN(dnnl_primitive_execute(primitive, mm.stream, 2,
                               (dnnl_exec_arg_t[]){
                                   {DNNL_ARG_FROM, from},
                                   {DNNL_ARG_TO,   to  }
    }));
    dnnl_memory_destroy(from), dnnl_memory_destroy(to);
    dnnl_primitive_destroy(primitive), dnnl_primitive_desc_destroy(desc);
}

static void pack(const Weight *w) {
    if (mm.products == PRODUCTS_WIDENED) { // rounded as bf16 weights would be
        const size_t count = (size_t)w->rows * (size_t)w->cols, piece = (size_t)WIDE_ROWS * (size_t)w->cols;
        size_t used = 0;
        uint16_t *rounded = scratch_take(&used, piece * sizeof *rounded);
        for (size_t i = 0; i < count; i += piece) {
            const size_t n = count - i < piece ? count - i : piece;
            mm.unit->narrow(rounded, (const float *)w->param + i, n);
            mm.unit->widen((float *)w->packed + i, rounded, n);
        }
    }
    if (mm.products != PRODUCTS_PACKED) return;
    for (Direction direction = FORWARD; direction <= BACKWARD_INPUT; direction++) {
        const Layout *layout = layout_of(direction, w->rows, w->cols);
        void *packed = (void *)(uintptr_t)weights_of(w, direction);
        if (!layout->block)
            reorder(w, layout, packed);
        else if (direction == FORWARD)
            mm.unit->pack_transposed(w->param, w->rows, w->cols, layout->block, packed);
        else
            mm.unit->pack_plain(w->param, w->rows, w->cols, layout->block, packed);
    }
}

size_t matmul_scratch_bytes(const Shape *s) {
    const size_t C = (size_t)s->C, V = (size_t)s->V, hidden = 5 * C, head = V + C;
    return mm.products == PRODUCTS_WIDENED ? WIDE_ROWS * sizeof(float) * (hidden > head ? hidden : head) + 128 : 0;
}

void matmul_open(const CpuUnit *unit, Dtype dtype, CpuProducts products) {
    mm.unit = unit;
    mm.products = products;
    mm.type = dtype == DTYPE_BF16 && products != PRODUCTS_WIDENED ? dnnl_bf16 : dnnl_f32;
    DNN(dnnl_engine_create(&mm.engine, dnnl_cpu, 0));
    DNN(dnnl_stream_create(&mm.stream, mm.engine, dnnl_stream_default_flags));
}

void matmul_install(Backend *backend) {
    backend->packed_bytes = matmul_packed_bytes;
    backend->matmul_forward = matmul_forward;
    backend->matmul_backward_input = matmul_backward_input;
    backend->matmul_backward_weight = matmul_backward_weight;
    backend->pack = pack;
}

void matmul_close(void) {
    for (int i = 0; i < mm.product_count; i++) {
        Product *p = &mm.product[i];
        dnnl_primitive_destroy(p->primitive);
        dnnl_memory_destroy(p->a), dnnl_memory_destroy(p->b), dnnl_memory_destroy(p->c);
        if (p->bias) dnnl_memory_destroy(p->bias_memory);
    }
    dnnl_stream_destroy(mm.stream);
    dnnl_engine_destroy(mm.engine);
    memset(&mm, 0, sizeof mm);
}
