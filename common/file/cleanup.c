// The list is static memory, so that a signal handler may read it at any moment.
#include "common/file/cleanup.h"
#include "common/file/file.h"
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { FILES_MAX = 16 };

static struct {
    atomic_int state; // FREE, TAKEN while the path is written, LISTED
    char path[PATH_MAX_BYTES];
} files[FILES_MAX];
enum { FREE, TAKEN, LISTED };

static void on_signal(int number) {
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
