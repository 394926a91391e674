// Matrix products by oneDNN: one primitive per shape, created at its first use, and the layouts that it prefers for
// weights.
//
// Products run in blocks of a fixed size, each on one thread of the team: oneDNN would divide a sum among the threads
// of OpenMP (all but the AVX-512 products of oneDNN 2 do), and wait for all of them.
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/onednn_matrix.h"
#include "kernels/cpu/team.h"
#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum {
    PRODUCTS_MAX = 256, // a model has about 10 shapes; eval and sampling add theirs
    LAYOUTS_MAX = 256,  // plan compares 16 shapes
    LAYOUT_ROWS = 256,  // the M for which a layout is queried; every other M uses the same layout
    BLOCK_ROWS = 128    // rows of a block at most
};

typedef struct {
    dnnl_memory_t a, b, c, bias, scratchpad;
} Operands;

// C (m,n) = A (m,k) * B (k,n)
typedef struct {
    Direction direction;
    int M, rows, cols;
    int stride; // between rows of out or dout: more than `rows` if this is a block of them
    bool bias, add;
    uint64_t used;
    dnnl_primitive_t primitive;
    Operands *operands; // one set for each thread that may run it
    int operands_count;
} Product;

typedef struct {
    Direction direction;
    int rows, cols;
    Matrix desc;
    int block; // columns of a block when pack_tile can write it; 0: packed by oneDNN's reorder:
    dnnl_primitive_t reorder;
    dnnl_memory_t from, to;
} Layout;

static struct {
    bool packed;
    dnnl_data_type_t type; // of the operands that oneDNN sees
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    Product product[PRODUCTS_MAX];
    int product_count;
    uint64_t clock;
    Layout layout[LAYOUTS_MAX];
    int layout_count;
} mm;

static Matrix matrix(int rows, int cols, dnnl_data_type_t type, int row_stride, int col_stride) {
    return matrix_with_strides((dnnl_dims_t){rows, cols}, type, (dnnl_dims_t){row_stride, col_stride});
}

static dnnl_primitive_desc_t product_desc(const Product *p, MatrixView weights) {
    const int M = p->M, rows = p->rows, cols = p->cols;
    Matrix a, b = NULL, c, bias = p->bias ? matrix(1, rows, dnnl_f32, rows, 1) : NULL;
    switch (p->direction) {
    case FORWARD:
        a = matrix(M, cols, mm.type, cols, 1), c = matrix(M, rows, mm.type, p->stride, 1);
        break;
    case BACKWARD_INPUT:
        a = matrix(M, rows, mm.type, rows, 1), c = matrix(M, cols, mm.type, cols, 1);
        break;
    default:
        a = matrix(rows, M, mm.type, 1, p->stride), b = matrix(M, cols, mm.type, cols, 1);
        c = matrix(rows, cols, dnnl_f32, cols, 1);
    }
    dnnl_post_ops_t post;
    dnnl_primitive_attr_t attributes;
    DNN(dnnl_post_ops_create(&post));
    if (p->add) DNN(post_ops_append_add(post));
    DNN(dnnl_primitive_attr_create(&attributes));
    DNN(dnnl_primitive_attr_set_post_ops(attributes, post));
    DNN(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    dnnl_primitive_desc_t primitive;
    DNN(product_create_desc(&primitive, mm.engine, a, b ? b : weights, bias, c, attributes));
    matrix_free(a), matrix_free(b), matrix_free(bias), matrix_free(c);
    dnnl_primitive_attr_destroy(attributes);
    dnnl_post_ops_destroy(post);
    return primitive;
}

static void set(dnnl_memory_t memory, const void *data) {
    DNN(dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)data)); // the oneDNN API has no const
}

// The columns of a block if pack_tile can write this layout, else 0.
static int known_block(MatrixView desc) {
    Blocking b;
    const int pair = mm.type == dnnl_bf16 ? 2 : 1;
    if (!matrix_blocking(desc, &b) || b.count != pair + 1 || b.sizes[0] != 16 || b.dimensions[0] != 0 ||
        b.dimensions[1] != 1 || b.sizes[1] % 16)
        return 0;
    if (pair == 2 && (b.sizes[2] != 2 || b.dimensions[2] != 0)) return 0;
    const dnnl_dim_t k = b.padded[0], n = b.padded[1], block = b.sizes[1];
    if (k != b.shape[0] || n != b.shape[1] || dnnl_memory_desc_get_size(desc) != (size_t)(k * n) * (4 / (size_t)pair))
        return 0;
    return b.strides[0] == 16 * pair * block && b.strides[1] == k * block ? (int)block : 0;
}

