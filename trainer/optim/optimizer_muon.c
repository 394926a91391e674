// Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024) for the matrices of the blocks,
// AdamW for embeddings and vectors. A matrix W (rows,cols) is updated by
//
//   W <- (1 - rate * weight_decay) W - rate * 0.2 sqrt(max(rows, cols)) O
//
// O is the momentum with its singular values replaced by about 1 (kernels/muon_scalars.h). The factor gives the update
// the root mean square that AdamW's has, so that a learning rate for AdamW fits (Liu et al., "Muon is Scalable for LLM
// Training", 2025, section 2.2). The queries, keys and values of c_attn are three matrices, as Jordan et al. recommend:
// together, the largest of the three would set the scale of all. So are gate and up of SwiGLU.
#include "common/sizes.h"
#include "kernels/muon_scalars.h"
#include "trainer/model/network.h"
#include <math.h>

enum { MATRICES = 1 << KIND_MATRIX | 1 << KIND_RESIDUAL, MOMENTUM = 2 }; // MOMENTUM: its range, after AdamW's

// The working memory for a matrix (rows,cols); n is the smaller of the two. Offsets.
typedef struct {
    size_t norm, sums;         // float, and the double sums of its pieces
    size_t direction;          // (rows,cols) Grad
    size_t matrix, transposed; // (rows,cols) and (cols,rows) Act
    size_t gram, square;       // (n,n) Grad
    size_t small;              // (n,n) Act: gram, then the polynomial of it
    size_t end;
} Workspace;

static size_t take(size_t *end, size_t bytes) { return size_reserve(end, bytes, 256); }

static Workspace workspace_of(int rows, int cols, const Backend *backend) {
    const size_t n = (size_t)(rows < cols ? rows : cols), elements = (size_t)rows * (size_t)cols;
    Workspace w = {0};
    w.norm = take(&w.end, sizeof(float));
    w.sums = take(&w.end, norm_pieces(elements) * sizeof(double));
    w.direction = take(&w.end, elements * backend->grad_bytes);
    w.matrix = take(&w.end, elements * backend->act_bytes);
    w.transposed = take(&w.end, elements * backend->act_bytes);
    w.gram = take(&w.end, n * n * backend->grad_bytes);
    w.square = take(&w.end, n * n * backend->grad_bytes);
    w.small = take(&w.end, n * n * backend->act_bytes);
    return w;
}

static size_t muon_workspace_bytes(const Model *model, const Backend *backend) {
    size_t most = 0;
    for (int i = 0; i < model->count; i++) {
        const Tensor *tensor = &model->tensors[i];
        if (!(MATRICES >> tensor->kind & 1)) continue;
        int rows[TENSOR_PARTS];
        for (int part = tensor_parts(tensor, &model->shape, rows); part--;) {
            const size_t bytes = workspace_of(rows[part], tensor->cols, backend).end;
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

static void muon_prepare(void *scalars, const Config *config, double learning_rate, uint64_t update) {
    const double times = config->muon_learning_rate > 0 ? config->muon_learning_rate / config->learning_rate : 1;
    const double rate = learning_rate * times;
    Muon *muon = scalars;
    *muon = (Muon){.rate = (float)rate,
                   .shrink = (float)(1 - rate * config->weight_decay),
                   .momentum = (float)config->muon_momentum,
                   .one = 1};
    optimizer_of(OPTIMIZER_ADAMW)->prepare(&muon->adamw, config, learning_rate, update);
}

// direction (rows,cols) becomes about U V^T of direction = U S V^T, with singular values of 0.68 to 1.14. Its products
// are ordered so that their sums run over the longer side and gram has the shorter one.
static void orthogonalize(const Backend *ops, int rows, int cols, Grad *direction, const float *norm, unsigned char *at,
                          const Workspace *w) {
    const bool wide = cols > rows;
    const int n = wide ? rows : cols, m = wide ? cols : rows;
    Act *matrix = (Act *)(at + w->matrix), *transposed = (Act *)(at + w->transposed), *small = (Act *)(at + w->small);
    Grad *gram = (Grad *)(at + w->gram), *square = (Grad *)(at + w->square);
    const Act *tall = wide ? transposed : matrix;
    ops->muon_operand(matrix, transposed, direction, rows, cols, norm);
    for (int step = 0; step < MUON_STEPS; step++) {
        if (step) ops->muon_operand(matrix, transposed, direction, rows, cols, NULL);
        ops->matmul_backward_weight(gram, tall, tall, m, n, n, false); // (n,n)
        ops->muon_operand(small, NULL, gram, n, n, NULL);              // (n,n)
        ops->matmul_backward_weight(square, small, small, n, n, n, false);
        ops->muon_polynomial(small, gram, square, n);
        if (wide)
            ops->matmul_backward_weight(direction, small, matrix, n, n, m, false); // (rows,cols) = small * matrix
        else
            ops->matmul_backward_weight(direction, transposed, small, n, m, n, false); // (rows,cols) = matrix * small
    }
}

// The slice's elements from `start` on, which are a matrix of their own.
static void update_matrix(const Network *network, const Slice *slice, size_t start, int rows, int cols) {
    const Backend *ops = network->ops;
    const Muon *muon = slice->scalars;
    const Workspace w = workspace_of(rows, cols, ops);
    unsigned char *at = network_at(network, network->plan->update.workspace);
    const size_t count = (size_t)rows * (size_t)cols;
    Grad *direction = (Grad *)(at + w.direction);
    float *norm = (float *)(void *)(at + w.norm);
    double *sums = (double *)(void *)(at + w.sums);
    const float factor = 0.2f * sqrtf((float)(rows > cols ? rows : cols));
    Update of = slice->update;
    of.first += start, of.count = count;
    of.params = (void *)((unsigned char *)(void *)of.params + start * ops->par_bytes);
    of.master = (void *)((unsigned char *)of.master + start * (ops->master_bytes ? ops->master_bytes : ops->par_bytes));
    of.gradients = (const void *)((const unsigned char *)(const void *)of.gradients + start * ops->grad_bytes);

    ops->muon_momentum(direction, (float *)slice->state[MOMENTUM] + start, &of, muon);
    ops->square_sums(sums, direction, count);
    ops->gradient_norm(norm, sums, norm_pieces(count), &muon->one);
    orthogonalize(ops, rows, cols, direction, norm, at, &w);
    of.gradients = direction;
    ops->muon_update(&of, factor, muon);
}

static void muon_update(const Network *network, const Slice *slice) {
    const Tensor *tensor = slice->tensor;
    if (!tensor) {
        optimizer_of(OPTIMIZER_ADAMW)->update(network, slice);
        return;
    }
    int rows[TENSOR_PARTS];
    const int count = tensor_parts(tensor, &network->model->shape, rows);
    size_t start = 0;
    for (int i = 0; i < count; i++) {
        update_matrix(network, slice, start, rows[i], tensor->cols);
        start += (size_t)rows[i] * (size_t)tensor->cols;
    }
    if (slice->update.weight) network->ops->pack(slice->update.weight);
}

extern const Optimizer optimizer_muon;
const Optimizer optimizer_muon = {
    .name = "muon",
    .states = {{"adamw.m", KINDS_ALL & ~MATRICES, true},
               {"adamw.v", KINDS_ALL & ~MATRICES, true},
               {"muon.momentum", MATRICES, false}},
    .state_count = 3,
    .whole_kinds = MATRICES,
    .scalar_bytes = sizeof(Muon),
    .workspace_bytes = muon_workspace_bytes,
    .prepare = muon_prepare,
    .update = muon_update,
};
