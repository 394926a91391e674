// The learning rate of a step: nanoGPT's warmup, then cosine, linear, constant, or constant with a decay at the end
// (wsd).
#pragma once

#include "trainer/config/config.h"

void schedule_warn(const Config *config);                  // of values that are probably mistakes
double schedule_rate(const Config *config, uint64_t step); // step counts from 0
