// For LD_PRELOAD: clocks after a sleep of 400 days while there is a file `slept`, and a clock of the day that was set
// an hour later while there is a file `set`.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    int result = (int)syscall(SYS_clock_gettime, id, t);
    if ((id == CLOCK_BOOTTIME || id == CLOCK_REALTIME) && !access("slept", F_OK)) t->tv_sec += 400 * 86400;
    if (id == CLOCK_REALTIME && !access("set", F_OK)) t->tv_sec += 3600;
    return result;
}
