// For LD_PRELOAD: a clock of the day that jumps by a day at each look.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long jump(void) {
    static long n;
    return (n++ % 3 - 1) * 86400;
}
int clock_gettime(clockid_t id, struct timespec *t) {
    int result = (int)syscall(SYS_clock_gettime, id, t);
    if (id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_RAW && id != CLOCK_MONOTONIC_COARSE) t->tv_sec += jump();
    return result;
}
int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now;
    (void)zone, clock_gettime(CLOCK_REALTIME, &now);
    return t->tv_sec = now.tv_sec, t->tv_usec = now.tv_nsec / 1000, 0;
}
time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return t ? *t = now.tv_sec : now.tv_sec;
}
