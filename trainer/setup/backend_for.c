// The backend of a configuration.
#include "trainer/setup/backend_for.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include "common/machine/launch.h"
#include "common/machine/pool.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *backend_cache_dir(void) {
    static char path[PATH_MAX_BYTES];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache == '/') return path_join(path, cache, "millrace");
    if (home && *home == '/') return path_join(path, home, ".cache/millrace");
    return NULL;
}

int64_t threads_requested(const Config *config) {
    const char *variable = getenv("OMP_NUM_THREADS");
    return config->threads ? config->threads : variable ? strtoll(variable, NULL, 10) : 0;
}

void threads_share(Config *config, unsigned sharing) {
    const unsigned cores = pool_cores();
    if (!threads_requested(config)) config->threads = sharing < cores ? cores / sharing : 1;
}

void threads_expect(Config *config) {
    cpu_set_t all, own;
    if (config->local_world < 2 || sched_getaffinity(getppid(), sizeof all, &all) < 0 ||
        sched_getaffinity(0, sizeof own, &own) < 0)
        return;
    const unsigned count = (unsigned)CPU_COUNT(&all), part = (unsigned)CPU_COUNT(&own) * config->local_world;
    threads_share(config, part < count ? 1 : part / count);
}

bool threads_bound(char *text, size_t size) {
    Launch launch;
    cpu_set_t all, own;
    if (launch_find(&launch) < 0) return err_clear(), false;
    if (!launch.launcher || strcmp(launch.launcher, "mpirun") != 0 || sched_getaffinity(getppid(), sizeof all, &all) ||
        sched_getaffinity(0, sizeof own, &own))
        return false;
    const unsigned count = (unsigned)CPU_COUNT(&all), bound = (unsigned)CPU_COUNT(&own);
    snprintf(text, size, "mpirun binds this process to %u of %u processors: add --bind-to none", bound, count);
    return bound * launch.local_world < count;
}

static const Backend *open_on(Device device, const Config *config, const GpuProperties *planned,
                              char text[BACKEND_TEXT_BYTES]) {
    const BackendChoice choice = {
        device,  config->dtype,       (int)config->threads,        config->deterministic,   config->optimizer_state,
        planned, backend_cache_dir(), (int)config->device_timeout, config->matmul_precision};
    char why[BACKEND_TEXT_BYTES];
    const Backend *backend = backend_open(&choice, why);
    if (!backend) return NULL;
    if (backend->check_shape && backend->check_shape((int)config->n_embd, (int)config->n_head) < 0)
        return backend->close(), NULL;
    log_line("%s", why);
    if (*backend->note) log_line("%s", backend->note);
    const int64_t threads = threads_requested(config);
    char bound[96];
    const bool more = threads > pool_cores();
    if (backend->in_host_memory && (config->world > 1 || !threads || more) && threads_bound(bound, sizeof bound))
        log_warn("%s", bound);
    else if (backend->in_host_memory && more)
        log_warn("%s asks for %lld threads, and the cores here are %u: a step may take many times as long",
                 config->threads ? "'threads'" : "OMP_NUM_THREADS", (long long)threads, pool_cores());
    if (text) snprintf(text, BACKEND_TEXT_BYTES, "%s", why);
    return backend;
}

const Backend *backend_for(const Config *config, const GpuProperties *planned, char text[BACKEND_TEXT_BYTES]) {
    return open_on(config->device, config, planned, text);
}

const Backend *backend_for_rank(const Config *config, unsigned local, char text[BACKEND_TEXT_BYTES]) {
    if (local && (config->device == DEVICE_AUTO || config->device == DEVICE_CUDA)) {
        const Backend *backend = open_on((Device)(DEVICE_CUDA + local), config, NULL, text);
        if (backend) return backend;
        err_clear();
    }
    return backend_for(config, NULL, text);
}
