// What a model of N parameters reaches with D tokens of a text, in bits per byte:
// scale P (E + A N^-alpha + (worth D + D0)^-beta). It is the form of Hoffmann et al. 2022 (arXiv:2203.15556) with D0,
// the tokens of the warm-up. P is what a short run on the text and its vocabulary reaches (short_run.h); the rest is
// the same for the texts of the grid (scaling_law.def). Optimizers differ in D0 and in what a token is worth, so that
// one is not the better one by where the other was measured.
#pragma once

#include "trainer/config/config.h"

typedef struct {
    double scale, E, A, alpha, beta, repeats, worth, D0; // N and D in millions
    double learning_rate;                                // of its cells
    double deviation;                        // of a loss, as a fraction: on a text that the fit has not seen
    double growth;                           // of the deviation, for each factor e beyond most_flop
    double most_flop;                        // of a cell of the grid
    double least_N, most_N, least_D, most_D; // of the grid
    double most_fall;                        // of the short runs on its texts (short_run.h)
} ScalingLaw;

enum {
    SCALING_LAW_REACH = 10,  // nothing is predicted for more than this times the grid's range
    SCALING_LAW_EPOCHS = 10, // nor for a text that is read more often; the grid has 8.5
    // The same for all cells of the grid.
    SCALING_LAW_STEP_TOKENS = 1024,
    SCALING_LAW_BLOCK = 256,
    SCALING_LAW_WARMUP = 20,
    SCALING_LAW_EVAL_TOKENS = 32768,
    SCALING_LAW_VOCABULARY = 8192
};
#define SCALING_LAW_BETA2 0.99

const ScalingLaw *scaling_law_of(OptimizerName optimizer);
double scaling_law_parameters(const Config *config); // N: of the layers, without the embedding

// The bits per byte, as a multiple of P.
double scaling_law_loss(const ScalingLaw *law, double N, double D);
// The deviation of a run of `flop`, as a fraction.
double scaling_law_deviation(const ScalingLaw *law, double flop);
bool scaling_law_reaches(const ScalingLaw *law, double N, double D);

// The tokens that are worth as much as `tokens` out of a dataset of `unique`: with R repetitions
// unique (1 + repeats (1 - exp(-R / repeats))). Muennighoff et al. 2023 (arXiv:2305.16264), equation 5, who found
// 15.39; their penalty for parameters is left out.
double scaling_law_worth(const ScalingLaw *law, double tokens, double unique);
