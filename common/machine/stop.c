// No thread that computes may handle a signal: while a float32 product of oneDNN runs on AVX2, the stack pointer is in
// a workspace on the heap, and the frame of a handler would overwrite the bytes below it. So every thread blocks the
// signals, and one waits for them.
#include "common/machine/stop.h"
#include "common/err.h"
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

atomic_int stop_requested, stop_cooldown_requested;
atomic_bool stop_cooldown_on_usr1;

static sigset_t stopping;

static void *wait_for_signals(void *none) {
    for (int number; sigwait(&stopping, &number) == 0;)
        if (number == SIGUSR1 && stop_cooldown_on_usr1)
            stop_cooldown_requested++;
        else if (atomic_fetch_add(&stop_requested, 1) && number == SIGINT)
            _exit(128 + SIGINT);
    return none;
}

int stop_check(const char *phase) { return stop_requested ? fail(EX_AGAIN, "stopped while %s", phase) : 0; }

int stop_on_signals(void) {
    struct sigaction hangup;
    sigemptyset(&stopping);
    sigaddset(&stopping, SIGINT), sigaddset(&stopping, SIGTERM), sigaddset(&stopping, SIGUSR1);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&stopping, SIGHUP);
    signal(SIGINT, SIG_DFL), signal(SIGTERM, SIG_DFL), signal(SIGUSR1, SIG_DFL); // an ignored signal is never delivered
    pthread_t thread;
    int error = pthread_sigmask(SIG_BLOCK, &stopping, NULL);
    if (!error) error = pthread_create(&thread, NULL, wait_for_signals, NULL);
    if (error)
        return fail(EX_LIMIT, "cannot start the thread that waits for signals: %s (see ulimit -u)", strerror(error));
    pthread_detach(thread);
    return 0;
}
