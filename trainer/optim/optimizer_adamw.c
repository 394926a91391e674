// AdamW with nanoGPT's groups: matrices and embeddings decay, vectors do not.
#include "kernels/adamw_scalars.h"
#include "trainer/model/network.h"

static void adamw_prepare(void *scalars, const Config *config, double learning_rate, uint64_t update) {
    *(AdamW *)scalars = adamw_init(&(AdamWSettings){
        .learning_rate = learning_rate,
        .beta1 = config->beta1,
        .beta2 = config->beta2,
        .epsilon = 1e-8, // PyTorch's default, which nanoGPT keeps
        .weight_decay = config->weight_decay,
        .max_norm = config->grad_clip,
        .step = update + 1,
        .seed = (uint64_t)config->seed,
    });
}

static void adamw_update(const Network *network, const Slice *slice) {
    network->ops->adamw(slice->state[0], slice->state[1], &slice->update, slice->scalars);
}

extern const Optimizer optimizer_adamw;
const Optimizer optimizer_adamw = {
    .name = "adamw",
    .states = {{"adamw.m", KINDS_ALL, true}, {"adamw.v", KINDS_ALL, true}},
    .state_count = 2,
    .scalar_bytes = sizeof(AdamW),
    .prepare = adamw_prepare,
    .update = adamw_update,
};
