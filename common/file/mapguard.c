// Turns SIGBUS during a guarded call into an error: the handler jumps back to mapguard_run. See mapguard.h.
#include "common/file/mapguard.h"
#include "common/err.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

static _Thread_local sigjmp_buf *volatile guarded; // NULL outside of mapguard_run

static void on_sigbus(int number) {
    if (guarded) siglongjmp(*guarded, 1);
    signal(number, SIG_DFL);
    raise(number);
}

static void install(void) {
    struct sigaction action = {.sa_handler = on_sigbus, .sa_flags = SA_NODEFER};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

int mapguard_run(int (*read)(void *self), void *self, const char *path) {
    static pthread_once_t installed = PTHREAD_ONCE_INIT;
    pthread_once(&installed, install);
    sigjmp_buf start;
    int result;
    if (sigsetjmp(start, 1) == 0) { // with the signal mask, which a sanitizer changes while its handler runs
        guarded = &start;
        result = read(self);
    } else {
        result = fail(EX_IO, "cannot read '%s': the file was truncated, or its disk failed", path);
    }
    guarded = NULL;
    return result;
}
