// Optimizers: AdamW with nanoGPT's groups (matrices decay, vectors do not).
#include "trainer/optim.h"

static void adamw_prepare(StepNumbers *numbers, const Config *config, double learning_rate, uint64_t update) {
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

static void adamw_update(Network *network) {
    const Backend *ops = network->ops;
    const Plan *plan = network->plan;
    const Model *model = network->model;
    StepNumbers *numbers = network_at(network, plan->numbers);
    const Grad *gradients = network_at(network, plan->grads);
    ops->gradient_norm(&numbers->norm, gradients, model->elements, &numbers->loss_scale);
    ops->adamw(network_at(network, plan->params), network_at(network, plan->master), gradients,
               network_at(network, plan->moments[0]), network_at(network, plan->moments[1]), 0, model->elements,
               model->decay_elements, &numbers->adamw, &numbers->norm, &numbers->loss_scale);
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
