// The memory plan: the offset of every buffer of a run in its one arena, computed from the configuration and the facts
// of the backend alone. The printed plan is allocated; nothing is allocated later.
#pragma once

#include "kernels/backend.h"
#include "trainer/config/config.h"
#include "trainer/plan/pass_layout.h"
#include "trainer/plan/shards.h"
#include "trainer/shape/optimizer.h"

enum { LOSS_CHUNK_ROWS = 1024 }; // of logits, if loss_chunk_rows is 0

// The scalars of a step that live on the device: its results (loss, norm) and its inputs.
typedef struct {
    double loss;          // sum over the step's tokens
    double textless_loss; // of an evaluation, the part of targets without a text
    float norm;           // of the gradients
    float loss_scale;
    float divisor;      // of the summed gradients: loss_scale, times the share of the targets that count
    float average_take; // share of the new parameters in their average
    Dropout dropout;    // of the micro-batch
    _Alignas(8) unsigned char optimizer[SCALAR_BYTES]; // from Optimizer.prepare
} StepScalars;

// Memory for gradients of which not all layers are in the arena at once. Gradients of the layers' matrices, which are
// bytes first .. end - 1 of all gradients, have slots in the arena; the others are kept there.
typedef struct {
    size_t first, end, layer_bytes; // layer_bytes 0: there is no such memory
    size_t kept, slots, bytes;      // bytes: of both, in one piece
    int slot_count;
} LayerGradients;

// The memory of an update: it aliases the activations of the passes, except `grads` without offload.
typedef struct {
    // offload = optimizer: the update streams slices of at most `slice` elements of the master parameters and the
    // states through BACKEND_SLOTS slots. slice 0: all state is in the arena
    size_t slice, slots, slot_bytes;
    size_t workspace; // of the optimizer
    size_t grads;     // all gradients
} UpdateLayout;

typedef struct {
    const Optimizer *optimizer;                    // NULL: a plan without training
    size_t params, master, grads, packed, scalars; // master = params if parameters are fp32
    unsigned shards; // 1: this process has all of the ranges; else its shards (shards.h) of master and states
    size_t states[OPTIMIZER_STATES]; // the optimizer's ranges
    size_t sums, losses;             // of the pieces of the norm; of the micro-batches of a step, by rank and round
    size_t scratch, scratch_bytes;   // the backend's
    size_t passes;                   // start of both passes: they are never live together
    PassLayout train, eval, sample;
    size_t bytes;      // of the arena
    size_t host_bytes; // in host memory: offsets from `bytes` on. The master parameters, if they are separate, and the
                       // states with offload = optimizer, the gradients with offload = gradients
    UpdateLayout update;
    LayerGradients layer_gradients; // offload = gradients
    // reduce_order = fixed: the gradients of micro-batches are added one after another. A process alone adds
    // `micro_gradients` to all gradients, after each layer. Each of several processes adds in `shard_sums`, for its
    // shards, the gradients that all have computed at a time.
    bool fixed_order;
    LayerGradients micro_gradients;
    size_t shard_sums;
    bool portable;     // reduce_order = fixed, where the backend can: the bits are those of any processor
    bool reduce_bf16;  // operands of sums over processes are rounded, and with fixed_order also of one process
    int rounds;        // of the micro-batches of a step: each process has one of a round, the last round may have fewer
    size_t copy_bytes; // of parameters and optimizer state in host memory, for saves beside training
    size_t staging;    // bytes in host memory for checkpoints: the largest transposed matrix
    int chunk_rows;
    bool dropout; // in training passes
    bool document_mask;
    bool answers;    // loss_tokens = answers
    float z_loss;    // in training passes
    size_t rotation; // with rope: cosines and sines of a head's angles, (T,D)
    PlanTable table;
} MemoryPlan;

// Whether an update has whole tensors before it, so that it can pack them.
static inline bool plan_updates_whole(const MemoryPlan *plan) { return !plan->update.slice && plan->shards == 1; }

// The losses that the ranks exchange: of each micro-batch, if they are added in a fixed order, else of each rank.
static inline size_t plan_losses(const MemoryPlan *plan, unsigned world) {
    return world * (plan->fixed_order ? (size_t)plan->rounds : 1);
}

static inline size_t layer_gradients_slot(const LayerGradients *gradients, int layer) {
    assert(gradients->slot_count);
    return gradients->slots + (size_t)(layer % gradients->slot_count) * gradients->layer_bytes;
}
static inline size_t layer_gradients_host(const MemoryPlan *plan, int layer) {
    return plan->grads + plan->layer_gradients.first + (size_t)layer * plan->layer_gradients.layer_bytes;
}

// Without an optimizer (NULL) the plan has parameters and the evaluation pass only. Sampling runs in the memory of that
// pass and, when sample_tokens is not 0, keeps keys and values after it; in a training run only if the memory of the
// training pass has room for them.
void memory_plan_init(MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                      const Optimizer *optimizer);

void memory_plan_print(const MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                       Buffer *out);
