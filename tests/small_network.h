// What tests need to open the network of a small model.
#pragma once

#include "trainer/config/config.h"
#include "trainer/optim/step.h"

static inline Config default_config(void) {
    ConfigReader reader;
    config_open(&reader);
    config_close(&reader);
    return reader.config;
}

// The model and its plan, for a vocabulary of `vocab` ids.
static inline void plan_network(Model *model, MemoryPlan *plan, const Config *config, const Backend *backend, int vocab,
                                OptimizerName optimizer) {
    ModelShape shape = model_shape(config);
    shape.vocab = vocab, shape.padded_vocab = padded_vocab(vocab);
    model_open(model, &shape);
    memory_plan_init(plan, config, model, backend, optimizer_of(optimizer));
}
