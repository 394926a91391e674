// Descriptors of matrices and products, in which oneDNN 2 (Debian 12, Ubuntu 22.04) and 3 (Debian 13, Ubuntu 24.04,
// Fedora) differ: in 2 they are structs of the caller, in 3 objects of the library.
#pragma once

#include "common/bytes.h"
#include "common/err.h"
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>

#define DNN(call)                                                                                                      \
    do {                                                                                                               \
        dnnl_status_t status_ = call;                                                                                  \
        if (status_ != dnnl_success)                                                                                   \
            die(status_ == dnnl_out_of_memory ? EX_MEMORY : EX_BUG, "oneDNN returned %d from %s", (int)status_,        \
                #call);                                                                                                \
    } while (0)

// The layout of a matrix in memory whose blocks follow one another.
typedef struct {
    int count; // of the block's sizes
    const dnnl_dim_t *sizes, *dimensions;
    const dnnl_dim_t *strides;        // between blocks, in elements
    const dnnl_dim_t *shape, *padded; // of the matrix
} Blocking;

#if DNNL_VERSION_MAJOR == 2
typedef dnnl_memory_desc_t *Matrix;           // owned
typedef const dnnl_memory_desc_t *MatrixView; // borrowed

static inline Matrix matrix_copy(MatrixView view) {
    Matrix copy = allocate_zeroed(1, sizeof *copy);
    return *copy = *view, copy;
}
static inline void matrix_free(Matrix matrix) { free(matrix); }

static inline Matrix matrix_with_strides(const dnnl_dims_t shape, dnnl_data_type_t type, const dnnl_dims_t strides) {
    dnnl_memory_desc_t desc;
    DNN(dnnl_memory_desc_init_by_strides(&desc, 2, shape, type, strides));
    return matrix_copy(&desc);
}
static inline Matrix matrix_of_any_layout(const dnnl_dims_t shape, dnnl_data_type_t type) {
    dnnl_memory_desc_t desc;
    DNN(dnnl_memory_desc_init_by_tag(&desc, 2, shape, type, dnnl_format_tag_any));
    return matrix_copy(&desc);
}

static inline bool matrix_blocking(MatrixView view, Blocking *blocking) {
    const dnnl_blocking_desc_t *b = &view->format_desc.blocking;
    *blocking = (Blocking){b->inner_nblks, b->inner_blks, b->inner_idxs, b->strides, view->dims, view->padded_dims};
    return view->format_kind == dnnl_blocked;
}

static inline dnnl_status_t product_create_desc(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, MatrixView a,
                                                MatrixView b, MatrixView bias, MatrixView c,
                                                const_dnnl_primitive_attr_t attributes) {
    dnnl_matmul_desc_t matmul;
    DNN(dnnl_matmul_desc_init(&matmul, a, b, bias, c));
    return dnnl_primitive_desc_create(desc, &matmul, attributes, engine, NULL);
}
static inline dnnl_status_t post_ops_append_add(dnnl_post_ops_t post) { return dnnl_post_ops_append_sum(post, 1); }

#else
typedef dnnl_memory_desc_t Matrix;
typedef const_dnnl_memory_desc_t MatrixView;

static inline Matrix matrix_copy(MatrixView view) {
    Matrix copy;
    DNN(dnnl_memory_desc_clone(&copy, view));
    return copy;
}
static inline void matrix_free(Matrix matrix) { dnnl_memory_desc_destroy(matrix); }

static inline Matrix matrix_with_strides(const dnnl_dims_t shape, dnnl_data_type_t type, const dnnl_dims_t strides) {
    Matrix matrix;
    DNN(dnnl_memory_desc_create_with_strides(&matrix, 2, shape, type, strides));
    return matrix;
}
static inline Matrix matrix_of_any_layout(const dnnl_dims_t shape, dnnl_data_type_t type) {
    Matrix matrix;
    DNN(dnnl_memory_desc_create_with_tag(&matrix, 2, shape, type, dnnl_format_tag_any));
    return matrix;
}

static inline const dnnl_dim_t *matrix_dims(MatrixView view, dnnl_query_t query) {
    const dnnl_dims_t *dims;
    DNN(dnnl_memory_desc_query(view, query, &dims));
    return *dims;
}
static inline bool matrix_blocking(MatrixView view, Blocking *blocking) {
    dnnl_format_kind_t kind;
    DNN(dnnl_memory_desc_query(view, dnnl_query_format_kind, &kind));
    if (kind != dnnl_blocked) return false;
    DNN(dnnl_memory_desc_query(view, dnnl_query_inner_nblks_s32, &blocking->count));
    blocking->sizes = matrix_dims(view, dnnl_query_inner_blks);
    blocking->dimensions = matrix_dims(view, dnnl_query_inner_idxs);
    blocking->strides = matrix_dims(view, dnnl_query_strides);
    blocking->shape = matrix_dims(view, dnnl_query_dims), blocking->padded = matrix_dims(view, dnnl_query_padded_dims);
    return true;
}

static inline dnnl_status_t product_create_desc(dnnl_primitive_desc_t *desc, dnnl_engine_t engine, MatrixView a,
                                                MatrixView b, MatrixView bias, MatrixView c,
                                                const_dnnl_primitive_attr_t attributes) {
    return dnnl_matmul_primitive_desc_create(desc, engine, a, b, bias, c, attributes);
}
static inline dnnl_status_t post_ops_append_add(dnnl_post_ops_t post) {
    return dnnl_post_ops_append_sum(post, 1, 0, dnnl_data_type_undef);
}
#endif
