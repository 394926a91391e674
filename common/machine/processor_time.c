// Processor time of the threads of this process, from /proc.
#include "common/machine/processor_time.h"
#include <dirent.h>
#include <stdio.h>
#include <time.h>

// From /proc/self/task/N/schedstat: nanoseconds on a processor, nanoseconds ready without one, slices of time.
static uint64_t waited_by(const char *task) {
    char path[300];
    unsigned long long ran, waited = 0;
    snprintf(path, sizeof path, "/proc/self/task/%.255s/schedstat", task);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%llu %llu", &ran, &waited) != 2) waited = 0;
    fclose(file);
    return waited;
}

ProcessorTime processor_time(void) {
    ProcessorTime time = {0};
    struct timespec used = {0};
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) == 0)
        time.used_ns = (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return time;
    for (const struct dirent *task; (task = readdir(tasks));)
        if (task->d_name[0] != '.') time.waited_ns += waited_by(task->d_name);
    closedir(tasks);
    return time;
}

double processor_lost(ProcessorTime from, ProcessorTime to) {
    if (to.waited_ns <= from.waited_ns) return 0; // a thread has ended
    const double waited = (double)(to.waited_ns - from.waited_ns), used = (double)(to.used_ns - from.used_ns);
    return waited / (waited + used);
}
