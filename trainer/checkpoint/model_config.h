// config.json of a model directory, and where such directories are found. The format is transformers' GPT2Config, if it
// can describe the model; else model_type is "millrace", and the options are beside its keys.
#pragma once

#include "common/file/file.h"
#include "trainer/config/config.h"
#include "trainer/shape/params.h"

// Whether transformers' GPT2Config can describe the model.
bool model_is_gpt2(const ModelShape *shape);

void model_config_print(const ModelShape *shape, Dtype type, Buffer *out); // type: of the tensors beside it

// Sets the keys of the model. 66 without a file, 65 when it describes a model that is not computed here, 76 when the
// vocabulary is too large.
int model_config_read(Config *model, const char *directory);

// The same in the configuration of a run. A key that the user has set to another value is a mistake, except a smaller
// block_size if a part of the model is enough. -1 after fail().
int model_config_apply(ConfigReader *reader, const char *directory, bool part_is_enough);

// Sets the keys of the model before a run: unless init_from is scratch, from the newest checkpoint of out_dir (if
// `resume`) or from the directory that init_from names, whose path init_from is afterwards. -1 after fail().
int model_config_resolve(ConfigReader *reader, bool resume);

// The path of the directory that init_from names as model_directory gives it; init_from itself without a directory.
void model_path(char path[PATH_MAX_BYTES], const char *init_from, const char *out_dir);

// Fails (66) if a path is a file or the directory of a model, with the name that init_from needs instead.
int model_refuse(const char *path);

// The directory that init_from names: a path, or a name of a directory beside out_dir or in $MILLRACE_MODELS. A
// checkpoint is verified. 66 with the missing files, 65 when it is damaged.
int model_directory(char path[PATH_MAX_BYTES], const char *init_from, const char *out_dir);
