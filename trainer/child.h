// A loader of our own: `loader serve DIR` beside our executable, for runs that name a dataset and no loader.
#pragma once

#include "trainer/config.h"
#include <sys/types.h>

typedef struct {
    pid_t pid; // 0: none
    char place[64], endpoint[80];
} Child;

// Starts one when the configuration names a dataset and no loader, and waits until it answers; else the child is
// zeroed. 66 when there is no such dataset; the loader's own exit code when it ends instead. Must come before any
// thread.
int child_open(Child *child, const Config *config);
const char *child_endpoint(const Child *child, const Config *config); // for the feed; NULL: the default place
void child_close(Child *child); // ends it and clears away its place; accepts a zeroed struct
