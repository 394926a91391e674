// The scalars of a Muon step as the operations read them, from backend memory, and the constants of its iteration.
#pragma once

#include "kernels/adamw_scalars.h"

typedef struct Muon {
    AdamW adamw;  // of the parameters that are not orthogonalized; its max_norm, step and seed hold for all
    float rate;   // learning rate of the matrices
    float shrink; // 1 - rate * weight decay
    float momentum;
    float one; // 1: the loss scale of a norm that needs none
} Muon;

// One step of the Newton-Schulz iteration is X <- X (a I + b X^T X + c (X^T X)^2). Five steps with these coefficients
// bring singular values of 0.005 to 1 between 0.68 and 1.14 (Jordan et al., "Muon: An optimizer for hidden layers in
// neural networks", 2024, https://kellerjordan.github.io/posts/muon/).
#define MUON_A       3.4445f
#define MUON_B       (-4.7750f)
#define MUON_C       2.0315f
#define MUON_EPSILON 1e-7f // the least norm that X is divided by