static Layout *layout_of(Direction direction, int rows, int cols) {
    for (int i = 0; i < mm.layout_count; i++) {
        Layout *l = &mm.layout[i];
        if (l->direction == direction && l->rows == rows && l->cols == cols) return l;
    }
    assert(mm.layout_count < LAYOUTS_MAX);
    Layout *l = &mm.layout[mm.layout_count++];
    *l = (Layout){.direction = direction, .rows = rows, .cols = cols};
    const dnnl_dims_t shape = {direction == FORWARD ? cols : rows, direction == FORWARD ? rows : cols};
    Matrix any = matrix_of_any_layout(shape, mm.type);
    const Product typical = {direction, LAYOUT_ROWS, rows, cols, .stride = rows};
    dnnl_primitive_desc_t primitive = product_desc(&typical, any);
    l->desc = matrix_copy(dnnl_primitive_desc_query_md(primitive, dnnl_query_weights_md, 0));
    l->block = known_block(l->desc);
    matrix_free(any);
    dnnl_primitive_desc_destroy(primitive);
    return l;
}

static void entry_close(Product *p) {
    for (int i = 0; i < p->operands_count; i++) {
        Operands *o = &p->operands[i];
        void *scratchpad = NULL;
        dnnl_memory_get_data_handle(o->scratchpad, &scratchpad);
        free(scratchpad);
        dnnl_memory_destroy(o->a), dnnl_memory_destroy(o->b), dnnl_memory_destroy(o->c);
        dnnl_memory_destroy(o->bias), dnnl_memory_destroy(o->scratchpad);
    }
    free(p->operands);
    dnnl_primitive_destroy(p->primitive);
}

static void entry_open(Product *p) {
    Matrix plain = p->direction == FORWARD ? matrix(p->cols, p->rows, mm.type, 1, p->cols)
                                           : matrix(p->rows, p->cols, mm.type, p->cols, 1);
    const bool packed = mm.packed && p->direction != BACKWARD_WEIGHT;
    dnnl_primitive_desc_t desc = product_desc(p, packed ? layout_of(p->direction, p->rows, p->cols)->desc : plain);
    matrix_free(plain);
    MatrixView scratchpad = dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    const size_t scratchpad_bytes = (dnnl_memory_desc_get_size(scratchpad) + 63) / 64 * 64;
    p->operands_count = team_threads();
    p->operands = allocate_zeroed((size_t)p->operands_count, sizeof *p->operands);
    for (int i = 0; i < p->operands_count; i++) {
        Operands *o = &p->operands[i];
        const struct {
            dnnl_memory_t *memory;
            dnnl_query_t query;
            int index;
        } all[] = {{&o->a, dnnl_query_src_md, 0},
                   {&o->b, dnnl_query_weights_md, 0},
                   {&o->c, dnnl_query_dst_md, 0},
                   {&o->bias, dnnl_query_weights_md, 1},
                   {&o->scratchpad, dnnl_query_scratchpad_md, 0}};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            DNN(dnnl_memory_create(all[j].memory, dnnl_primitive_desc_query_md(desc, all[j].query, all[j].index),
                                   mm.engine, NULL));
        if (scratchpad_bytes) set(o->scratchpad, aligned_alloc(64, scratchpad_bytes));
    }
    DNN(dnnl_primitive_create(&p->primitive, desc));
    dnnl_primitive_desc_destroy(desc);
}

static Product *product_of(Direction direction, int M, int rows, int cols, int stride, bool bias, bool add) {
    Product *oldest = &mm.product[0];
    mm.clock++;
    for (int i = 0; i < mm.product_count; i++) {
        Product *p = &mm.product[i];
        if (p->direction == direction && p->M == M && p->rows == rows && p->cols == cols && p->stride == stride &&
            p->bias == bias && p->add == add) {
            p->used = mm.clock;
            return p;
        }
        if (p->used < oldest->used) oldest = p;
    }
    Product *p = mm.product_count < PRODUCTS_MAX ? &mm.product[mm.product_count++] : oldest;
    if (p->primitive) entry_close(p);
    *p = (Product){direction, M, rows, cols, stride, bias, add, .used = mm.clock};
    entry_open(p);
    return p;
}

