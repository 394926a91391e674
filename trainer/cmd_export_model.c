// trainer export: a checkpoint as a directory, or a GGUF file, that other tools load as it is.
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/folder.h"
#include "common/log.h"
#include "trainer/audit/card.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/config/config.h"
#include "trainer/export/export.h"
#include "trainer/export/export_gguf.h"
#include "trainer/inference/trained.h"
#include "trainer/setup/vocabulary.h"
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *which = "", *output = NULL;
static int type = DTYPE_FP32;
static bool card, sources, gguf;
#define GGUF_FILE                           "model.gguf" // in the new folder, until it is renamed
#define WORD(NAME, name, number, word, ...) "|" word
static const Option options[] = {
    {OPT_STRING, "o,output", &output, "DIR", "the directory to make, or NAME.gguf, a file for llama.cpp"},
    {OPT_STRING, "ckpt", &which, TRAINED_WHICH, TRAINED_MEANING},
    {OPT_FLAG, "card", &card, NULL,
     "also write README.md: the data, order, tokens and versions of the run, and hashes"},
    {OPT_FLAG, "sources", &sources, NULL, "list in the card the documents and tokens of each input of the datasets"},
    {OPT_WORD, "dtype", &type, &DTYPES(WORD, ) "|q8_0"[1], "type of the numbers"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

static int write_card(const char *exported, const char *checkpoint, const ModelShape *shape) {
    char directory[PATH_MAX_BYTES];
    Model model;
    model_open(&model, shape);
    const int result = card_write(exported, checkpoint, path_split(output, directory), model.parameters, sources);
    model_close(&model);
    return result;
}

static int write_weights(const char *from, const char *folder, const ModelShape *shape, const Config *config) {
    char file[PATH_MAX_BYTES];
    if (!gguf) return model_export(from, folder, shape, (Dtype)type);
    const Vocab *vocab = vocabulary_open(config);
    if (!vocab) return -1;
    const int result = gguf_export(from, path_join(file, folder, GGUF_FILE), shape, vocab, (GgufType)type);
    vocab_close(vocab);
    return result;
}

// By way of a folder in the new one.
static int write_average(const char *checkpoint, const char *to, const ModelShape *shape, const Config *config) {
    char folder[PATH_MAX_BYTES], file[PATH_MAX_BYTES];
    path_join(file, path_join(folder, to, "average"), "model.safetensors");
    if (mkdir(folder, 0777) < 0) return fail_errno("cannot make '%s'", folder);
    int result = checkpoint_write_average(checkpoint, file);
    if (result == 0) result = write_weights(folder, to, shape, config);
    if (result == 0 && (unlink(file) < 0 || rmdir(folder) < 0)) result = fail_errno("cannot remove '%s'", folder);
    return result;
}

static int commit(NewFolder *folder) {
    char file[PATH_MAX_BYTES], parent[PATH_MAX_BYTES];
    if (!gguf) return newfolder_commit(folder);
    if (rename(path_join(file, folder->temp, GGUF_FILE), folder->path)) return fail_errno("cannot make '%s'", output);
    path_split(folder->path, parent);
    return dir_sync(parent);
}

static int check_output(void) {
    char folder[PATH_MAX_BYTES];
    if (!output) return fail(EX_USAGE, "missing -o DIR");
    const char *name = path_split(output, folder), *extension = strrchr(name, '.');
    gguf = extension && !strcasecmp(extension, ".gguf");
    if (gguf && extension == name) return fail(EX_USAGE, "'%s' is an extension without a name: -o NAME.gguf", output);
    if (sources && !card) return fail(EX_USAGE, "--sources is a part of the card: add --card");
    if (gguf && card) return fail(EX_USAGE, "--card describes a folder, and '%s' is a file: leave it out", output);
    if (gguf && access(output, F_OK) == 0)
        return fail(EX_CREATE, "'%s' exists: remove it, or choose another name", output);
    if (!gguf && type == GGUF_Q8_0)
        return fail(EX_USAGE, "q8_0 is a type of GGUF files, and -o names a folder: -o %s.gguf", output);
    return 0;
}

static void print_result(const char *path, bool average, const ModelShape *shape) {
    log_line("exported %s'%s' to '%s' as %s", average ? "the averaged weights of " : "", path, output,
             gguf_type_name((GgufType)type));
    if (gguf && (shape->activation == ACTIVATION_GELU || shape->activation == ACTIVATION_GELU_TANH))
        log_line(
            "llama.cpp computes GELU by the tanh form, with a table in float16: logits differ in the third decimal");
    if (!gguf && shape->activation == ACTIVATION_RELU2)
        log_line(
            "mlp=relu2 is for transformers alone: llama.cpp computes GELU in its place without a word, and CTranslate2 "
            "does not convert the model");
}

static int run(int count, char **files) {
    ConfigReader reader;
    NewFolder folder = {0};
    char path[PATH_MAX_BYTES];
    bool average = false;
    int result = config_read(&reader, count, files);
    if (result == 0) result = check_output();
    if (result == 0) result = trained_find(path, &average, &reader, which);
    if (result == 0 && average && card)
        result = fail(EX_USAGE, "--card describes the weights of the run, not their average: leave it or ':ema' out");
    if (result == 0) result = model_config_apply(&reader, path, false);
    if (result == 0) result = vocabulary_resolve(&reader, path);
    const ModelShape shape = model_shape(&reader.config);
    if (result == 0) result = newfolder_open(&folder, output, false, NULL);
    if (result == 0) result = vocabulary_keep(&reader.config, folder.temp);
    if (result == 0) result = (average ? write_average : write_weights)(path, folder.temp, &shape, &reader.config);
    if (result == 0 && card) result = write_card(folder.temp, path, &shape);
    if (result == 0) result = commit(&folder);
    newfolder_abandon(&folder);
    if (result == 0) print_result(path, average, &shape);
    config_close(&reader);
    return result;
}

const Command trainer_export = {"export",
                                "-o DIR [CONFIG...] [--key=value...]",
                                "write the newest checkpoint of out_dir for transformers and other tools",
                                options,
                                run,
                                &config_options};
