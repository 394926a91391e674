// The slices of an update. A slice is fetched two before its turn, so that one slice is on its way in, one is being
// updated and one is on its way out.
#include "trainer/optim/offload.h"

enum { AHEAD = BACKEND_SLOTS - 1 };

// The start of the next slice.
typedef struct {
    size_t index; // of the slice
    int tensor;
    size_t first; // element of the flat range
    int bucket;   // with shards
    size_t local; // elements that this rank has of the buckets before
    size_t done;  // elements of its range of this bucket
} SliceCursor;

static size_t tensor_end(const Model *model, int tensor) { // the gap after it included
    return tensor + 1 < model->count ? model->tensors[tensor + 1].offset : model->elements;
}

static bool is_whole(const Optimizer *optimizer, const Tensor *tensor) {
    return optimizer->whole_kinds >> tensor->kind & 1;
}

// The packed weight that a tensor is, if the update packs it; else NULL.
static const Weight *weight_of(const Network *network, const Tensor *tensor) {
    const void *param = network_at(network, network->plan->params + tensor->offset * network->ops->par_bytes);
    for (int i = 0; i < network->weight_count && plan_updates_whole(network->plan); i++)
        if (network->weights[i].param == param && network->weights[i].packed) return &network->weights[i];
    return NULL;
}

static bool is_alone(const Network *network, const Tensor *tensor) {
    return is_whole(network->plan->optimizer, tensor) || weight_of(network, tensor);
}

// Tensors with the same state may share a slice, unless one of them must be alone in its slice.
static bool may_share(const Network *network, const Tensor *a, const Tensor *b) {
    const Optimizer *optimizer = network->plan->optimizer;
    if (is_alone(network, a) || is_alone(network, b)) return false;
    for (int i = 0; i < optimizer->state_count; i++)
        if (optimizer_has(&optimizer->states[i], a) != optimizer_has(&optimizer->states[i], b)) return false;
    return true;
}

// The slice from element `first` of the flat range on, which is element `local` of the master parameters.
static Slice slice_at(const Network *network, size_t first, size_t local) {
    const MemoryPlan *plan = network->plan;
    const Backend *ops = network->ops;
    const StepScalars *scalars = network_at(network, plan->scalars);
    void *params = network_at(network, plan->params + first * ops->par_bytes);
    const Update update = {
        .first = first,
        .decay_count = network->model->decay_elements,
        .params = params,
        .master = ops->master_bytes ? network_at(network, plan->master + local * sizeof(float)) : params,
        .gradients = network_at(network, plan->update.grads + first * ops->grad_bytes),
        .norm = &scalars->norm,
        .divisor = &scalars->divisor,
    };
    return (Slice){.update = update, .scalars = scalars->optimizer};
}

static void *state_at(const Network *network, int state, size_t element) {
    const MemoryPlan *plan = network->plan;
    const size_t bytes = optimizer_element_bytes(&plan->optimizer->states[state], network->ops);
    return network_at(network, plan->states[state] + element * bytes);
}

// The next slice of at most `most` elements of this rank's shards.
static bool next_of_shards(const Network *network, SliceCursor *cursor, size_t most, Slice *slice) {
    const MemoryPlan *plan = network->plan;
    for (; cursor->bucket < shard_buckets(network->model, plan->shards); cursor->bucket++, cursor->done = 0) {
        const GradientBucket bucket = shard_bucket(network->model, plan->shards, cursor->bucket);
        const OwnedRange own = shard_range(&bucket, network->collective->rank);
        const size_t left = own.count - cursor->done, local = cursor->local + cursor->done;
        if (!left) {
            cursor->local += bucket.share;
            continue;
        }
        *slice = slice_at(network, own.first + cursor->done, local);
        for (int i = 0; i < plan->optimizer->state_count; i++) slice->state[i] = state_at(network, i, local);
        slice->update.count = left < most ? left : most;
        cursor->done += slice->update.count, cursor->index++;
        return true;
    }
    return false;
}

