// The configuration as commands read it: files and --key=value from the command line; the backend it asks for.
#include "common/err.h"
#include "common/log.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/plan/plan_auto.h"
#include "trainer/trainer_commands.h"
#include <stdio.h>

enum { FLAGS_MAX = 256 };
static const char *flags[FLAGS_MAX];
static int flag_count;

static bool take(const char *option, int *status) {
    if (flag_count == FLAGS_MAX)
        *status = fail(EX_USAGE, "more than %d flags", FLAGS_MAX);
    else
        flags[flag_count++] = option;
    return true;
}

const MoreOptions config_options = {config_keys, take};

int config_read(ConfigReader *reader, int count, char **files) {
    config_open(reader);
    for (int i = 0; i < count; i++) config_file(reader, files[i]);
    for (int i = 0; i < flag_count; i++) config_flag(reader, flags[i]);
    if (reader->ignored.size) log_line("ignored: %s", (const char *)reader->ignored.data);
    return config_check(reader);
}

const Backend *backend_for(const Config *config, bool facts_only) {
    const BackendChoice choice = {config->device,        config->dtype,           (int)config->threads,
                                  config->deterministic, config->optimizer_state, facts_only};
    char why[256];
    const Backend *backend = backend_open(&choice, why);
    if (!backend || (backend->check && backend->check((int)config->n_embd, (int)config->n_head) < 0)) return NULL;
    log_line("%s", why);
    return backend;
}

int trained_open(Trained *trained, Config *config) {
    RunState state;
    *trained = (Trained){0};
    int found = checkpoint_newest(config->out_dir, trained->path, &state);
    if (found < 0) return -1;
    if (!found && !strcmp(config->init_from, "scratch"))
        return fail(EX_NOINPUT, "there is no checkpoint in '%s': name the run by --out_dir", config->out_dir);
    if (!found) snprintf(trained->path, sizeof trained->path, "%s", config->init_from);
    if (checkpoint_config(trained->path, config) < 0) return -1;

    const Backend *backend = backend_for(config, false);
    if (!backend) return -1;
    config->batch_size.is_auto = false;
    ModelShape shape = shape_of(config);
    model_open(&trained->model, &shape);
    memory_plan_init(&trained->plan, config, &trained->model, backend, NULL);
    if (memory_plan_check(&trained->plan, config, backend, true) < 0) return -1;
    if (network_open(&trained->network, backend, &trained->model, &trained->plan) < 0) return -1;
    return checkpoint_load(&trained->network, trained->path, false);
}

void trained_close(Trained *trained) {
    const Backend *backend = trained->network.ops;
    network_close(&trained->network);
    model_close(&trained->model);
    if (backend) backend->close();
}
