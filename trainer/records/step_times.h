// The time of the last steps, compared with that of the first: a processor or GPU that is throttled or shared is
// slower.
#pragma once

#include <stdint.h>

enum { STEP_TIMES_WINDOW = 32 }; // steps of a median

typedef struct {
    uint64_t ns[STEP_TIMES_WINDOW]; // of the last steps, in any order
    uint64_t usual_ns;              // the shortest median of any window until now; 0: there was none
    int count;
} StepTimes;

// Adds the time of a step without its wait for data. After each STEP_TIMES_WINDOW steps: their median divided by
// usual_ns, in *median_ns the median; 0 otherwise, and after the first window.
double step_times_add(StepTimes *times, uint64_t ns, uint64_t *median_ns);
