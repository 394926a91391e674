// The table of optimizers, and where the state of a tensor lies in a range.
#include "trainer/optim/optimizer.h"
#include <assert.h>

#define OPTIMIZER(name) extern const Optimizer optimizer_##name;
#include "trainer/optim/optimizers.def"
#undef OPTIMIZER

static const Optimizer *const optimizers[] = {
#define OPTIMIZER(name) &optimizer_##name,
#include "trainer/optim/optimizers.def"
#undef OPTIMIZER
};

const Optimizer *optimizer_find(const char *name) {
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        if (!strcmp(optimizers[i]->name, name)) return optimizers[i];
    return NULL;
}

// Elements of the parameters, gaps between tensors included, before `end` (NULL: all) that have the state.
static size_t elements_before(const StateRange *state, const Model *model, const Tensor *end) {
    size_t elements = 0;
    for (int i = 0; i < model->count && &model->tensors[i] != end; i++) {
        const size_t next = i + 1 < model->count ? model->tensors[i + 1].offset : model->elements;
        if (optimizer_has(state, &model->tensors[i])) elements += next - model->tensors[i].offset;
    }
    return elements;
}

size_t optimizer_elements(const StateRange *state, const Model *model) { return elements_before(state, model, NULL); }

size_t optimizer_offset(const StateRange *state, const Model *model, const Tensor *tensor) {
    assert(optimizer_has(state, tensor));
    return elements_before(state, model, tensor);
}
