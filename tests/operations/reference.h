// The operations of kernels/ops.def in double precision, written from their definitions: what every backend is compared
// with. Its own gradients are compared with finite differences (test_reference.c).
#pragma once

#include "kernels/backend.h"

// A backend whose tensors are doubles; norms, log-sums, losses and scales stay float, as ops.def has them. Weights are
// not packed, nothing needs scratch, moments and parameters are never rounded. One thread; ops.def gives the arguments.
const Backend *reference_backend(void);
