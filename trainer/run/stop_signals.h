// Stopping a run by a signal.
#pragma once

#include <stdatomic.h>

// A thread sets *stop at the first SIGINT, SIGTERM, SIGUSR1 or SIGHUP (SIGHUP not where it is ignored, as under nohup);
// a SIGINT when it is set ends the process with 130. Call it before any other thread is started. -1 after fail().
int stop_on_signals(atomic_int *stop);
