// For LD_PRELOAD: CLOCK_MONOTONIC is what BODY makes of `ns`, the time, at its call number `call`.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    static atomic_llong calls, sum;
    int result = (int)syscall(SYS_clock_gettime, id, t);
    long long ns = t->tv_sec * 1000000000LL + t->tv_nsec, call = calls++;
    if (id != CLOCK_MONOTONIC) return result;
    BODY;
    (void)call, (void)sum;
    return t->tv_sec = ns / 1000000000, t->tv_nsec = ns % 1000000000, result;
}
