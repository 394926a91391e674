// The network: a model on a backend, in one arena. forward.c and backward.c walk through it.
#pragma once

#include "trainer/plan/memory_plan.h"

struct Network {
    const Backend *ops;
    const Model *model;
    const MemoryPlan *plan;
    unsigned char *arena, *host; // host: of an offloaded optimizer, pinned
    Weight *weights;             // those that are multiplied with: 4 a layer, then the head (the embedding)
    int weight_count;
    float *staging;       // host memory, plan->staging bytes
    StepScalars *scalars; // the host's copy of the plan's scalars, pinned
};

// Allocates the arena, which is zero. The backend, model and plan are borrowed. -1 (82, 83) when the machine refuses.
int network_open(Network *network, const Backend *backend, const Model *model, const MemoryPlan *plan);
void network_close(Network *network);              // accepts a zeroed struct
int network_init(Network *network, uint64_t seed); // initial weights, packed; optimizer state zero. -1 (71)
void network_reset_optimizer(Network *network);    // sets its state to zero
void network_pack(Network *network);               // after the parameters have changed

static inline void *network_at(const Network *network, size_t offset) {
    const MemoryPlan *plan = network->plan;
    return offset < plan->bytes ? network->arena + offset : network->host + (offset - plan->bytes);
}

// A parameter and its gradient; NULL when the model has no such tensor.
Par *network_param(const Network *network, ParamId id, int layer);
Grad *network_grad(const Network *network, ParamId id, int layer);
const Weight *network_weight(const Network *network, ParamId id, int layer);

// Copies elements of a tensor between host floats and a range of the plan: parameters, or a moment, or the master,
// which is fp32. Waits; an offloaded range is at rest after the step's download.
void network_read(const Network *network, size_t range, Dtype type, size_t first, size_t count, float *values);
void network_write(const Network *network, size_t range, Dtype type, size_t first, size_t count, const float *values);
static inline size_t dtype_bytes(Dtype type) { return type == DTYPE_FP32 ? sizeof(float) : sizeof(uint16_t); }
static inline Dtype par_type(const Backend *ops) { return ops->par_bytes == 4 ? DTYPE_FP32 : ops->act_type; }

// (B,T+1) ids as they came over the wire, to the pass's batch.
void network_tokens(const Network *network, const PassLayout *pass, const uint16_t *ids, int B, int T);

// Pointers to the buffers of a pass (buffers.def), those that each layer has to this layer's.
typedef struct {
#define BUFFER(group, type, name, elements) type *name;
#include "trainer/plan/buffers.def"
#undef BUFFER
} Buffers;
Buffers network_buffers(const Network *network, const PassLayout *pass, int layer);

// Runs B sequences of T tokens (at most those of the pass and the model's block) up to the last norm.
void network_forward(const Network *network, const PassLayout *pass, int B, int T);

// A block up to its GELU; its input is in + branch (NULL: in).
void network_block_forward(const Network *network, const PassLayout *pass, int layer, const Res *in, const Act *branch,
                           int B, int T);

// The head, chunk by chunk: the losses of all B*T rows. With backward also the gradient of the last norm's output and
// of the head, both scaled by `scale` and by the loss_scale of the step's scalars; `add` false starts new gradients.
void network_losses(const Network *network, const PassLayout *pass, int B, int T, float scale, bool backward, bool add);

// From the gradient that network_losses left down to the embedding.
void network_backward(const Network *network, const PassLayout *pass, int B, int T, bool add);

// Logits of one row of the batch, in host floats: vocab of them.
void network_logits(const Network *network, const PassLayout *pass, int row, float *logits);
