// Evaluation with a progress line.
#pragma once

#include "trainer/model/evaluate.h"

// As evaluate(), with progress on stderr.
FeedResult evaluate_with_progress(Network *network, const BatchSource *source, int split, uint64_t samples,
                                  const atomic_int *stop, double *loss);
