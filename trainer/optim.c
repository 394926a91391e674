// Optimizers: AdamW with nanoGPT's groups (matrices decay, vectors do not).
#include "trainer/optim.h"

static void adamw_update(Network *network, const Config *config, double learning_rate, uint64_t update) {
    const Backend *ops = network->ops;
    const Plan *plan = network->plan;
    const Model *model = network->model;
    StepNumbers *numbers = network_at(network, plan->numbers);
    const AdamW adamw = {
        .learning_rate = (float)learning_rate,
        .beta1 = (float)config->beta1,
        .beta2 = (float)config->beta2,
        .epsilon = 1e-8f, // torch's, which nanoGPT leaves as it is
        .weight_decay = (float)config->weight_decay,
        .step = update + 1,
        .seed = (uint64_t)config->seed,
    };
    const Grad *gradients = network_at(network, plan->grads);
    ops->gradient_norm(&numbers->norm, gradients, model->elements);
    ops->adamw(network_at(network, plan->params), network_at(network, plan->master), gradients,
               network_at(network, plan->moments[0]), network_at(network, plan->moments[1]), model->elements,
               model->decay_elements, &adamw, &numbers->norm, (float)config->grad_clip);
    network_pack(network);
}

static const Optimizer optimizers[] = {
    {"adamw", 2, adamw_update},
};

const Optimizer *optimizer_find(const char *name) {
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        if (!strcmp(optimizers[i].name, name)) return &optimizers[i];
    return NULL;
}
