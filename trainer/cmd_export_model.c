// trainer export: a checkpoint as a directory that other tools load as it is.
#include "common/err.h"
#include "common/file/folder.h"
#include "common/log.h"
#include "trainer/audit/card.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/config/config.h"
#include "trainer/export/export.h"
#include "trainer/inference/trained.h"
#include "trainer/setup/vocabulary.h"

static const char *which = "", *output = NULL;
static int type = DTYPE_FP32;
static bool card;
#define WORD(NAME, name, number, word, ...) "|" word
static const Option options[] = {
    {OPT_STRING, "o,output", &output, "DIR", "the directory to make"},
    {OPT_STRING, "ckpt", &which, "newest|best|STEP",
     "checkpoint; without it the newest, or the best if only the best are saved"},
    {OPT_FLAG, "card", &card, NULL,
     "also write README.md: the data, order, tokens and versions of the run, and hashes"},
    {OPT_WORD, "dtype", &type, &DTYPES(WORD, )[1], "type of the numbers"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

static int write_card(const char *exported, const char *checkpoint, const ModelShape *shape) {
    char directory[PATH_MAX_BYTES];
    Model model;
    model_open(&model, shape);
    const int result = card_write(exported, checkpoint, path_split(output, directory), model.parameters);
    model_close(&model);
    return result;
}

static int run(int count, char **files) {
    ConfigReader reader;
    NewFolder folder = {0};
    char path[PATH_MAX_BYTES];
    int result = config_read(&reader, count, files);
    if (result == 0 && !output) result = fail(EX_USAGE, "missing -o DIR");
    if (result == 0) result = trained_find(path, &reader, which);
    if (result == 0) result = model_config_apply(&reader, path, false);
    if (result == 0) result = vocabulary_resolve(&reader, path);
    const ModelShape shape = model_shape(&reader.config);
    if (result == 0) result = newfolder_open(&folder, output, false, NULL);
    if (result == 0) result = vocabulary_keep(&reader.config, folder.temp);
    if (result == 0) result = model_export(path, folder.temp, &shape, (Dtype)type);
    if (result == 0 && card) result = write_card(folder.temp, path, &shape);
    if (result == 0) result = newfolder_commit(&folder);
    newfolder_abandon(&folder);
    if (result == 0) log_line("exported '%s' to '%s' as %s", path, output, dtype_name((Dtype)type));
    if (result == 0 && shape.activation == ACTIVATION_RELU2)
        log_line(
            "mlp=relu2 is for transformers alone: llama.cpp computes GELU in its place without a word, and CTranslate2 "
            "does not convert the model");
    config_close(&reader);
    return result;
}

const Command trainer_export = {"export",
                                "-o DIR [CONFIG...] [--key=value...]",
                                "write the newest checkpoint of out_dir for transformers and other tools",
                                options,
                                run,
                                &config_options};
