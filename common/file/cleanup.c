// The list is static memory, so that a signal handler may read it at any moment.
#include "common/file/cleanup.h"
#include "common/file/file.h"
#include "common/log.h"
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES_MAX = 16 };

static struct {
    atomic_int state; // FREE, TAKEN while the path is written, LISTED
    char path[PATH_MAX_BYTES];
} files[FILES_MAX];
enum { FREE, TAKEN, LISTED };

static const char *_Atomic announced;

void cleanup_announce(const char *text) { atomic_store(&announced, text); }

// Only calls that a signal handler may make. On a terminal a progress line is before it.
static void print_announced(void) {
    const char *text = atomic_load(&announced);
    if (!text || log_quiet) return;
    const struct iovec parts[] = {{"\n", isatty(STDERR_FILENO) ? 1 : 0},
                                  {(void *)(uintptr_t)log_program, strlen(log_program)},
                                  {": ", 2},
                                  {(void *)(uintptr_t)text, strlen(text)},
                                  {"\n", 1}};
    const ssize_t written = writev(STDERR_FILENO, parts, sizeof parts / sizeof *parts);
    (void)written;
}

static void on_signal(int number) {
    print_announced();
    for (int i = 0; i < FILES_MAX; i++)
        if (atomic_load(&files[i].state) == LISTED) unlink(files[i].path);
    signal(number, SIG_DFL);
    raise(number);
}

void cleanup_on_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before, action = {.sa_handler = on_signal};
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN) continue;
        sigaction(numbers[i], &action, NULL);
    }
}

int cleanup_add(const char *path) {
    for (int i = 0; i < FILES_MAX; i++) {
        int free_state = FREE;
        if (!atomic_compare_exchange_strong(&files[i].state, &free_state, TAKEN)) continue;
        size_t length = strnlen(path, PATH_MAX_BYTES - 1);
        memcpy(files[i].path, path, length);
        files[i].path[length] = '\0';
        atomic_store(&files[i].state, LISTED);
        return i;
    }
    return -1;
}

void cleanup_drop(int number) {
    if (number >= 0) atomic_store(&files[number].state, FREE);
}
