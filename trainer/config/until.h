// The key until: when a run is to be finished.
#pragma once

#include <stdbool.h>
#include <time.h>

enum { UNTIL_STEPS = 1000000000 }; // max_iters and lr_decay_iters of such a run: more steps than any run has

typedef struct {
    bool now;      // as soon as possible: the others are not set
    bool duration; // counted from the start: a clock that is set meanwhile does not move it
    time_t at;
} Until;

// Reads 40m, 1h30m, 08:00, 2026-12-01 08:00, job or now. A time of day is the next one; both are in the time zone of
// the process (TZ), and of an hour that comes twice in autumn the first one that is still to come. job is the end that
// Slurm states in SLURM_JOB_END_TIME. -1 after fail(), 2, for any other text.
int until_parse(Until *until, const char *text, time_t start);

// -1 after fail(), 2, if it is neither empty nor a time here. A job whose end is not known is a mistake of commands
// that train, and not of a configuration.
int until_check(const char *text);

// -1 (2) if no run can begin with it: it has passed, or is now.
int until_check_new(const char *text);

time_t until_start(void); // the time at which this process asked for it first

// "Tue 2026-12-01 08:00:00 CET"
const char *until_text(time_t at, char out[48]);
