// Processor time of the threads of this process, from /proc.
#include "common/machine/processor_time.h"
#include <dirent.h>
#include <stdio.h>
#include <time.h>

// From schedstat of a thread: nanoseconds on a processor, nanoseconds ready without one, slices of time.
static uint64_t waited_by(const char *path) {
    unsigned long long ran, waited = 0;
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%llu %llu", &ran, &waited) != 2) waited = 0;
    fclose(file);
    return waited;
}

static uint64_t used_by(clockid_t clock) {
    struct timespec used = {0};
    clock_gettime(clock, &used); // else 0
    return (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
}

ProcessorTime processor_time(void) {
    ProcessorTime time = {.used_ns = used_by(CLOCK_PROCESS_CPUTIME_ID)};
    char path[300];
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return time;
    for (const struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/task/%.255s/schedstat", task->d_name);
        time.waited_ns += waited_by(path);
    }
    closedir(tasks);
    return time;
}

ProcessorTime processor_time_of_thread(void) {
    return (ProcessorTime){used_by(CLOCK_THREAD_CPUTIME_ID), waited_by("/proc/thread-self/schedstat")};
}

double processor_lost(ProcessorTime from, ProcessorTime to) {
    if (to.waited_ns <= from.waited_ns) return 0; // a thread has ended
    const double waited = (double)(to.waited_ns - from.waited_ns), used = (double)(to.used_ns - from.used_ns);
    return waited / (waited + used);
}
