// Slots of the arena for what layers have in host memory. Both kinds use the slots of the same number: copies in are
// ordered after the copies out of their slot.
#include "trainer/model/layer_offload.h"

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
        add ? gradients->layer_bytes : 1; // what the first micro-batch overwrites only waits for its slot
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

void layer_offload_store_kept(const Network *network) {
    const MemoryPlan *plan = network->plan;
    const LayerGradients *gradients = &plan->layer_gradients;
    const size_t before = gradients->first, after = gradients->end;
    const size_t all = network->model->elements * network->ops->grad_bytes;
    if (!gradients->layer_bytes) return;
    unsigned char *host = network_at(network, plan->grads), *kept = network_at(network, gradients->kept);
    network->ops->copy_out_async(0, host, kept, before);
    network->ops->copy_out_async(0, host + after, kept + before, all - after);
    network->ops->copy_out_wait();
}

void layer_offload_collect_gradients(const Network *network) {
    const MemoryPlan *plan = network->plan;
    if (!plan->layer_gradients.layer_bytes) return;
    layer_offload_store_kept(network); // where they are is memory of the update
    network->ops->copy_in_async(0, network_at(network, plan->update.grads), network_at(network, plan->grads),
                                network->model->elements * network->ops->grad_bytes);
    network->ops->copy_in_wait(0);
}
