// Sampling: one forward pass over the whole window for each new token.
#include "trainer/model/sample.h"
#include "common/err.h"
#include "common/rng.h"
#include <stdlib.h>

enum { LENGTH_MULTIPLE = 64 }; // few shapes, so that cached kernels are reused

typedef struct {
    float logit;
    uint16_t id;
} Candidate;

static int likeliest_first(const void *a, const void *b) {
    const Candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return x->id - y->id;
}

static uint16_t draw(const Sampler *sampler, Candidate *candidates, size_t count, uint64_t index) {
    qsort(candidates, count, sizeof *candidates, likeliest_first);
    if (sampler->temperature <= 0) return candidates[0].id;
    if (sampler->top_k && sampler->top_k < count) count = sampler->top_k;
    double total = 0, highest = (double)candidates[0].logit, at = 0;
    for (size_t i = 0; i < count; i++) total += exp(((double)candidates[i].logit - highest) / sampler->temperature);
    double target = rng_uniform(sampler->seed, sampler->stream, index) * total;
    for (size_t i = 0; i < count; i++) {
        at += exp(((double)candidates[i].logit - highest) / sampler->temperature);
        if (at > target) return candidates[i].id;
    }
    return candidates[count - 1].id;
}

// Logits of the token after ids[length - 1].
static void next_logits(Network *network, const uint16_t *ids, size_t length, uint16_t *window, float *logits) {
    const ModelShape *shape = &network->model->shape;
    const PassLayout *pass = &network->plan->eval;
    size_t block = (size_t)shape->block, used = length < block ? length : block;
    size_t T = (used + LENGTH_MULTIPLE - 1) / LENGTH_MULTIPLE * LENGTH_MULTIPLE;
    if (T > block) T = block;
    memset(window, 0, (T + 1) * sizeof *window); // attention is causal: the padding has no influence
    memcpy(window, ids + length - used, used * sizeof *window);
    network_tokens(network, pass, window, 1, (int)T);
    network_forward(network, pass, 1, (int)T);
    network_logits(network, pass, (int)used - 1, logits);
}

void sample_warm_up(Network *network, float *logits) {
    const PassLayout *pass = &network->plan->eval;
    int block = network->model->shape.block;
    network->ops->zero(network_at(network, pass->tokens), (size_t)(block + 1) * sizeof(uint16_t));
    for (int T = 0; T < block;) {
        T = T + LENGTH_MULTIPLE < block ? T + LENGTH_MULTIPLE : block;
        network_forward(network, pass, 1, T);
    }
    for (int row = 0; row < block && row <= 16; row = row ? 2 * row : 1) // all alignments a row can have
        network_logits(network, pass, row, logits);
}

size_t sample(Network *network, const Sampler *sampler, uint16_t *ids, size_t length, size_t count,
              void (*emit)(void *context, uint16_t id), void *context) {
    size_t vocab = (size_t)network->model->shape.vocab;
    float *logits = malloc(vocab * sizeof *logits);
    Candidate *candidates = malloc(vocab * sizeof *candidates);
    uint16_t *window = malloc(((size_t)network->model->shape.block + 1) * sizeof *window);
    if (!logits || !candidates || !window) die(EX_MEMORY, "no memory for sampling");
    for (size_t i = 0; i < count; i++) {
        next_logits(network, ids, length, window, logits);
        for (size_t v = 0; v < vocab; v++) candidates[v] = (Candidate){logits[v], (uint16_t)v};
        uint16_t id = draw(sampler, candidates, vocab, i);
        ids[length++] = id;
        if (emit) emit(context, id);
        if (id == network->model->shape.end_of_text) break;
    }
    free(logits);
    free(candidates);
    free(window);
    return length;
}
