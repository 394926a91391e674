// Computing a micro-batch twice.
#include "trainer/optim/recheck.h"
#include "common/err.h"
#include "trainer/model/layer_offload.h"
#include "trainer/optim/step.h"
#include <xxhash.h>

enum { PART = 1 << 16 }; // gradients that are copied at once

// Compares all bits of the loss and the gradients.
static XXH128_hash_t result_hash(const Network *network) {
    static float part[PART];
    XXH3_state_t *state = XXH3_createState();
    double loss;
    const size_t elements = network->model->elements;
    XXH3_128bits_reset(state);
    layer_offload_store_kept(network);
    network->ops->download(&loss, network_loss(network), sizeof loss);
    XXH3_128bits_update(state, &loss, sizeof loss);
    for (size_t first = 0; first < elements; first += PART) {
        const size_t count = elements - first < PART ? elements - first : PART;
        network_read(network, network->plan->grads, DTYPE_FP32, first, count, part);
        XXH3_128bits_update(state, part, count * sizeof *part);
    }
    const XXH128_hash_t hash = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

int recheck_first_micro_batch(Network *network, float scale, uint64_t step) {
    const XXH128_hash_t first = result_hash(network);
    network->ops->zero(network_loss(network), sizeof(double)); // micro-batches add to it
    step_micro_batch(network, scale, 0);
    if (XXH128_isEqual(first, result_hash(network))) return 0;
    return fail(EX_GPU,
                "step %llu: the same micro-batch gave other bits the second time: the memory or the device is faulty; "
                "nothing of this step was applied",
                (unsigned long long)step);
}
