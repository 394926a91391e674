// The table of optimizers, and where the state of a tensor lies in a range.
#include "trainer/shape/optimizer.h"
#include <assert.h>

#define DECLARE(NAME, name, ...) extern const Optimizer optimizer_##name;
OPTIMIZERS(DECLARE, )

const Optimizer *optimizer_of(OptimizerName name) {
#define ADDRESS(NAME, name, ...) [OPTIMIZER_##NAME] = &optimizer_##name,
    static const Optimizer *const optimizers[] = {OPTIMIZERS(ADDRESS, )};
    return optimizers[name];
}

const Optimizer *optimizer_for(const Config *config) {
#define NOTHING(NAME, name, ...) {0},
    static Optimizer averaging[] = {OPTIMIZERS(NOTHING, )};
    const Optimizer *plain = optimizer_of(config->optimizer);
    Optimizer *row = &averaging[config->optimizer];
    if (!(config->ema > 0)) return plain;
    if (row->averages) return row;
    assert(plain->state_count < OPTIMIZER_STATES);
    *row = *plain;
    row->states[row->state_count++] = (StateRange){"ema", KINDS_ALL, false};
    row->averages = true;
    return row;
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
