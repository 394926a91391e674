// How long a run will take, before its first step.
#pragma once

#include "trainer/run/run.h"

// Times a forward pass and logs how long the first evaluation, the steps until the next one and the whole run will
// take, unless all of it is short.
void forecast_log(Run *run);

// Seconds of an evaluation without its data and report, by a forward pass. 0: there is none.
double forecast_evaluation(Run *run);
