// Slots of the arena for the buffers that layers have in host memory. Both kinds use the slots of the same number:
// copies in are ordered after the copies out of their slot.
#include "trainer/model/layer_offload.h"
#include <assert.h>

enum { AHEAD = BACKEND_SLOTS - 1 };

static void *host_input(const Network *network, const PassLayout *pass, int layer) {
    return network_at(network, pass->host_inputs + (size_t)layer * pass->stride[GROUP_INPUT]);
}

static bool is_stored(const Network *network, const PassLayout *pass, int layer) {
    return pass->host_inputs && layer < network->model->shape.layers - BACKEND_SLOTS;
}

// Waiting here for the layer before, not in the next block for this one, leaves the copy a whole block of time.
void layer_offload_store_input(const Network *network, const PassLayout *pass, int layer) {
    if (!pass->host_inputs) return;
    network->ops->copy_out_wait();
    if (!is_stored(network, pass, layer)) return;
    const Buffers x = network_buffers(network, pass, layer);
    network->ops->copy_out_async(layer % BACKEND_SLOTS, host_input(network, pass, layer), x.res1,
                                 pass->stride[GROUP_INPUT]);
}

void layer_offload_await_input(const Network *network, const PassLayout *pass, int layer) {
    if (is_stored(network, pass, layer)) network->ops->copy_in_wait(layer % BACKEND_SLOTS);
}

void layer_offload_fetch_input(const Network *network, const PassLayout *pass, int layer) {
    const int next = layer - BACKEND_SLOTS; // has the same slot
    if (!pass->host_inputs || next < 0) return;
    network->ops->copy_in_async(layer % BACKEND_SLOTS, network_buffers(network, pass, layer).res1,
                                host_input(network, pass, next), pass->stride[GROUP_INPUT]);
}

static void fetch_gradients(const Network *network, int layer, bool add) {
    const LayerGradients *gradients = &network->plan->layer_gradients;
    if (layer < 0) return;
    const size_t bytes =
        add ? gradients->layer_bytes : 1; // the first micro-batch overwrites them: it only waits for the slot
    network->ops->copy_in_async(layer % BACKEND_SLOTS, network_at(network, layer_gradients_slot(gradients, layer)),
                                network_at(network, layer_gradients_host(network->plan, layer)), bytes);
}

void layer_offload_begin_gradients(const Network *network, bool add) {
    const LayerGradients *gradients = &network->plan->layer_gradients;
    if (!gradients->layer_bytes) return;
    if (!add)
        network->ops->zero(network_at(network, gradients->kept), gradients->bytes); // also the gaps between tensors
    for (int i = 1; i <= AHEAD; i++) fetch_gradients(network, network->model->shape.layers - i, add);
}

void layer_offload_await_gradients(const Network *network, int layer) {
    if (network->plan->layer_gradients.layer_bytes) network->ops->copy_in_wait(layer % BACKEND_SLOTS);
}

void layer_offload_store_gradients(const Network *network, int layer, bool add) {
    const LayerGradients *gradients = &network->plan->layer_gradients;
    if (!gradients->layer_bytes) return;
    network->ops->copy_out_async(layer % BACKEND_SLOTS, network_at(network, layer_gradients_host(network->plan, layer)),
                                 network_at(network, layer_gradients_slot(gradients, layer)), gradients->layer_bytes);
    fetch_gradients(network, layer - AHEAD, add);
}

static size_t gradient_bytes(const Network *network) { return network->model->elements * network->ops->grad_bytes; }

// Copies those after the layers' to host memory, and waits for all copies there.
static void store_last(const Network *network) {
    const LayerGradients *gradients = &network->plan->layer_gradients;
    network->ops->copy_out_async(0, network_at(network, network->plan->grads + gradients->end),
                                 network_at(network, gradients->kept + gradients->first),
                                 gradient_bytes(network) - gradients->end);
    network->ops->copy_out_wait();
}

void layer_offload_store_kept(const Network *network) {
    const LayerGradients *gradients = &network->plan->layer_gradients;
    if (!gradients->layer_bytes) return;
    network->ops->copy_out_async(0, network_at(network, network->plan->grads), network_at(network, gradients->kept),
                                 gradients->first);
    store_last(network);
}

// The gradients before the layers' are where the update has them.
void layer_offload_collect_gradients(const Network *network) {
    const MemoryPlan *plan = network->plan;
    const size_t first = plan->layer_gradients.first;
    if (!plan->layer_gradients.layer_bytes) return;
    assert(plan->update.grads == plan->layer_gradients.kept);
    store_last(network);
    network->ops->copy_in_async(0, network_at(network, plan->update.grads + first),
                                network_at(network, plan->grads + first), gradient_bytes(network) - first);
    network->ops->copy_in_wait(0);
}
