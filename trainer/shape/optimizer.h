// Optimizers: a table (trainer/config/optimizer_name.h). A row describes its state: its ranges, their
// parameters, and their names in a checkpoint. The memory plan, offload, checkpoints and resets read the row.
#pragma once

#include "kernels/backend.h"
#include "trainer/config/config.h"
#include "trainer/shape/params.h"

struct Network; // trainer/model/network.h

// A range of state: one element for each element of the parameters that have it, in arena order.
typedef struct {
    const char *name; // in checkpoints: tensor NAME.PARAMETER
    unsigned kinds;   // bit set of ParamKind: the parameters that have it
    bool moment;      // stored as `optimizer_state` says (Moment); else fp32
} StateRange;

enum { OPTIMIZER_STATES = 4, KINDS_ALL = (1 << PARAM_KINDS) - 1, SCALAR_BYTES = 128 };

// The part of the parameters that one update call works on.
typedef struct {
    const Tensor *tensor; // if its kind is in whole_kinds: the slice is this tensor; else NULL
    Update update;
    void *state[OPTIMIZER_STATES]; // NULL if these parameters do not have that state
    const void *scalars;           // the scalars of `prepare`, in backend memory
} Slice;

typedef struct {
    const char *name;
    StateRange states[OPTIMIZER_STATES];
    int state_count;
    bool averages;        // the last state is the average of the parameters (optimizer_for)
    unsigned whole_kinds; // a slice holds one whole tensor of these kinds; tensors of other kinds may be cut anywhere
    size_t scalar_bytes;  // at most SCALAR_BYTES
    size_t (*workspace_bytes)(const Model *model, const Backend *backend); // optional: at MemoryPlan.workspace
    double (*flops)(const Model *model); // optional: of the matrix products of an update
    // Computes the scalars of a step, which are then copied to the backend. `update`: updates applied before this one.
    void (*prepare)(void *scalars, const Config *config, double learning_rate, uint64_t update);
    // Updates the slice, unless the norm is not finite, and packs its weight. Operations only, the same at every step:
    // it may be recorded.
    void (*update)(const struct Network *network, const Slice *slice);
} Optimizer;

const Optimizer *optimizer_of(OptimizerName name);
// The row of a configuration: with `ema`, its last state is the average. Call it first before threads are started.
const Optimizer *optimizer_for(const Config *config);

static inline float *slice_average(const Optimizer *optimizer, const Slice *slice) {
    return slice->state[optimizer->state_count - 1];
}

// Elements of a range, and the first element of a tensor that has that state.
size_t optimizer_elements(const StateRange *state, const Model *model);
size_t optimizer_offset(const StateRange *state, const Model *model, const Tensor *tensor);

static inline bool optimizer_has(const StateRange *state, const Tensor *tensor) {
    return state->kinds >> tensor->kind & 1;
}
static inline Dtype optimizer_dtype(const StateRange *state, const Backend *backend) {
    return state->moment && backend->moment_bytes != sizeof(float) ? DTYPE_BF16 : DTYPE_FP32;
}
static inline size_t optimizer_element_bytes(const StateRange *state, const Backend *backend) {
    return state->moment ? backend->moment_bytes : sizeof(float);
}
