// The loader process of a trainer: `loader serve DIR`, started for runs whose configuration names a dataset and no
// loader, and restarted whenever it ends without an error of its own.
#pragma once

#include "common/file/file.h"
#include "loader/client/feed.h"
#include "trainer/config/config.h"
#include <sys/types.h>

typedef struct {
    pid_t pid;                        // 0: none, or waiting for its restart
    char directory[80], endpoint[96]; // of its sockets; no directory: this process has started none
    char program[PATH_MAX_BYTES], dataset[PATH_MAX_BYTES]; // to restart it
    uint64_t cache_bytes;
    int owner; // the locked file DIRECTORY/owner
    uint64_t started_ns, restart_ns, delay_ns;
    uint64_t first_ns; // the first start
    bool served;       // one of the loaders has answered
    int ends;          // of loaders, until one has served
} LoaderProcess;

// The directory that the key `dataset` names; false when it is missing.
bool loader_process_dataset(char path[PATH_MAX_BYTES], const Config *config);
int loader_process_no_dataset(const char *name); // -1 after fail() (66) with advice for a missing dataset
// Starts a loader when the configuration names a dataset and no loader; otherwise there is no loader process. Fails
// with 66 when there is no such dataset. The feed waits until the loader is ready. A loader that is killed or stopped
// is started again, but with 69 the wait ends if no loader has become ready in five seconds and five starts.
//
// cache_bytes: of its cache of decoded frames, which all that is read once does not need; 0: the loader's default.
enum { LOADER_CACHE_LEAST = 16 << 20 };
int loader_process_open(LoaderProcess *loader_process, const Config *config, uint64_t cache_bytes);
// Copies the settings of the loader (endpoint, keys, timeout) to the configuration of a feed, which borrows the loader
// process to watch it.
int loader_process_check(void *loader_process); // FeedConfig.while_waiting: restarts a loader that was killed
void loader_process_configure(LoaderProcess *loader_process, const Config *config, FeedConfig *feed);
// Stops the loader, with SIGKILL after two seconds, and removes its directory. Accepts a zeroed struct.
void loader_process_close(LoaderProcess *loader_process);
