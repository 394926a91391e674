// The learning rate of a step: nanoGPT's warmup, then cosine, linear or constant.
#pragma once

#include "trainer/config/config.h"

double schedule_rate(const Config *config, uint64_t step); // step counts from 0
