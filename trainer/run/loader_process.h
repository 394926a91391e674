// A loader of our own: `loader serve DIR` beside our executable, for runs that name a dataset and no loader.
#pragma once

#include "common/file.h"
#include "loader/client/feed.h"
#include "trainer/config/config.h"
#include <sys/types.h>

enum { LOADER_PROCESS_ENDED = 2 }; // what loader_process_watch sets

typedef struct {
    pid_t pid; // 0: none
    char place[64], endpoint[80];
    char program[PATH_MAX_BYTES], dataset[PATH_MAX_BYTES]; // to start it again
    uint64_t restart_step; // of the run when the loader was last started again, UINT64_MAX: never
} LoaderProcess;

// Starts one when the configuration names a dataset and no loader, and waits until it answers; else the loader process
// is zeroed. 66 when there is no such dataset; the loader's own exit code when it ends instead. Must come before any
// thread.
int loader_process_open(LoaderProcess *loader_process, const Config *config);
// From now on *flag, when it is 0, becomes LOADER_PROCESS_ENDED when a loader process has ended.
void loader_process_watch(volatile int *flag);
// After that, at `step` of the run: starts it again when something killed it. -1 when it ended by itself (its exit
// code), or was killed twice without a step between (69).
int loader_process_revive(LoaderProcess *loader_process, uint64_t step);
// What the configuration says of the loader, into a feed's configuration: where it is, the keys, how long to wait.
void loader_process_feed(const LoaderProcess *loader_process, const Config *config, FeedConfig *feed);
void loader_process_close(LoaderProcess *loader_process); // ends it and clears away its place; accepts a zeroed struct
