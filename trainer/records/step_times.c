// Windows of step times.
#include "trainer/records/step_times.h"
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

double step_times_add(StepTimes *times, uint64_t ns, uint64_t *median_ns) {
    times->ns[times->count++] = ns;
    if (times->count < STEP_TIMES_WINDOW) return 0;
    qsort(times->ns, STEP_TIMES_WINDOW, sizeof times->ns[0], compare);
    *median_ns = times->ns[STEP_TIMES_WINDOW / 2];
    times->count = 0;
    const uint64_t usual = times->usual_ns;
    if (!usual || *median_ns < usual) times->usual_ns = *median_ns;
    return usual ? (double)*median_ns / (double)usual : 0;
}
