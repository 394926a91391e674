// The memory plan: from the configuration and the backend's facts alone, where every buffer of a run lies in its one
// arena. What is printed is what is allocated; nothing is allocated later.
#pragma once

#include "kernels/backend.h"
#include "trainer/config/config.h"
#include "trainer/optim/optimizer.h"

// Buffers of a group have one lifetime (buffers.def).
typedef enum {
    GROUP_INPUT,
    GROUP_BLOCK,
    GROUP_GELU,
    GROUP_LAST,
    GROUP_BRANCH,
    GROUP_GRADIENT,
    GROUP_SHARED,
    GROUP_BATCH,
    BUFFER_GROUPS
} BufferGroup;

// The working memory of a forward (and backward) pass: the offset of each buffer, of layer 0 where there is one per
// layer, and the bytes from a layer to the next (0: the layers share one).
typedef struct {
    int rows; // B: sequences at a time
    bool backward;
    Recompute recompute;
#define BUFFER(group, type, name, elements) size_t name;
#include "trainer/plan/buffers.def"
#undef BUFFER
    size_t stride[BUFFER_GROUPS];
    size_t end;
} PassLayout;

enum { PLAN_ROWS = 16 };

// The scalars of a step that live on the device: its results (loss, norm) and its inputs.
typedef struct {
    double loss; // sum over the step's tokens
    float norm;  // of the gradients
    float loss_scale;
    _Alignas(8) unsigned char optimizer[SCALAR_BYTES]; // from Optimizer.prepare
} StepScalars;

typedef struct {
    const Optimizer *optimizer;                    // NULL: a plan without training
    size_t params, master, grads, packed, scalars; // master = params where parameters are fp32
    size_t states[OPTIMIZER_STATES];               // the optimizer's ranges
    size_t scratch, scratch_bytes;                 // the backend's
    size_t passes;                                 // start of both passes: they are never live together
    PassLayout train, eval;
    size_t bytes; // of the arena
    // offload = optimizer: offsets from `bytes` on are in host memory, host_bytes of it, with the master parameters (if
    // they are separate) and the optimizer's state. The update streams slices of at most `slice` elements through
    // BACKEND_SLOTS slots of the arena, which alias the activations. 0: all state is in the arena
    size_t host_bytes, slice, slots, slot_bytes;
    size_t staging; // bytes in host memory for checkpoints: the largest transposed matrix
    int chunk_rows;
    struct {
        const char *name;
        size_t bytes;
        bool overlaid;  // lies inside the others
    } table[PLAN_ROWS]; // in arena order; sums to bytes but for the overlaid
    int table_rows;
} MemoryPlan;

ModelShape shape_of(const Config *config);
// Without an optimizer (NULL) the plan has parameters and the evaluation pass only.
void memory_plan_init(MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                      const Optimizer *optimizer);

// What is left of this machine's memory, and no more than a container's limit. 0: not known.
uint64_t plan_host_memory(void);

// The largest arena: mem_limit, or what is left of this machine's memory, or the device's where it has its own, for
// those that allocate `here`. 0: not known.
uint64_t plan_limit(const Config *config, const Backend *backend, bool here);

void memory_plan_print(const MemoryPlan *plan, const Config *config, const Model *model, const Backend *backend,
                       Buffer *out);
