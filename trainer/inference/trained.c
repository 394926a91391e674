// A trained model, opened to be evaluated or sampled from.
#include "trainer/inference/trained.h"
#include "common/err.h"
#include "common/log.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/plan/plan_check.h"
#include "trainer/records/metrics.h"
#include "trainer/setup/backend_for.h"
#include "trainer/setup/vocabulary.h"
#include <stdio.h>

// Sets the keys of evaluation and sampling that the user has not set to the run's.
static void take_settings(ConfigReader *reader, const Config *run) {
    Config *config = &reader->config;
    if (!config_is_set(reader, KEY_dtype)) config->dtype = run->dtype;
    if (!config_is_set(reader, KEY_reduce_order)) config->reduce_order = run->reduce_order;
    if (!config_is_set(reader, KEY_loss_tokens)) config->loss_tokens = run->loss_tokens;
    if (!config_is_set(reader, KEY_document_mask)) config->document_mask = run->document_mask;
    if (!config_is_set(reader, KEY_eval_block_size)) config->eval_block_size = run->eval_block_size;
    if (!config_is_set(reader, KEY_eval_order)) config->eval_order = run->eval_order;
    if (!config_is_set(reader, KEY_eval_tokens)) config->eval_tokens = config_eval_tokens(run);
    if (!config_is_set(reader, KEY_batch_size)) config->batch_size = run->batch_size;
}

// Which of the two is meant, if init_from and out_dir are set and the run has the checkpoint `path`. A configuration
// of the run means the run, and --init_from with another model that model. 1: the checkpoint, 0: the model, -1 (2).
static int choose(const ConfigReader *reader, const char *path) {
    const Config *config = &reader->config;
    char given[PATH_MAX_BYTES];
    SavedState saved;
    model_path(given, config->init_from, config->out_dir);
    const bool is_flag = !strncmp(reader->origin[KEY_init_from], "--", 2);
    const bool began = saved_state_read(&saved, path) == 0 && !strncmp(given, saved.state.init_from, CHOICES_BYTES - 1);
    if (err_code() && err_code() != EX_DATA && err_code() != EX_NOINPUT) return -1;
    err_clear(); // not a checkpoint of a run
    saved_state_close(&saved);
    if (is_flag != began) return began;
    return fail(
        EX_USAGE,
        "%s is '%s', and the run in '%s' began %s: leave init_from out to read the run, or out_dir to read '%s'",
        reader->origin[KEY_init_from], config->init_from, config->out_dir, began ? "from it" : "from another model",
        config->init_from);
}

int trained_find(char path[PATH_MAX_BYTES], bool *average, ConfigReader *reader, const char *which) {
    Config *config = &reader->config, run = *config;
    char word[32];
    const size_t length = strlen(which);
    const char *given = which;
    *average = length >= 4 && length < sizeof word && !strcmp(which + length - 4, ":ema");
    if (*average) snprintf(word, sizeof word, "%.*s", (int)length - 4, which), which = word;
    if (!strcmp(which, "graded")) {
        const uint64_t step = metrics_graded(config->out_dir, UINT64_MAX);
        if (!step)
            return fail(EX_NOINPUT, "the run in '%s' has no grade by items, of which --ckpt=graded takes the highest",
                        config->out_dir);
        snprintf(word, sizeof word, "%llu", (unsigned long long)step), which = word;
    }
    const bool names_model = strcmp(config->init_from, "scratch") && strcmp(config->init_from, "resume");
    int found = 0;
    if (!names_model || config_is_set(reader, KEY_out_dir))
        found = checkpoint_select(config->out_dir, which, path, &run);
    if (found > 0 && names_model) {
        const int chosen = choose(reader, path);
        if (chosen < 0) return -1;
        found = chosen;
    }
    if (found > 0) take_settings(reader, &run);
    if (found) return found < 0 ? -1 : 0;
    if (names_model && *given && strcmp(given, "newest") != 0 && strcmp(given, "best") != 0)
        return fail(EX_USAGE, "--ckpt=%s is of a run, and init_from is '%s'", given, config->init_from);
    if (names_model) return model_directory(path, config->init_from, config->out_dir);
    if (model_refuse(config->out_dir) < 0) return -1;
    return fail(EX_NOINPUT, "there is no checkpoint in '%s': name the run by --out_dir", config->out_dir);
}

int trained_open(Trained *trained, ConfigReader *reader, const char *which) {
    Config *config = &reader->config;
    *trained = (Trained){0};
    if (trained_find(trained->path, &trained->average, reader, which) < 0 ||
        model_config_apply(reader, trained->path, true) < 0 || vocabulary_resolve(reader, trained->path) < 0)
        return -1;
    log_line("model: '%s'%s", trained->path, trained->average ? ", averaged weights" : "");

    const Backend *backend = backend_for(config, NULL, NULL);
    if (!backend) return -1;
    config->batch_size.is_auto = false;
    ModelShape shape = model_shape(config);
    model_open(&trained->model, &shape);
    memory_plan_init(&trained->plan, config, &trained->model, backend, NULL);
    if (memory_plan_check(&trained->plan, config, backend, true) < 0) return -1;
    if (network_open(&trained->network, backend, &trained->model, &trained->plan) < 0) return -1;
    return trained->average ? checkpoint_load_average(&trained->network, trained->path)
                            : checkpoint_load(&trained->network, trained->path, false);
}

int trained_consumed(const Trained *trained, const FeedDataset *dataset, uint64_t *consumed) {
    SavedState saved;
    *consumed = 0;
    const int result = saved_state_read(&saved, trained->path);
    for (int i = 0; result == 0 && i < saved.state.dataset_count; i++)
        if (!memcmp(saved.state.datasets[i].fingerprint, dataset->fingerprint, 32))
            *consumed = saved.state.datasets[i].consumed;
    saved_state_close(&saved);
    if (result < 0 && err_code() != EX_DATA && err_code() != EX_NOINPUT) return -1;
    err_clear(); // not a checkpoint of a run
    return 0;
}

void trained_close(Trained *trained) {
    const Backend *backend = trained->network.ops;
    network_close(&trained->network);
    model_close(&trained->model);
    if (backend) backend->close();
}
