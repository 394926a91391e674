// The time of the last steps compared with earlier ones, which shows a processor or GPU that is throttled or shared.
#pragma once

#include <stdint.h>

enum { STEP_TIMES_WINDOW = 32 }; // steps of a median

typedef struct {
    uint64_t ns[STEP_TIMES_WINDOW]; // of the last steps, in any order
    uint64_t usual_ns;              // the shortest median of any window until now; 0: no window
    int count;
} StepTimes;

// Adds the time of a step without its wait for data. Returns the median of each STEP_TIMES_WINDOW steps divided by
// usual_ns, and sets *median_ns; returns 0 before the window is full, and after the first window.
double step_times_add(StepTimes *times, uint64_t ns, uint64_t *median_ns);
