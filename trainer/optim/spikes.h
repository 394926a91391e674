// Spikes: a loss, or the logarithm of a gradient norm, that lies many standard deviations above its last values.
#pragma once

#include <stdbool.h>

enum {
    SPIKE_WINDOW = 128, // steps that a value is compared with
    SPIKE_LEAST = 64    // with fewer nothing is a spike
};

typedef struct {
    double values[SPIKE_WINDOW]; // oldest first
    int count;
} SpikeSeries;

typedef struct {
    SpikeSeries loss, norm; // norm: logarithms
} SpikeWindow;

// Standard deviations that the loss or the norm lies above the mean of the window, whichever is more. 0 for values that
// are not finite, for a window of fewer than SPIKE_LEAST steps, and for one without any deviation.
double spike_score(const SpikeWindow *window, double loss, double norm);

// Adds a step, unless one of its values is not finite. A value more than `limit` standard deviations above the mean is
// added as one that lies there: a single spike moves the window little, and a level that stays is soon no spike.
void spike_add(SpikeWindow *window, double loss, double norm, double limit);
