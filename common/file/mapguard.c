// Turns SIGBUS into an error: during a guarded call the handler jumps back to mapguard_run, else it ends the program.
#include "common/file/mapguard.h"
#include "common/err.h"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Thread_local sigjmp_buf *volatile guarded; // NULL outside of mapguard_run

static const char why[] = "the file was truncated, or its disk failed";

// The next line of a file without its end, as much as has room; false at the end. Nothing is allocated, for a handler.
static bool next_line(int fd, char *line, size_t size) {
    size_t length = 0;
    char byte;
    while (read(fd, &byte, 1) == 1 && byte != '\n')
        if (length + 1 < size) line[length++] = byte;
    line[length] = 0;
    return length;
}

// The path of the file that is mapped at an address: false for other memory, which memfd and /dev/shm are, too.
static bool find_file(uintptr_t address, char *path, size_t size) {
    char line[4400]; // a path and what is before it
    bool found = false;
    const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (maps >= 0 && !found && next_line(maps, line, sizeof line)) {
        char *end, *name = strchr(line, '/');
        const uintptr_t first = strtoul(line, &end, 16);
        if (!name || address < first || address >= strtoul(end + 1, NULL, 16)) continue;
        found = strncmp(name, "/memfd:", 7) && strncmp(name, "/dev/", 5);
        snprintf(path, size, "%s", name);
    }
    if (maps >= 0) close(maps);
    return found;
}

static void on_sigbus(int number, siginfo_t *info, void *context) {
    char path[4400];
    (void)context;
    if (guarded) siglongjmp(*guarded, 1);
    if (find_file((uintptr_t)info->si_addr, path, sizeof path)) die(EX_IO, "cannot read '%s': %s", path, why);
    signal(number, SIG_DFL);
    raise(number);
}

static void install(void) {
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_NODEFER | SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

void mapguard_install(void) {
    static pthread_once_t installed = PTHREAD_ONCE_INIT;
    pthread_once(&installed, install);
}

int mapguard_run(int (*read)(void *self), void *self, const char *path) {
    mapguard_install();
    sigjmp_buf start;
    int result;
    if (sigsetjmp(start, 1) == 0) { // with the signal mask, which a sanitizer changes while its handler runs
        guarded = &start;
        result = read(self);
    } else {
        result = fail(EX_IO, "cannot read '%s': %s", path, why);
    }
    guarded = NULL;
    return result;
}
