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

enum { MATRICES = 1 << KIND_MATRIX | 1 << KIND_RESIDUAL, MOMENTUM = 2 /* its range, after AdamW's */, SYMMETRIC = 4 };

// The working memory for a matrix (rows,cols); n is the smaller of the two. Offsets.
typedef struct {
    size_t norm, sums;                          // float, and the double sums of its pieces
    size_t direction;                           // (rows,cols) Grad
    size_t matrix, transposed;                  // (rows,cols) and (cols,rows) Act
    size_t whole[SYMMETRIC], beside[SYMMETRIC]; // (n,n) Grad and Act
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
    for (int i = 0; i < SYMMETRIC; i++) w.beside[i] = w.whole[i] = take(&w.end, n * n * backend->grad_bytes);
    for (int i = 0; i < SYMMETRIC && backend->act_bytes != backend->grad_bytes; i++)
        w.beside[i] = take(&w.end, n * n * backend->act_bytes);
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

// By orthogonalize: 20 n^3 of a square matrix, 47 n^3 of (n,4n).
static double muon_flops(const Model *model) {
    double flops = 0;
    for (int i = 0; i < model->count; i++) {
        const Tensor *tensor = &model->tensors[i];
        if (!(MATRICES >> tensor->kind & 1)) continue;
        int rows[TENSOR_PARTS];
        for (int part = tensor_parts(tensor, &model->shape, rows); part--;) {
            const double n = fmin(rows[part], tensor->cols), m = fmax(rows[part], tensor->cols);
            flops += 9 * m * n * n + 11 * n * n * n;
        }
    }
    return flops;
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

// out = a b of symmetric matrices that commute; with `polynomial` the polynomial of a = b.
static void multiply(const Backend *ops, const Symmetric *out, const Symmetric *a, const Symmetric *b, int n,
                     bool polynomial) {
    ops->matmul_symmetric(out->whole, a->beside, b->beside, n, n);
    ops->muon_symmetric(out, a, b, n, polynomial);
}

// direction X (rows,cols) becomes about U V^T of X = U S V^T, with singular values of 0.68 to 1.14. Of X or its
// transpose, whichever is wide, a step is X <- Z X with a polynomial Z of R = X X^T. Several steps are X <- Q X with
// the product Q of their polynomials, and between them R <- Z R Z. These matrices have the shorter side of X, are
// symmetric and commute, so half of each product is enough (Gram Newton-Schulz, Dao-AILab, 2026). Rounding errors of R
// and Q grow where singular values are small, so X is computed after 2 and 3 of the 5 steps, and R from it: then the
// error in bf16 is at most 0.75 of that of torch.optim.Muon for condition numbers of 2 to 1e8, and in fp32 about 1e-5
// (NumPy, n = 32 to 384). After 3 steps alone it is up to 1.8 of that, for 0.8 of the operations of (n,4n); a square
// matrix has 20 n^3 in any case.
static void orthogonalize(const Backend *ops, int rows, int cols, Grad *direction, const float *norm, unsigned char *at,
                          const Workspace *w) {
    const bool wide = cols > rows, apart = ops->act_bytes != ops->grad_bytes;
    const int n = wide ? rows : cols, m = wide ? cols : rows;
    Act *matrix = (Act *)(at + w->matrix), *transposed = (Act *)(at + w->transposed);
    const Act *tall = wide ? transposed : matrix;
    Symmetric all[SYMMETRIC];
    for (int i = 0; i < SYMMETRIC; i++) all[i] = (Symmetric){(Grad *)(at + w->whole[i]), (Act *)(at + w->beside[i])};
    const Symmetric *R = &all[0], *Z = &all[1], *Q = &all[2], *spare = &all[3];
    static const int parts[] = {2, 1, 2};
    for (size_t part = 0; part < sizeof parts / sizeof *parts; part++, norm = NULL) {
        ops->muon_operand(matrix, transposed, direction, rows, cols, norm);
        ops->matmul_symmetric(R->whole, tall, tall, m, n);
        ops->muon_symmetric(R, NULL, NULL, n, false);
        for (int step = 1; step <= parts[part]; step++) {
            const Symmetric *polynomial = step == 1 ? Q : Z;
            multiply(ops, polynomial, R, R, n, true);
            if (step > 1) {
                const Symmetric *old = Q;
                multiply(ops, spare, Q, Z, n, false);
                Q = spare, spare = old;
            }
            if (step == parts[part]) break;
            multiply(ops, spare, R, polynomial, n, false);
            multiply(ops, R, spare, polynomial, n, false);
        }
        if (apart) ops->muon_diagonal(direction, Q->whole, rows, cols, norm);
        if (wide)
            ops->matmul_backward_weight(direction, Q->beside, matrix, n, n, m, apart); // (rows,cols) += Q * matrix
        else
            ops->matmul_backward_weight(direction, transposed, Q->beside, n, m, n, apart); // += matrix * Q
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
    .flops = muon_flops,
    .prepare = muon_prepare,
    .update = muon_update,
};
