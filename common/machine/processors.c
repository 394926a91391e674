// Reads the mask in .preinit_array, which the loader of programs runs before the constructors of libraries.
#include "common/machine/processors.h"
#include "common/log.h"
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static cpu_set_t given[8]; // of 1,024 processors each; Linux counts no more than 8,192
static long given_bytes;

// The runtime of a sanitizer may start later.
__attribute__((no_sanitize("address", "thread", "undefined"))) static void read_given(void) {
    given_bytes = syscall(SYS_sched_getaffinity, 0, sizeof given, given);
}
__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = read_given;

void processors_restore(void) {
    cpu_set_t now[8] = {0};
    if (given_bytes <= 0 || sched_getaffinity(0, sizeof now, now) < 0 || !memcmp(now, given, sizeof now)) return;
    if (sched_setaffinity(0, (size_t)given_bytes, given) < 0)
        log_warn("OpenMP bound this program to %d of %d processors: unset OMP_PROC_BIND, OMP_PLACES and "
                 "GOMP_CPU_AFFINITY to use all",
                 CPU_COUNT_S(sizeof now, now), CPU_COUNT_S(sizeof given, given));
}
