// The backend of a configuration.
#include "trainer/run/backend_for.h"
#include "common/err.h"
#include "common/file.h"
#include "common/log.h"
#include <stdio.h>
#include <stdlib.h>

const char *backend_cache_dir(void) {
    static char path[PATH_MAX_BYTES];
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache == '/') return snprintf(path, sizeof path, "%s/millrace", cache), path;
    if (home && *home == '/') return snprintf(path, sizeof path, "%s/.cache/millrace", home), path;
    return NULL;
}

const Backend *backend_for(const Config *config, bool without_device, char text[BACKEND_TEXT_BYTES]) {
    const BackendChoice choice = {config->device,          config->dtype,  (int)config->threads, config->deterministic,
                                  config->optimizer_state, without_device, backend_cache_dir()};
    char why[BACKEND_TEXT_BYTES];
    const Backend *backend = backend_open(&choice, why);
    if (!backend || (backend->check_shape && backend->check_shape((int)config->n_embd, (int)config->n_head) < 0))
        return NULL;
    log_line("%s", why);
    if (text) snprintf(text, BACKEND_TEXT_BYTES, "%s", why);
    return backend;
}
