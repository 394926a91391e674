// metrics.jsonl: one object a line, appended as it happens; the first key of each is "step".
#pragma once

#include "common/file.h"

typedef struct {
    int fd;
    char path[PATH_MAX_BYTES];
} Metrics;

// Opens out_dir/metrics.jsonl and drops what a run that is now repeated had written: the torn last line, and lines of
// steps after `step`; -1 drops all.
int metrics_open(Metrics *metrics, const char *out_dir, int64_t step);
// One line: `format` is the object without its braces.
int metrics_add(Metrics *metrics, const char *format, ...) __attribute__((format(printf, 2, 3)));
// A string as JSON, quotes included, for metrics_add.
const char *metrics_string(char out[512], const char *text);
int metrics_sync(Metrics *metrics);
void metrics_close(Metrics *metrics); // accepts a zeroed struct
