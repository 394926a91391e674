// The network: a model on a backend, in one arena. forward.c and backward.c are its two passes.
#pragma once

#include "kernels/collective.h"
#include "trainer/plan/memory_plan.h"

typedef struct Network {
    const Backend *ops;
    const Model *model;
    const MemoryPlan *plan;
    Collective *collective; // the processes that train together
    int64_t micro_batches;  // of a step, in all processes
    int micro;              // of the micro-batches of this process in a step, the number of the one that is computed
    bool apart; // its gradients are in plan->micro_gradients, and the backward pass adds them to those before
    unsigned char *arena, *host; // host: page-locked, for offloaded ranges
    Weight *weights;             // operands of matmuls: 4 per layer, then the head
    int weight_count;
    float *staging;                   // host memory, plan->staging bytes
    StepScalars *scalars;             // host copy of the step's scalars, page-locked
    int32_t *starts;                  // with document_mask: page-locked host memory for the starts of a batch
    uint8_t *counted;                 // with loss_tokens = answers: the same for the targets of a batch that count
    bool branches;                    // during network_forward_branches
    uint64_t targets;                 // number of targets of the last batch that count in the loss
    double own_targets, step_targets; // of a step: of this process since the ranks agreed, and of all ranks before
} Network;

// Allocates the arena. The backend, model and plan are borrowed and must outlive it. -1 (82, 83) when out of memory.
int network_open(Network *network, const Backend *backend, const Model *model, const MemoryPlan *plan);
void network_close(Network *network);              // accepts a zeroed struct
int network_init(Network *network, uint64_t seed); // initial weights, packed. -1 (71, 75)
void network_reset_optimizer(Network *network);    // sets its state to zero, as it is at first
void network_pack(Network *network);               // call after the parameters have changed

// The loss of the step on the device, summed over the micro-batches of this process; if several processes add in a
// fixed order, of the present micro-batch.
double *network_loss(const Network *network);

static inline void *network_at(const Network *network, size_t offset) {
    const MemoryPlan *plan = network->plan;
    return offset < plan->bytes ? network->arena + offset : network->host + (offset - plan->bytes);
}

// Row `row` of a matrix with `columns` elements of that size in a row.
static inline void *row_at(const void *rows, int row, int columns, size_t element_bytes) {
    return (void *)((uintptr_t)rows + (size_t)row * (size_t)columns * element_bytes);
}

// A parameter and its gradient; NULL when the model has no such tensor.
Par *network_param(const Network *network, ParamId id, int layer);
Grad *network_grad(const Network *network, ParamId id, int layer);
// Add the gradients of a layer's matrices, or all others, to the sums, if they are apart from them.
void network_add_layer_gradients(const Network *network, int layer);
void network_add_kept_gradients(const Network *network);
const Weight *network_weight(const Network *network, ParamId id,
                             int layer); // PARAM_HEAD: also if it is the embedding

// Copies elements of a tensor between host floats and a range of the plan: parameters, or a moment, or the master,
// which is fp32. Waits for the device. An offloaded range is up to date after the download that ends a step.
void network_read(const Network *network, size_t range, Dtype type, size_t first, size_t count, float *values);
// One thread at a time may call it, but in host memory any, without a pending exchange.
void network_write(const Network *network, size_t range, Dtype type, size_t first, size_t count, const float *values);
static inline Dtype par_type(const Backend *ops) { return ops->par_bytes == 4 ? DTYPE_FP32 : ops->act_type; }

// Uploads (B,T+1) token ids, of shape_id_bytes each as they came over the wire, to the batch of the pass, and sets
// network->targets. With
// document_mask a document begins at an end_of_text, which it sees, and ends before the next one. So every target is
// predicted from its own document, and the first token of a text from end_of_text alone.
void network_tokens(Network *network, const PassLayout *pass, const void *ids, int B, int T);
// B rows of one document of zeros, for a pass before the first batch: its memory may hold any bytes.
void network_zero_tokens(const Network *network, const PassLayout *pass, uint64_t B);

