// Predicted times of a training step; only ratios of rates matter for a choice. On the CPU: a step of 124M (B=4, T=256)
// by operation, on a core with AVX-512 and AMX, 2026-11-22 (now make bench-kernels S=threads=1). The sums of gradients
// were timed on one core of an AMD EPYC, 2026-11-24.
//
// Times of a GPU are shares of its data sheet's peaks (gpu_cards.def), and of an H200's if the card is not known: of an
// H200 they give a step of 124M within 10 % of its time (docs/gpu-results.md). An RTX 4070 has 115 FLOP for a byte of
// memory, an H200 206: a norm that is computed again is a smaller part of a step there.
#include "trainer/plan/step_cost.h"
#include "trainer/plan/gpu_card.h"
#include "trainer/shape/optimizer.h"

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

static const char *const unknown_card = "H200";

static const GpuCard *known_card(const Backend *backend) { return backend->card ? gpu_card_of(backend->card) : NULL; }

static const GpuCard *card_of(const Backend *backend) {
    const GpuCard *known = known_card(backend);
    return known ? known : gpu_card_of(unknown_card);
}

// Products reach 0.75 of the peak (0.72 of an H200's; 0.80 and more is reported of desktop cards) and copies 0.85.
// Attention's share was measured on an H200 before its kernels used TMA. With TMA it is 0.33 and 0.31, which makes a
// step of 124M 5 % shorter; the older shares stay, as the plan of an unknown card depends on them. Cards whose peak is
// below 500 TFLOP/s are assumed to have twice these shares.
static Rates gpu_rates(const Backend *backend) {
    const double flops = card_of(backend)->flops, bytes = 0.85 * card_of(backend)->bytes;
    const double attention = flops > 500e12 ? 1 : 2;
    return (Rates){.source = known_card(backend) ? "rates by the card's data sheet" : "rates of an H200",
                   .products = 0.75 * flops,
                   .attention_forward = 0.25 * attention * flops,
                   .attention_backward = 0.19 * attention * flops,
                   .gelu = bytes / 4, // an activation is read and one written
                   .norm = bytes / 8, // two and two
                   .loss = bytes / 4,
                   .sums = bytes / 8}; // as the products overwrite instead of adding
}

static Rates rates_of(const Backend *backend) {
    if (!backend->in_host_memory) return gpu_rates(backend);
    return backend->act_type == DTYPE_BF16 ? cpu_half : cpu_float;
}

const char *step_cost_source(const Backend *backend) { return rates_of(backend).source; }

// The time of the launches does not depend on the card: a slow one computes fewer tokens in it.
double step_cost_fixed(const Backend *backend) {
    if (backend->in_host_memory) return 256;
    return 4096 * card_of(backend)->flops / gpu_card_of(unknown_card)->flops;
}

// Seconds for each token of one layer's operations of the forward pass, by the level that computes them again.
static double forward_again(const ModelShape *shape, const Rates *rates, Recompute level) {
    const double C = shape->channels, T = shape->block, product = 2 * C * C / rates->products; // of (C,C) weights
    const double seconds[] = {
#define LEVEL_SECONDS(NAME, name, group, seconds, ...) seconds,
        RECOMPUTE_LEVELS(LEVEL_SECONDS, )};
    return seconds[level];
}

static double products_seconds(const ModelShape *shape, const Rates *rates) {
    const double L = shape->layers, C = shape->channels, V = shape->padded_vocab;
    return 6 * (12 * L * C * C + V * C) / rates->products; // FLOPs: 2 forward, 4 backward
}

double step_cost_passes(const ModelShape *shape, const Backend *backend) {
    const Rates of_backend = rates_of(backend), *rates = &of_backend;
    const double L = shape->layers, C = shape->channels, T = shape->block, V = shape->padded_vocab;
    const double products = products_seconds(shape, rates);
    const double attention = 2 * L * T * C * (1 / rates->attention_forward + 2.5 / rates->attention_backward);
    const double gelu = 2.5 * 4 * L * C / rates->gelu; // the backward pass has three operands, the forward pass two
    const double norms = 2 * (2 * L + 1) * C / rates->norm;
    return products + attention + gelu + norms + V / rates->loss;
}

double step_cost_recompute(const ModelShape *shape, const Backend *backend, Recompute level, int layers) {
    const int last = layers && layers < shape->layers ? layers : shape->layers;
    const Rates rates = rates_of(backend);
    double seconds = 0;
    for (Recompute i = RECOMPUTE_GELU; i <= level && level != RECOMPUTE_AUTO; i++) {
        const int free = i != RECOMPUTE_GELU; // the last layer computes nothing again but GELU
        seconds += ((i == level ? last : shape->layers) - free) * forward_again(shape, &rates, i);
    }
    return seconds / step_cost_passes(shape, backend);
}

double step_cost_order(const Model *model, const Backend *backend, const Config *config) {
    const Rates rates = rates_of(backend);
    const double products =
                     backend->set_portable ? backend->portable_cost * products_seconds(&model->shape, &rates) : 0,
                 micros = (double)config->gradient_accumulation_steps,
                 tokens = (double)(config->batch_size.value * config->block_size);
    const double passes = config->reduce_dtype == DTYPE_BF16 ? 2 : 1; // each is first rounded
    const double sums = passes * (micros - 1) / micros * (double)model->elements / (rates.sums * tokens);
    return (sums + products) / step_cost_passes(&model->shape, backend);
}

double step_cost_update_flops(const Model *model, const Config *config) {
    const Optimizer *optimizer = optimizer_of(config->optimizer);
    return optimizer->flops ? optimizer->flops(model) : 0;
}
