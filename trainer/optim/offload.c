// The slices of an update. A slice is fetched two before its turn, so that one is on its way in, one is computed with
// and one on its way out.
#include "trainer/optim/offload.h"

enum { AHEAD = BACKEND_SLOTS - 1 };

static size_t state_bytes(const Network *network, int part) { // of an element
    const Backend *ops = network->ops;
    return part ? ops->moment_bytes : ops->master_bytes ? sizeof(float) : ops->par_bytes;
}

static Slice slice_of(const Network *network, size_t first, size_t most) {
    const MemoryPlan *plan = network->plan;
    size_t left = network->model->elements - first;
    const size_t ranges[] = {plan->master, plan->moments[0], plan->moments[1]};
    Slice slice = {.first = first, .count = left < most ? left : most};
    slice.params = network_at(network, plan->params + first * network->ops->par_bytes);
    slice.gradients = network_at(network, plan->grads + first * network->ops->grad_bytes);
    for (int i = 0; i <= MOMENTS; i++)
        slice.state[i] = network_at(network, ranges[i] + first * state_bytes(network, i));
    return slice;
}

// Slice `index` with its offloaded state in a slot: to be fetched there, to be used, to be stored.
typedef enum { FETCH, USE, STORE } Move;
static Slice slice_in_slot(const Network *network, size_t index, Move move) {
    const Backend *ops = network->ops;
    const MemoryPlan *plan = network->plan;
    const int slot = (int)(index % BACKEND_SLOTS);
    Slice slice = slice_of(network, index * plan->slice, plan->slice);
    unsigned char *at = network_at(network, plan->slots + (size_t)slot * plan->slot_bytes);
    for (int i = ops->master_bytes ? 0 : 1; i <= MOMENTS; i++) {
        const size_t element = state_bytes(network, i);
        if (move == FETCH) ops->fetch(slot, at, slice.state[i], slice.count * element);
        if (move == STORE) ops->store(slot, slice.state[i], at, slice.count * element);
        slice.state[i] = at;
        at += plan->slice * element;
    }
    if (move == USE) ops->fetched(slot);
    return slice;
}

void offload_update(const Network *network, void (*update)(const Network *network, const Slice *slice)) {
    const MemoryPlan *plan = network->plan;
    if (!plan->slice) {
        const Slice whole = slice_of(network, 0, network->model->elements);
        update(network, &whole);
        return;
    }
    const size_t count = (network->model->elements + plan->slice - 1) / plan->slice;
    for (size_t i = 0; i < AHEAD && i < count; i++) slice_in_slot(network, i, FETCH);
    for (size_t i = 0; i < count; i++) {
        const Slice slice = slice_in_slot(network, i, USE);
        update(network, &slice);
        slice_in_slot(network, i, STORE);
        if (i + AHEAD < count) slice_in_slot(network, i + AHEAD, FETCH);
    }
    network->ops->stored();
}
