// The loader process of a trainer: `loader serve DIR`, started for runs whose configuration names a dataset and no
// loader.
#pragma once

#include "common/file.h"
#include "loader/client/feed.h"
#include "trainer/config/config.h"
#include <sys/types.h>

enum { LOADER_PROCESS_ENDED = 2 }; // the value that loader_process_watch sets

typedef struct {
    pid_t pid; // 0: none
    char directory[64], endpoint[80];
    char program[PATH_MAX_BYTES], dataset[PATH_MAX_BYTES]; // to restart it
    uint64_t restart_step; // the step of the run at the last restart; UINT64_MAX: never restarted
} LoaderProcess;

// Starts a loader when the configuration names a dataset and no loader, and waits until it is ready; otherwise the
// struct is zeroed. Fails with 66 when there is no such dataset, and with the loader's exit code when the loader fails.
// Call it before any thread is created.
int loader_process_open(LoaderProcess *loader_process, const Config *config);
// From now on, when a loader process ends and *flag is 0, *flag becomes LOADER_PROCESS_ENDED.
void loader_process_watch(volatile int *flag);
// Restarts the loader after a signal killed it at `step` of the run. Fails when it ended by itself (with its exit
// code), and when it was killed twice without a step between (69).
int loader_process_restart(LoaderProcess *loader_process, uint64_t step);
// Copies what the configuration says about the loader (endpoint, keys, timeout) to the configuration of a feed.
void loader_process_configure(const LoaderProcess *loader_process, const Config *config, FeedConfig *feed);
void loader_process_close(LoaderProcess *loader_process); // stops it and removes its directory; accepts a zeroed struct
