// A short run on the dataset of a configuration, the same for every plan: the scaling law takes the level of a text and
// its vocabulary from it. It writes nothing.
#pragma once

#include "trainer/config/config.h"

typedef struct {
    double loss;    // of the validation split in the end, in bits per byte
    double seconds; // of its steps
    double fall; // from the mean loss of an early stretch of its steps to that of the validation split, as a fraction
} ShortRun;

// Always with Muon: after so few steps the loss of AdamW tells little more than how frequent each id is. It takes about
// 10 seconds on two cores. -1 after fail(), as engine_open and engine_connect.
int short_run(ShortRun *run, const Config *given);
