// metrics.jsonl for reports: its numbers as curves over the steps, the last evaluation, and sampled texts.
#pragma once

#include "common/bytes.h"

typedef struct {
    double step, value;
} Point;

typedef struct {
    char name[64]; // the key of metrics.jsonl: "loss", "val_loss", "val/books", ...
    Point *points;
    size_t count;
} Curve;

typedef struct {
    Curve *curves;
    size_t count;
    double tokens, seconds;    // sums over all steps
    uint64_t damaged;          // the number of the first line that the trainer has not written so. 0: none
    struct json_t *evaluation; // the last one, as in its line. NULL: none
    struct json_t *samples;    // the texts that the run has sampled, as in their lines: "step", "sample"
} Curves;

int curves_read(Curves *curves, const char *run);                 // -1 after fail(), with nothing to close
const Curve *curves_find(const Curves *curves, const char *name); // one without points if not found
void curves_close(Curves *curves);                                // accepts a zeroed struct