// The next slice of at most `most` elements, its state in place. false: no slice is left.
static bool next_slice(const Network *network, SliceCursor *cursor, size_t most, Slice *slice) {
    const Model *model = network->model;
    const MemoryPlan *plan = network->plan;
    const Optimizer *optimizer = plan->optimizer;
    if (plan->shards > 1) return next_of_shards(network, cursor, most, slice);
    if (cursor->tensor == model->count) return false;

    const Tensor *tensor = &model->tensors[cursor->tensor];
    const size_t first = cursor->first;
    *slice = slice_at(network, first, first);
    slice->tensor = is_whole(optimizer, tensor) ? tensor : NULL;
    slice->update.weight = weight_of(network, tensor);
    for (int i = 0; i < optimizer->state_count; i++) {
        const StateRange *state = &optimizer->states[i];
        if (optimizer_has(state, tensor))
            slice->state[i] = state_at(network, i, optimizer_offset(state, model, tensor) + first - tensor->offset);
    }
    int last = cursor->tensor;
    size_t end = tensor_end(model, last);
    while (end - first < most && last + 1 < model->count && may_share(network, tensor, &model->tensors[last + 1]))
        end = tensor_end(model, ++last);
    if (end - first > most) end = first + most;
    slice->update.count = slice->tensor || slice->update.weight ? tensor_elements(tensor) : end - first;
    while (cursor->tensor < model->count && tensor_end(model, cursor->tensor) <= end) cursor->tensor++;
    cursor->first = end, cursor->index++;
    return true;
}

typedef enum { FETCH, USE, STORE } Move;

// Copies the slice's offloaded state to or from its slot; with USE and after it, the slice points to the slot.
static void move_slice(const Network *network, size_t index, Slice *slice, Move move) {
    const Backend *ops = network->ops;
    const MemoryPlan *plan = network->plan;
    const int slot = (int)(index % BACKEND_SLOTS);
    unsigned char *at = network_at(network, plan->update.slots + (size_t)slot * plan->update.slot_bytes);
    Slice in_slot = *slice;
    for (int i = ops->master_bytes ? -1 : 0; i < plan->optimizer->state_count; i++) { // -1: the master parameters
        void *host = i < 0 ? slice->update.master : slice->state[i];
        const size_t element = i < 0 ? sizeof(float) : optimizer_element_bytes(&plan->optimizer->states[i], ops);
        if (!host) continue;
        if (move == FETCH) ops->copy_in_async(slot, at, host, slice->update.count * element);
        if (move == STORE) ops->copy_out_async(slot, host, at, slice->update.count * element);
        if (i < 0)
            in_slot.update.master = (float *)(void *)at;
        else
            in_slot.state[i] = at;
        at += plan->update.slice * element;
    }
    if (move != USE) return;
    ops->copy_in_wait(slot);
    *slice = in_slot;
}

void offload_slices(const Network *network, void (*use)(const Network *network, const Slice *slice)) {
    const MemoryPlan *plan = network->plan;
    const bool offloaded = plan->update.slice;
    const size_t most = offloaded ? plan->update.slice : SIZE_MAX;
    SliceCursor ahead = {0}, cursor = {0};
    Slice slice;
    for (int i = 0; offloaded && i < AHEAD; i++)
        if (next_slice(network, &ahead, most, &slice)) move_slice(network, ahead.index - 1, &slice, FETCH);
    while (next_slice(network, &cursor, most, &slice)) {
        Slice used = slice;
        if (offloaded) move_slice(network, cursor.index - 1, &used, USE);
        use(network, &used);
        if (!offloaded) continue;
        move_slice(network, cursor.index - 1, &slice, STORE);
        if (next_slice(network, &ahead, most, &slice)) move_slice(network, ahead.index - 1, &slice, FETCH);
    }
    if (offloaded) network->ops->copy_out_wait();
}
