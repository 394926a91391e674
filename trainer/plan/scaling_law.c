// The fitted coefficients, and what follows from them.
#include "trainer/plan/scaling_law.h"
#include <math.h>

static const ScalingLaw laws[] = {
#define LAW(optimizer, ...) [OPTIMIZER_##optimizer] = {__VA_ARGS__},
#include "trainer/plan/scaling_law.def"
#undef LAW
};
#define LAW(...) +1
_Static_assert(OPTIMIZER_COUNT == 0
#include "trainer/plan/scaling_law.def"
               ,
               "each optimizer has a law");
#undef LAW

const ScalingLaw *scaling_law_of(OptimizerName optimizer) { return &laws[optimizer]; }

double scaling_law_parameters(const Config *config) {
    return 12.0 * (double)config->n_layer * (double)config->n_embd * (double)config->n_embd;
}

double scaling_law_loss(const ScalingLaw *law, double N, double D) {
    return law->scale * (law->E + law->A * pow(N / 1e6, -law->alpha) + pow(law->worth * D / 1e6 + law->D0, -law->beta));
}

double scaling_law_deviation(const ScalingLaw *law, double flop) {
    return hypot(law->deviation, law->growth * fmax(0, log(flop / law->most_flop)));
}

bool scaling_law_reaches(const ScalingLaw *law, double N, double D) {
    const double reach = SCALING_LAW_REACH;
    return N >= law->least_N / reach && N <= law->most_N * reach && D >= law->least_D / reach &&
           D <= law->most_D * reach;
}

double scaling_law_worth(const ScalingLaw *law, double tokens, double unique) {
    if (unique <= 0 || tokens <= unique) return tokens;
    return unique * (1 + law->repeats * (1 - exp(-(tokens / unique - 1) / law->repeats)));
}
