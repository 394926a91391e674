// A loader of our own: `loader serve DIR` beside our executable, for runs that name a dataset and no loader.
#pragma once

#include <sys/types.h>

typedef struct {
    pid_t pid; // 0: none
    char place[64], endpoint[80];
} Child;

// Starts it and waits until it answers. -1 with its own exit code when it ends instead. Must come before any thread.
int child_open(Child *child, const char *dataset);
void child_close(Child *child); // ends it and clears away its place; accepts a zeroed struct
