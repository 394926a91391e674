// Predicted times of a training step. The rates are facts of one processor and one card; only their ratios matter for a
// choice. Those of the CPU: bench_kernels threads=1 cpu=1 (124M, B=4, T=256) on a core with AVX-512 and AMX,
// 2026-11-22, but for the sums of gradients, which were timed on one core of an AMD EPYC, 2026-11-24; those of the GPU
// are bench_gpu's of an H200, docs/gpu-results.md, B = 64, but for the sums, which are computed: 8 bytes at 3.8 TB/s, as
// the products overwrite where they would add.
#include "trainer/plan/step_cost.h"

typedef struct {
    const char *source;
    double products;                              // FLOP/s
    double attention_forward, attention_backward; // FLOP/s; a token attends to half a block on average
    double gelu, norm;                            // elements/s, of one direction
    double loss;                                  // logits/s
    double sums;                                  // gradients/s that are added to others
} Rates;

static const Rates cpu_float = {"rates of one CPU core", 95e9, 40e9, 49e9, 0.86e9, 0.53e9, 0.98e9, 2.5e9};
static const Rates cpu_half = {"rates of one CPU core", 360e9, 82e9, 97e9, 0.93e9, 0.75e9, 0.91e9, 2.5e9};
static const Rates gpu = {"rates of an H200", 700e12, 250e12, 184e12, 1.04e12, 0.49e12, 0.87e12, 0.475e12};

static const Rates *rates_of(const Backend *backend) {
    if (!backend->in_host_memory) return &gpu;
    return backend->act_type == DTYPE_BF16 ? &cpu_half : &cpu_float;
}

const char *step_cost_source(const Backend *backend) { return rates_of(backend)->source; }

// Seconds for each token of one layer's operations of the forward pass, by the level that computes them again.
static double forward_again(const ModelShape *shape, const Rates *rates, Recompute level) {
    const double C = shape->channels, T = shape->block, product = 2 * C * C / rates->products; // of (C,C) weights
    const double seconds[] = {
#define LEVEL_SECONDS(NAME, name, number, group, seconds, ...) seconds,
        RECOMPUTE_LEVELS(LEVEL_SECONDS, )};
    return seconds[level];
}

double step_cost_passes(const ModelShape *shape, const Backend *backend) {
    const Rates *rates = rates_of(backend);
    const double L = shape->layers, C = shape->channels, T = shape->block, V = shape->padded_vocab;
    const double products = 6 * (12 * L * C * C + V * C) / rates->products; // FLOPs: 2 forward, 4 backward
    const double attention = 2 * L * T * C * (1 / rates->attention_forward + 2.5 / rates->attention_backward);
    const double gelu = 2.5 * 4 * L * C / rates->gelu; // the backward pass has three operands, the forward pass two
    const double norms = 2 * (2 * L + 1) * C / rates->norm;
    return products + attention + gelu + norms + V / rates->loss;
}

double step_cost_recompute(const ModelShape *shape, const Backend *backend, Recompute level, int layers) {
    const int last = layers && layers < shape->layers ? layers : shape->layers;
    double seconds = 0;
    for (Recompute i = RECOMPUTE_GELU; i <= level && level != RECOMPUTE_AUTO; i++) {
        const int free = i != RECOMPUTE_GELU; // the last layer computes nothing again but GELU
        seconds += ((i == level ? last : shape->layers) - free) * forward_again(shape, rates_of(backend), i);
    }
    return seconds / step_cost_passes(shape, backend);
}

double step_cost_sums(const Model *model, const Backend *backend, const Config *config) {
    const double micros = (double)config->gradient_accumulation_steps,
                 tokens = (double)(config->batch_size.value * config->block_size);
    return (micros - 1) / micros * (double)model->elements /
           (rates_of(backend)->sums * tokens * step_cost_passes(&model->shape, backend));
}
