// A loader of our own: `loader serve DIR` beside our executable, for runs that name a dataset and no loader.
#pragma once

#include "common/file.h"
#include "loader/client/feed.h"
#include "trainer/config/config.h"
#include <sys/types.h>

enum { CHILD_ENDED = 2 }; // what child_watch sets

typedef struct {
    pid_t pid; // 0: none
    char place[64], endpoint[80];
    char program[PATH_MAX_BYTES], dataset[PATH_MAX_BYTES]; // to start it again
    uint64_t started_ns;
} Child;

// Starts one when the configuration names a dataset and no loader, and waits until it answers; else the child is
// zeroed. 66 when there is no such dataset; the loader's own exit code when it ends instead. Must come before any
// thread.
int child_open(Child *child, const Config *config);
// From now on *flag, when it is 0, becomes CHILD_ENDED when a child has ended.
void child_watch(volatile int *flag);
// After that: starts it again when something killed it. -1 when it ended by itself (its exit code), or lived less than
// five seconds (69).
int child_revive(Child *child);
// What the configuration says of the loader, into a feed's configuration: where it is, the keys, how long to wait.
void child_feed(const Child *child, const Config *config, FeedConfig *feed);
void child_close(Child *child); // ends it and clears away its place; accepts a zeroed struct
