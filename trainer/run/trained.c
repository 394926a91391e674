// A trained model, opened to be evaluated or sampled from.
#include "trainer/run/trained.h"
#include "common/err.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/plan/plan_auto.h"
#include "trainer/run/backend_for.h"
#include <stdio.h>

int trained_open(Trained *trained, Config *config) {
    RunState state;
    *trained = (Trained){0};
    int found = checkpoint_newest(config->out_dir, trained->path, &state);
    if (found < 0) return -1;
    if (!found && !strcmp(config->init_from, "scratch"))
        return fail(EX_NOINPUT, "there is no checkpoint in '%s': name the run by --out_dir", config->out_dir);
    if (!found) snprintf(trained->path, sizeof trained->path, "%s", config->init_from);
    if (checkpoint_config(trained->path, config) < 0) return -1;

    const Backend *backend = backend_for(config, false, NULL);
    if (!backend) return -1;
    config->batch_size.is_auto = false;
    ModelShape shape = model_shape(config);
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