// Pointers to the buffers of a pass (buffers.def), and to the instances of this layer.
typedef struct {
#define BUFFER(group, type, name, elements) type *name;
#include "trainer/plan/buffers.def"
#undef BUFFER
} Buffers;
Buffers network_buffers(const Network *network, const PassLayout *pass, int layer);

// The dropout of a pass; NULL without dropout, as in evaluations.
const Dropout *network_dropout(const Network *network, const PassLayout *pass);

// The norms of a layer before attention and before the MLP, and the last one, of layer 0; of N rows.
typedef enum { NORM_ATTENTION, NORM_MLP, NORM_LAST } NormId;
Norm network_norm(const Network *network, const PassLayout *pass, NormId id, int layer, int N);

// The operation of a layer between its first product and attention, from position `from` on of B sequences of T tokens.
Heads network_heads(const Network *network, const PassLayout *pass, int layer, int B, int T, int from);

// The attention of a layer over B sequences of T tokens: with document_mask inside documents, and with the pass's
// dropout.
Attention network_attention(const Network *network, const PassLayout *pass, int layer, int B, int T, int from);

// Runs B sequences of T tokens (at most as many as the pass and the model's block have) up to the last norm.
void network_forward(const Network *network, const PassLayout *pass, int B, int T);

// The same for sequences in which texts branch: starts and positions (B,T) are those of Attention. T may be twice the
// pass's, if B * T is not more than it has.
void network_forward_branches(Network *network, const PassLayout *pass, const int32_t *starts, const int32_t *positions,
                              int B, int T);

// Its parts, in this order: the embedding, each layer, the last norm. They do not wait for parameters that are still
// received from other ranks (collective_await).
void network_forward_embedding(const Network *network, const PassLayout *pass, int B, int T);
void network_forward_layer(const Network *network, const PassLayout *pass, int layer, int B, int T);
void network_forward_norm(const Network *network, const PassLayout *pass, int B, int T);

// The same for rows `from` to T - 1 of one sequence of T tokens, into the first rows of the buffers. The cache of the
// pass has the keys and values of the rows before.
void network_forward_last(const Network *network, const PassLayout *pass, int T, int from);

// Computes again the activations of a block that `level` does not keep.
void network_block_again(const Network *network, const PassLayout *pass, int layer, Recompute level, int B, int T);

// The head, chunk by chunk: the losses of all B*T rows. With backward also the gradient of the last norm's output and
// of the head, both scaled by `scale` and by the loss_scale of the step's scalars; `add` false starts new gradients.
void network_losses(const Network *network, const PassLayout *pass, int B, int T, float scale, bool backward, bool add);

// The losses of `count` rows of the batch, at most a chunk of logits, to `losses`: rows[i] is b*T + t, and ids[i + 1],
// of shape_id_bytes, its target. The chunk keeps their logits. The batch's ids and a norm's branch are overwritten.
// `activations`: host memory for the rows. Whether loss_tokens = answers, they all count.
void network_score(const Network *network, const PassLayout *pass, const int *rows, const void *ids, int count,
                   void *activations, float *losses);

// The backward pass: from the gradient that network_losses has written down to the embedding. And its parts, in this
// order: the last norm, each layer from the last to the first, whose gradients are complete then, and the rest.
void network_backward(const Network *network, const PassLayout *pass, int B, int T, bool add);
void network_backward_norm(const Network *network, const PassLayout *pass, int B, int T, bool add);
void network_backward_layer(const Network *network, const PassLayout *pass, int layer, int B, int T, bool add);
void network_backward_embedding(const Network *network, const PassLayout *pass, int B, int T, bool add);

// The logits of one row of the batch, to `vocab` host floats.
void network_logits(const Network *network, const PassLayout *pass, int row, float *logits);