void omp_set_num_threads(int threads); // of the OpenMP that oneDNN uses, for the calling thread

// A library of another runtime than OpenMP computes after the call has returned. With OpenMP the wait does nothing.
static void execute(const_dnnl_primitive_t primitive, int count, const dnnl_exec_arg_t *arguments) {
    omp_set_num_threads(1);
    DNN(dnnl_primitive_execute(primitive, mm.stream, count, arguments));
    DNN(dnnl_stream_wait(mm.stream));
}

static void product_run(const Product *p, int thread, const void *a, const void *b, const float *bias, void *c) {
    const Operands *o = &p->operands[thread];
    set(o->a, a), set(o->b, b), set(o->c, c);
    dnnl_exec_arg_t arguments[5] = {{DNNL_ARG_SRC, o->a},
                                    {DNNL_ARG_WEIGHTS, o->b},
                                    {DNNL_ARG_DST, o->c},
                                    {DNNL_ARG_SCRATCHPAD, o->scratchpad},
                                    {DNNL_ARG_BIAS, o->bias}};
    if (bias) set(o->bias, bias);
    execute(p->primitive, bias ? 5 : 4, arguments);
}

// Rows of M in a block: a function of M alone, so that the bits do not depend on the threads.
static int block_rows(int M) {
    const int eighth = (M / 8 + 15) / 16 * 16;
    return eighth < 16 ? 16 : eighth < BLOCK_ROWS ? eighth : BLOCK_ROWS;
}

TEAM_LOOP(run_blocks, int, (const Product *const *, of_size), (int, block), (const char *, from),
          (const char *, weights), (const float *, bias), (char *, to)) {
    const size_t element = mm.type == dnnl_bf16 ? sizeof(uint16_t) : sizeof(float);
    const int thread = team_thread();
    for (int at = first; at < end; at += block) {
        const Product *p = of_size[end - at < block ? end - at : block];
        const size_t start = (size_t)at, col = start * (size_t)p->cols;
        if (p->direction == BACKWARD_INPUT)
            product_run(p, thread, from + start * (size_t)p->rows * element, weights, NULL, to + col * element);
        else if (p->direction == FORWARD && mm.packed)
            product_run(p, thread, from + col * element, weights, bias, to + start * (size_t)p->rows * element);
        else if (p->direction == FORWARD)
            product_run(p, thread, from, weights + col * element, bias ? bias + start : NULL, to + start * element);
        else
            product_run(p, thread, from + start * element, weights, NULL, to + col * sizeof(float));
    }
}

// Blocks of rows of out and din, or of w and dw.
void product(Direction direction, int M, int rows, int cols, bool add, const void *a, const void *b, const float *bias,
             void *c) {
    const bool by_rows_of_w = direction == BACKWARD_WEIGHT || (direction == FORWARD && !mm.packed);
    const int whole = by_rows_of_w ? rows : M, block = by_rows_of_w ? BLOCK_ROWS : block_rows(M);
    const Product *of_size[BLOCK_ROWS + 1] = {NULL};
    for (int at = 0; at < whole; at += block) {
        const int n = whole - at < block ? whole - at : block;
        of_size[n] =
            product_of(direction, by_rows_of_w ? M : n, by_rows_of_w ? n : rows, cols, rows, bias != NULL, add);
    }
    run_blocks(whole, block, of_size, block, a, b, bias, c);
}

size_t product_layout_bytes(Direction direction, int rows, int cols) {
    return (dnnl_memory_desc_get_size(layout_of(direction, rows, cols)->desc) + 63) / 64 * 64;
}

int product_layout_block(Direction direction, int rows, int cols) { return layout_of(direction, rows, cols)->block; }

