// A request to stop, by a signal. Work that can take longer than a second looks for one between its parts.
#pragma once

#include <stdatomic.h>

// Signals so far; only the thread that waits for them writes it.
extern atomic_int stop_requested;

// SIGUSR1 signals so far, if stop_cooldown_on_usr1 is set: these do not count as requests to stop.
extern atomic_int stop_cooldown_requested;
extern atomic_bool stop_cooldown_on_usr1;

// Starts a thread that counts SIGINT, SIGTERM, SIGUSR1 and SIGHUP (unless SIGHUP is ignored, as under nohup). A SIGINT
// that is not the first of them ends the process with 130. Call it before any other thread is started. -1 after fail().
int stop_on_signals(void);

// 0, or -1 after fail() (75) "stopped while PHASE" if a stop was requested. A phase of a run calls it between parts of
// less than a second each. Thread-safe.
int stop_check(const char *phase);
