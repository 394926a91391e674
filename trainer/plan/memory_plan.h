// The memory plan: the offset of every buffer of a run in its one arena, computed from the configuration and the facts
// of the backend alone. The plan that is printed is the one that is allocated; nothing is allocated later.
#pragma once

#include "kernels/backend.h"
#include "trainer/config/config.h"
#include "trainer/plan/shards.h"
#include "trainer/shape/optimizer.h"

// Buffers of a group have one lifetime (buffers.def).
typedef enum {
    GROUP_INPUT,
    GROUP_NORM,
    GROUP_MLP,
    GROUP_QKV,
    GROUP_ATTENTION,
    GROUP_GELU,
    GROUP_LAST,
    GROUP_BRANCH,
    GROUP_GRADIENT,
    GROUP_SHARED,
    GROUP_BATCH,
    BUFFER_GROUPS,
    LAYER_GROUPS = GROUP_GELU + 1 // those of the layers
} BufferGroup;

// The working memory of a forward (and backward) pass: the offset of each buffer, of its first instance where there are
// several, and the bytes from an instance to the next.
typedef struct {
    int rows, block; // B sequences of T tokens at a time
    bool backward;
    Recompute recompute; // of the layers from `recompute_from` on; those before it have the level before
    int recompute_from;
    int kept[LAYER_GROUPS]; // layers that keep a group, the first ones
#define BUFFER(group, type, name, elements) size_t name;
#include "trainer/plan/buffers.def"
#undef BUFFER
    size_t stride[BUFFER_GROUPS];
    size_t host_inputs; // offload = residuals: the inputs of all but the last BACKEND_SLOTS layers; 0: in the arena
    size_t cache, cache_stride; // sampling: qkv of a block of tokens for each layer, cache_stride bytes each (0: none)
    size_t end;
} PassLayout;

// From the offset of a buffer to the instance that a layer uses.
static inline size_t pass_instance(const PassLayout *pass, BufferGroup group, int layer) {
    if (group == GROUP_INPUT && pass->host_inputs) return (size_t)(layer % BACKEND_SLOTS) * pass->stride[group];
    const int kept = group < LAYER_GROUPS ? pass->kept[group] : 0;
    return (size_t)(layer < kept ? layer : kept) * pass->stride[group];
}

static inline Recompute pass_recompute(const PassLayout *pass, int layer) {
    return layer < pass->recompute_from ? pass->recompute - 1 : pass->recompute;
}

enum {
    PLAN_ROWS = 28,
    LOSS_CHUNK_ROWS = 1024, // of logits, where loss_chunk_rows is 0
};

// The scalars of a step that live on the device: its results (loss, norm) and its inputs.
typedef struct {
    double loss; // sum over the step's tokens
    float norm;  // of the gradients
    float loss_scale;
    Dropout dropout;                                   // of the micro-batch
    _Alignas(8) unsigned char optimizer[SCALAR_BYTES]; // from Optimizer.prepare
} StepScalars;

// offload = gradients. The gradients of the layers' matrices, which are bytes first .. end - 1 of all gradients, have
// slots in the arena; the others are kept there.
typedef struct {
    size_t first, end, layer_bytes; // layer_bytes 0: not offloaded
    size_t kept, slots, bytes;      // bytes: of both, in one piece
} LayerGradients;

typedef struct {
    const Optimizer *optimizer;                    // NULL: a plan without training
    size_t params, master, grads, packed, scalars; // master = params where parameters are fp32
    unsigned shards; // 1: this process has all of the ranges; else its shards (shards.h) of master and states
    size_t states[OPTIMIZER_STATES]; // the optimizer's ranges
    size_t sums, losses;             // of the pieces of the norm; of the ranks
    size_t scratch, scratch_bytes;   // the backend's
    size_t passes;                   // start of both passes: they are never live together
    PassLayout train, eval, sample;
    size_t bytes; // of the arena
    // Offsets from `bytes` on are in host memory, host_bytes of it. offload = optimizer: the master parameters (if they
    // are separate) and the optimizer's state; the update streams slices of at most `slice` elements through
    // BACKEND_SLOTS slots of the arena, which alias the activations. slice 0: all state is in the arena
    size_t host_bytes, slice, slots, slot_bytes;
    size_t workspace; // of the optimizer, behind the slots: aliases the activations too
    LayerGradients layer_gradients;
    size_t update_grads; // `grads`, or with offload = gradients their place in the arena during the update
    size_t copy_bytes;   // of parameters and optimizer state in host memory, for saves beside training
    size_t staging;      // bytes in host memory for checkpoints: the largest transposed matrix
    int chunk_rows;
    bool dropout; // in training passes
    bool document_mask;
    float z_loss;    // in training passes
    size_t rotation; // with rope: cosines and sines of a head's angles, (T,D)
    struct {
        const char *name;
        size_t bytes;
        bool overlaid; // inside the memory of other rows, or in host memory
        bool on_host;
    } table[PLAN_ROWS]; // in arena order; those not overlaid sum to `bytes`
    int table_rows;
} MemoryPlan;

// Whether an update has whole tensors before it, so that it can pack them.
static inline bool plan_updates_whole(const MemoryPlan *plan) { return !plan->slice && plan->shards == 1; }

static inline size_t layer_gradients_slot(const LayerGradients *gradients, int layer) {
    return gradients->slots + (size_t)(layer % BACKEND_SLOTS) * gradients->layer_bytes;
}
static inline size_t layer_gradients_host(const MemoryPlan *plan, int layer) {
    return plan->grads + plan->layer_gradients.first + (size_t)layer * plan->layer_gradients.layer_bytes;
}

// Without an optimizer (NULL) the plan has parameters and the evaluation pass only. Sampling runs in the memory of that
// pass and, when sample_tokens is not 0, keeps keys and values behind it; beside training only where the memory of the
// training pass has room for them.
void memory_plan_init(MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                      const Optimizer *optimizer);

// Free memory of this machine, at most the limit of the container. 0: not known.
uint64_t plan_host_memory(void);

// The largest arena: mem_limit or, if the arena is allocated on this machine (`here`), the free memory of the device,
// whichever is smaller. 0: not known.
uint64_t plan_limit(const Config *config, const Backend *backend, bool here);

void memory_plan_print(const MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                       Buffer *out);
