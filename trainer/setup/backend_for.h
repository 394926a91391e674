// The backend of a configuration.
#pragma once

#include "kernels/backend.h"
#include "trainer/config/config.h"

enum { BACKEND_TEXT_BYTES = 256 };

// The number of threads that `threads` or OMP_NUM_THREADS requests; 0: neither does.
int64_t threads_requested(const Config *config);
// Sets `threads`, if none are requested: `sharing` processes, this one included, may use its processors.
void threads_share(Config *config, unsigned sharing);
// The same before the processes are joined: config->local_world of them, each of which may use as many as this one.
void threads_expect(Config *config);

// Whether mpirun has bound this process to fewer processors than its share of the machine. If so, `text` receives a
// sentence with the remedy.
bool threads_bound(char *text, size_t size);

// Opens the backend that the configuration selects and logs one line with the device, the type and the reason, which
// is also copied to `text` unless it is NULL. planned: of a GPU, only the facts are needed, for a plan for this one;
// NULL: it is opened. NULL after fail().
const Backend *backend_for(const Config *config, const GpuProperties *planned, char text[BACKEND_TEXT_BYTES]);

// The same for one of several processes on a machine, whose number there is `local`: with device=cuda or auto it opens
// the GPU of that number, or the first when the launcher shows it no such GPU.
const Backend *backend_for_rank(const Config *config, unsigned local, char text[BACKEND_TEXT_BYTES]);

// The folder for measurements of a GPU: $XDG_CACHE_HOME/millrace or ~/.cache/millrace. NULL: no home directory is
// known.
const char *backend_cache_dir(void);
