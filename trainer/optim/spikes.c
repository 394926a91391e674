// The window of the spike detector.
#include "trainer/optim/spikes.h"
#include "common/math/portable_math.h"
#include <math.h>
#include <string.h>

typedef struct {
    double mean, deviation;
} Spread;

static Spread spread_of(const SpikeSeries *series) {
    double sum = 0, squares = 0;
    for (int i = 0; i < series->count; i++) sum += series->values[i];
    const double mean = sum / series->count;
    for (int i = 0; i < series->count; i++) squares += (series->values[i] - mean) * (series->values[i] - mean);
    return (Spread){mean, sqrt(squares / (series->count - 1))};
}

static double score(const SpikeSeries *series, double value) {
    if (series->count < SPIKE_LEAST) return 0;
    const Spread spread = spread_of(series);
    return spread.deviation > 0 ? (value - spread.mean) / spread.deviation : 0;
}

static void add(SpikeSeries *series, double value, double limit) {
    if (score(series, value) > limit) {
        const Spread spread = spread_of(series);
        value = spread.mean + limit * spread.deviation;
    }
    if (series->count == SPIKE_WINDOW)
        memmove(series->values, series->values + 1, (size_t)--series->count * sizeof *series->values);
    series->values[series->count++] = value;
}

static bool comparable(double loss, double norm) { return isfinite(loss) && isfinite(norm) && norm > 0; }

double spike_score(const SpikeWindow *window, double loss, double norm) {
    if (!comparable(loss, norm)) return 0;
    return fmax(fmax(score(&window->loss, loss), score(&window->norm, portable_log(norm))), 0);
}

void spike_add(SpikeWindow *window, double loss, double norm, double limit) {
    if (!comparable(loss, norm)) return;
    add(&window->loss, loss, limit);
    add(&window->norm, portable_log(norm), limit);
}
