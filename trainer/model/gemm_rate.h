// The GEMM rate: FLOP/s of matrix products, measured on this device. The step line compares a step's rate with it.
#pragma once

#include "trainer/model/network.h"

// The best of several rounds of out = in * weight^T, at most M rows; takes some 200 ms.
double gemm_rate(const Backend *ops, const Weight *weight, const Act *in, Act *out, int M);

// Measures the widest product of a network, on the buffers of the training pass, whose content is lost.
double network_gemm_rate(const Network *network);

// Measures a CPU for a model of this shape, in memory of its own. 0: out of memory.
double gemm_rate_probe(const Backend *ops, const ModelShape *shape, int rows);
