// trainer export: a checkpoint as a directory that other tools load as it is.
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/folder.h"
#include "common/log.h"
#include "trainer/audit/card.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/config/config.h"
#include "trainer/export/export.h"
#include "trainer/inference/trained.h"
#include "trainer/setup/vocabulary.h"
#include <sys/stat.h>
#include <unistd.h>

static const char *which = "", *output = NULL;
static int type = DTYPE_FP32;
static bool card;
#define WORD(NAME, name, number, word, ...) "|" word
static const Option options[] = {
    {OPT_STRING, "o,output", &output, "DIR", "the directory to make"},
    {OPT_STRING, "ckpt", &which, TRAINED_WHICH, TRAINED_MEANING},
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

// By way of a folder in the new one.
static int export_average(const char *checkpoint, const char *exported, const ModelShape *shape) {
    char folder[PATH_MAX_BYTES], file[PATH_MAX_BYTES];
    path_join(file, path_join(folder, exported, "average"), "model.safetensors");
    if (mkdir(folder, 0777) < 0) return fail_errno("cannot make '%s'", folder);
    int result = checkpoint_write_average(checkpoint, file);
    if (result == 0) result = model_export(folder, exported, shape, (Dtype)type);
    if (result == 0 && (unlink(file) < 0 || rmdir(folder) < 0)) result = fail_errno("cannot remove '%s'", folder);
    return result;
}

static int run(int count, char **files) {
    ConfigReader reader;
    NewFolder folder = {0};
    char path[PATH_MAX_BYTES];
    bool average = false;
    int result = config_read(&reader, count, files);
    if (result == 0 && !output) result = fail(EX_USAGE, "missing -o DIR");
    if (result == 0 && path_ends(output, ".gguf"))
        result = fail(EX_USAGE,
                      "'%s' is the name of a file, and export makes a folder for transformers: -o %.*s; of it "
                      "llama.cpp's convert_hf_to_gguf.py makes a GGUF if the vocabulary is GPT-2's, not one's own",
                      output, (int)(strlen(output) - 5), output);
    if (result == 0) result = trained_find(path, &average, &reader, which);
    if (result == 0 && average && card)
        result = fail(EX_USAGE, "--card describes the weights of the run, not their average: leave it or ':ema' out");
    if (result == 0) result = model_config_apply(&reader, path, false);
    if (result == 0) result = vocabulary_resolve(&reader, path);
    const ModelShape shape = model_shape(&reader.config);
    if (result == 0) result = newfolder_open(&folder, output, false, NULL);
    if (result == 0) result = vocabulary_keep(&reader.config, folder.temp);
    if (result == 0)
        result =
            average ? export_average(path, folder.temp, &shape) : model_export(path, folder.temp, &shape, (Dtype)type);
    if (result == 0 && card) result = write_card(folder.temp, path, &shape);
    if (result == 0) result = newfolder_commit(&folder);
    newfolder_abandon(&folder);
    if (result == 0)
        log_line("exported %s'%s' to '%s' as %s", average ? "the averaged weights of " : "", path, output,
                 dtype_name((Dtype)type));
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