static void open_reorder(Layout *layout) {
    const int rows = layout->rows, cols = layout->cols;
    Matrix plain =
        layout->direction == FORWARD ? matrix(cols, rows, dnnl_f32, 1, cols) : matrix(rows, cols, dnnl_f32, cols, 1);
    dnnl_primitive_desc_t desc;
    DNN(dnnl_reorder_primitive_desc_create(&desc, plain, mm.engine, layout->desc, mm.engine, NULL));
    DNN(dnnl_primitive_create(&layout->reorder, desc));
    DNN(dnnl_memory_create(&layout->from, plain, mm.engine, NULL));
    DNN(dnnl_memory_create(&layout->to, layout->desc, mm.engine, NULL));
    dnnl_primitive_desc_destroy(desc);
    matrix_free(plain);
}

void product_reorder(Direction direction, const float *w, int rows, int cols, void *packed) {
    Layout *layout = layout_of(direction, rows, cols);
    if (!layout->reorder) open_reorder(layout);
    set(layout->from, w), set(layout->to, packed);
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, layout->from}, {DNNL_ARG_TO, layout->to}};
    execute(layout->reorder, 2, arguments);
}

static void layout_close(Layout *layout) {
    dnnl_memory_destroy(layout->from), dnnl_memory_destroy(layout->to);
    dnnl_primitive_destroy(layout->reorder);
    matrix_free(layout->desc);
}

bool product_has_onednn(void) { return true; }

bool product_has_avx512(void) {
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
}

bool product_has_amx(void) {
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx;
}

// The calls fail once a primitive exists: then the limit has been set before.
void product_cap(Isa isa) {
    if (isa == ISA_PORTABLE) dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
    if (isa == ISA_AVX2) dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
}

void product_library(char text[64]) {
    const dnnl_version_t *version = dnnl_version();
    snprintf(text, 64, "oneDNN %d.%d.%d (instructions 0x%x)", version->major, version->minor, version->patch,
             (unsigned)dnnl_get_effective_cpu_isa());
}

void product_close(void) {
    for (int i = 0; i < mm.product_count; i++) entry_close(&mm.product[i]);
    for (int i = 0; i < mm.layout_count; i++) layout_close(&mm.layout[i]);
    dnnl_stream_destroy(mm.stream);
    dnnl_engine_destroy(mm.engine);
    memset(&mm, 0, sizeof mm);
}

static const char *runtime_name(unsigned runtime) {
    static const struct {
        unsigned runtime;
        const char *name;
    } rows[] = {
        {DNNL_RUNTIME_SEQ, "one thread"},           {DNNL_RUNTIME_OMP, "OpenMP"}, {DNNL_RUNTIME_TBB, "TBB"},
        {DNNL_RUNTIME_THREADPOOL, "a thread pool"}, {DNNL_RUNTIME_SYCL, "SYCL"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].runtime == runtime) return rows[i].name;
    return "an unknown runtime";
}

int product_library_check(char text[PRODUCT_LIBRARY]) {
    const dnnl_version_t *version = dnnl_version();
    const unsigned runtime = version->cpu_runtime;
    Dl_info file = {0};
    void *symbol = dlsym(RTLD_DEFAULT, "dnnl_version"); // NULL: oneDNN is part of the program
    const bool known = symbol && dladdr(symbol, &file) && file.dli_fname;
    snprintf(text, PRODUCT_LIBRARY, "oneDNN %d.%d.%d for %s, %s", version->major, version->minor, version->patch,
             runtime_name(runtime), known ? file.dli_fname : "in this program");
    if (version->major == DNNL_VERSION_MAJOR && (runtime == DNNL_RUNTIME_OMP || runtime == DNNL_RUNTIME_SEQ)) return 0;
    return fail(EX_LIMIT,
                "another oneDNN is loaded: %s; this program needs oneDNN %d for OpenMP: take its folder out of "
                "LD_LIBRARY_PATH (a sourced setvars.sh of oneAPI puts it there)",
                text, DNNL_VERSION_MAJOR);
}

int product_open(bool bf16, bool packed) {
    char library[PRODUCT_LIBRARY];
    if (product_library_check(library) < 0) return -1;
    if (mm.engine) product_close(); // its layouts and products are of the engine before
    omp_set_num_threads(1);         // for primitives
    mm.packed = packed;
    mm.type = bf16 ? dnnl_bf16 : dnnl_f32;
    DNN(dnnl_engine_create(&mm.engine, dnnl_cpu, 0));
    DNN(dnnl_stream_create(&mm.stream, mm.engine, dnnl_stream_default_flags));
    return 0;
}
