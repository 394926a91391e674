// Text from a network.
#pragma once

#include "common/bytes.h"
#include "trainer/model/sample.h"

// Appends `start` and its continuation by up to `tokens` tokens to `out`. -1 after fail().
int sample_text(Network *network, const Sampler *sampler, const char *start, uint64_t tokens, Buffer *out);
