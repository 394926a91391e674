// Stopping a run by a signal.
#pragma once

#include <stdatomic.h>

// Starts a thread that sets *stop at the first SIGINT, SIGTERM, SIGUSR1 or SIGHUP (unless SIGHUP is ignored, as under
// nohup). A SIGINT after that ends the process with 130. Call it before any other thread is started. -1 after fail().
int stop_on_signals(atomic_int *stop);
