// Optimizers: AdamW with nanoGPT's groups (matrices decay, vectors do not).
#include "trainer/optim/optimizer.h"
#include "trainer/optim/offload.h"

static void adamw_prepare(StepScalars *numbers, const Config *config, double learning_rate, uint64_t update) {
    numbers->adamw = adamw_of(&(AdamWSettings){
        .learning_rate = learning_rate,
        .beta1 = config->beta1,
        .beta2 = config->beta2,
        .epsilon = 1e-8, // torch's, which nanoGPT leaves as it is
        .weight_decay = config->weight_decay,
        .max_norm = config->grad_clip,
        .step = update + 1,
        .seed = (uint64_t)config->seed,
    });
}

static void adamw_slice(const Network *network, const Slice *slice) {
    const StepScalars *numbers = network_at(network, network->plan->numbers);
    network->ops->adamw(slice->params, slice->state[0], slice->gradients, slice->state[1], slice->state[2],
                        slice->first, slice->count, network->model->decay_elements, &numbers->adamw, &numbers->norm,
                        &numbers->loss_scale);
}

static void adamw_update(Network *network) {
    const MemoryPlan *plan = network->plan;
    StepScalars *numbers = network_at(network, plan->numbers);
    network->ops->gradient_norm(&numbers->norm, network_at(network, plan->grads), network->model->elements,
                                &numbers->loss_scale);
    offload_update(network, adamw_slice);
    network_pack(network);
}

static const Optimizer optimizers[] = {
    {"adamw", 2, adamw_prepare, adamw_update},
};

const Optimizer *optimizer_find(const char *name) {
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        if (!strcmp(optimizers[i].name, name)) return &optimizers[i];
    return NULL;
}
