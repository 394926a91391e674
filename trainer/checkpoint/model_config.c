// config.json of a model directory.
#include "trainer/checkpoint/model_config.h"
#include "common/err.h"
#include "common/json_read.h"
#include "common/log.h"
#include "common/utf8.h"
#include "tokenizer/files/vocab_file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/saved_state.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool model_is_gpt2(const ModelShape *shape) {
    ModelOption options[MODEL_OPTIONS];
    model_options(shape, options);
    for (int i = 0; i < MODEL_OPTIONS; i++)
        if (options[i].value != options[i].gpt2) return false;
    return shape->activation != ACTIVATION_SWIGLU;
}

static const struct {
    const char *name;
    Activation activation;
} activations[] = {{"gelu", ACTIVATION_GELU},
                   {"gelu_new", ACTIVATION_GELU_TANH},
                   {"relu2", ACTIVATION_RELU2},
                   {"swiglu", ACTIVATION_SWIGLU},
                   {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH}};

static const char *activation_name(Activation activation) {
    size_t i = 0;
    while (activations[i].activation != activation) i++;
    return activations[i].name;
}

static void print_option(const ModelOption *option, Buffer *out) {
    buffer_print(out, ",\n \"%s\": ", config_key(option->key));
    if (config_is_word(option->key))
        buffer_print(out, "\"%s\"", config_word(option->key, (int)option->value));
    else if (config_keys[option->key].type == OPT_FLAG)
        buffer_print(out, "%s", option->value != 0 ? "true" : "false");
    else
        buffer_print(out, "%.17g", option->value);
}

void model_config_print(const ModelShape *shape, Dtype type, Buffer *out) {
    const bool options = !model_is_gpt2(shape);
    buffer_print(out,
                 "{\n \"architectures\": [\"%s\"],\n \"model_type\": \"%s\",\n"
                 " \"n_layer\": %d,\n \"n_head\": %d,\n \"n_embd\": %d,\n \"n_positions\": %d,\n \"n_ctx\": %d,\n"
                 " \"vocab_size\": %d,\n \"bias\": %s,\n \"activation_function\": \"%s\",\n"
                 " \"layer_norm_epsilon\": 1e-05,\n \"initializer_range\": 0.02,\n \"attn_pdrop\": 0.0,\n"
                 " \"embd_pdrop\": 0.0,\n \"resid_pdrop\": 0.0,\n \"tie_word_embeddings\": %s,\n"
                 " \"bos_token_id\": %d,\n \"eos_token_id\": %d,\n \"torch_dtype\": \"%s\"",
                 options ? "Millrace" : "GPT2LMHeadModel", options ? "millrace" : "gpt2", shape->layers, shape->heads,
                 shape->channels, shape->block, shape->block, shape->vocab, shape->bias ? "true" : "false",
                 activation_name(shape->activation), shape->untied ? "false" : "true", shape->end_of_text,
                 shape->end_of_text, dtype_name(type));
    ModelOption rows[MODEL_OPTIONS];
    model_options(shape, rows);
    for (int i = 0; options && i < MODEL_OPTIONS; i++) print_option(&rows[i], out);
    buffer_print(out, "\n}\n");
}

static bool take_int(const json_t *root, const char *key, int64_t low, int64_t high, int64_t *value) {
    const json_t *found = json_object_get(root, key);
    *value = json_integer_value(found);
    return json_is_integer(found) && *value >= low && *value <= high;
}

static bool take_activation(const json_t *root, bool options, Config *model) {
    const json_t *found = json_object_get(root, "activation_function");
    const char *name = found ? json_string_value(found) : "gelu_new"; // the default of GPT2Config
    for (size_t i = 0; name && i < sizeof activations / sizeof *activations; i++) {
        const Activation activation = activations[i].activation;
        if (strcmp(activations[i].name, name) || (activation == ACTIVATION_SWIGLU && !options)) continue;
        model->mlp = activation == ACTIVATION_SWIGLU  ? MLP_SWIGLU
                     : activation == ACTIVATION_RELU2 ? MLP_RELU2
                                                      : MLP_GELU;
        if (model->mlp == MLP_GELU) model->gelu = activation == ACTIVATION_GELU ? GELU_EXACT : GELU_TANH;
        return true;
    }
    return false;
}

// Sets the key of an option, to its default if config.json lacks the option (`found` NULL) or has the value of GPT-2.
static bool take_option(const json_t *found, const ModelOption *option, Config *model) {
    char text[64];
    config_default(option->key, text, sizeof text);
    if (json_is_string(found))
        snprintf(text, sizeof text, "%s", json_string_value(found));
    else if (json_is_boolean(found))
        snprintf(text, sizeof text, "%s", json_is_true(found) ? "True" : "False");
    else if (found && json_number_value(found) != option->gpt2)
        snprintf(text, sizeof text, "%.17g", json_number_value(found));
    return config_parse(model, option->key, text) && config_in_range(model, option->key);
}

// Returns the name of an option with a value that is not supported, or NULL.
static const char *take_options(const json_t *root, Config *model) {
    const bool is_rope = json_number_value(json_object_get(root, "rope_theta")) > 0;
    ModelOption options[MODEL_OPTIONS];
    const ModelShape shape = model_shape(model);
    model_options(&shape, options);
    for (int i = 0; i < MODEL_OPTIONS; i++) {
        const char *name = config_key(options[i].key);
        if (!take_option(json_object_get(root, name), &options[i], model)) return name;
    }
    if (model->n_kv_head && model->n_head % model->n_kv_head) return "n_kv_head";
    model->position = is_rope ? POSITION_ROPE : POSITION_LEARNED; // config.json has no name for it
    return is_rope && model->n_embd / model->n_head % 2 ? "rope_theta" : NULL;
}

// The first name in a config.json of ours that model_config_print does not write: an option of a newer program. NULL:
// none.
static const char *unknown_name(json_t *root, const Config *model) {
    Buffer text = {0};
    const ModelShape shape = model_shape(model);
    model_config_print(&shape, DTYPE_FP32, &text);
    json_t *known = json_loadb((const char *)text.data, text.size, 0, NULL), *value;
    const char *name, *unknown = NULL;
    ModelOption options[MODEL_OPTIONS];
    model_options(&shape, options);
    for (int i = 0; i < MODEL_OPTIONS; i++) json_object_set_new(known, config_key(options[i].key), json_null());
    json_object_foreach(root, name, value)
        if (!unknown && !json_object_get(known, name)) unknown = name;
    json_decref(known);
    buffer_close(&text);
    return unknown;
}

// Keys that select a computation other than GPT-2's: their only value here, or absent. NULL when all are right.
static const char *other_computation(const json_t *root, int64_t n_embd) {
    static const struct {
        const char *key;
        bool value;
    } flags[] = {
        {"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false}, {"add_cross_attention", false}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const json_t *found = json_object_get(root, flags[i].key);
        if (found && !(flags[i].value ? json_is_true(found) : json_is_false(found))) return flags[i].key;
    }
    const json_t *inner = json_object_get(root, "n_inner"), *epsilon = json_object_get(root, "layer_norm_epsilon");
    if (inner && !json_is_null(inner) && json_integer_value(inner) != 4 * n_embd) return "n_inner";
    if (epsilon && fabs(json_number_value(epsilon) - 1e-5) > 1e-12) return "layer_norm_epsilon";
    return NULL;
}

static int take_config(Config *model, json_t *root, const char *path) {
    const char *type = json_string_value(json_object_get(root, "model_type")), *other;
    const bool options = type && !strcmp(type, "millrace");
    if (!root || !type || (strcmp(type, "gpt2") && !options))
        return fail(EX_DATA, "'%s' does not describe a GPT-2 model%s", path,
                    type ? ": of a model that 'millrace export' wrote, name the checkpoint, RUN/ckpt-STEP" : "");
    if (!take_int(root, "n_layer", 1, 1024, &model->n_layer) || !take_int(root, "n_head", 1, 1024, &model->n_head) ||
        !take_int(root, "n_embd", 1, 1 << 16, &model->n_embd) || model->n_embd % model->n_head ||
        !take_int(root, "n_positions", 1, 1 << 16, &model->block_size))
        return fail(EX_DATA, "'%s' lacks a usable n_layer, n_head, n_embd or n_positions", path);
    if (!take_int(root, "vocab_size", 1, IDS_MAX, &model->vocab_size))
        return fail(EX_PROTOCOL, "'%s': vocab_size is not in 1 to %d", path, IDS_MAX);
    if (!take_activation(root, options, model))
        return fail(EX_DATA, "'%s': activation_function is none of gelu, gelu_new, gelu_pytorch_tanh, relu2", path);
    if ((other = take_options(options ? root : NULL, model)) || (other = other_computation(root, model->n_embd)))
        return fail(EX_DATA, "'%s': %s has a value that is not supported", path, other);
    if (options && (other = unknown_name(root, model)))
        return fail(EX_DATA, "'%s': '%s' is an option that this program does not know: take a newer one", path, other);
    model->bias = !json_is_false(json_object_get(root, "bias")); // transformers' GPT-2 always has biases
    model->tie_embeddings = !json_is_false(json_object_get(root, "tie_word_embeddings"));
    return 0;
}

static bool is_checkpoint_of_gpt2(const char *directory) {
    SavedState saved;
    const bool is_gpt2 = saved_state_read(&saved, directory) < 0 || vocab_is_gpt2_fingerprint(saved.state.vocab_fp);
    saved_state_close(&saved);
    err_clear(); // damaged: reported when the checkpoint is loaded
    return is_gpt2;
}

// Whether the model of a directory, which has as many ids as GPT-2, or these and padding, is of GPT-2's vocabulary: a
// checkpoint has the fingerprint, a model of another tool its tokenizer.json, or nothing that names another vocabulary.
static bool is_of_gpt2(const char *directory, bool padded) {
    char path[PATH_MAX_BYTES];
    path_join(path, directory, "state.json");
    if (access(path, F_OK) == 0) return !padded && is_checkpoint_of_gpt2(directory);
    if (!vocab_file_in(path, directory)) return true;
    const Vocab *vocab = vocab_open_path(path, NULL);
    const bool is_gpt2 = vocab ? vocab_is_gpt2(vocab) : !padded;
    vocab_close(vocab);
    err_clear();
    return is_gpt2;
}

int model_config_read(Config *model, const char *directory) {
    char path[PATH_MAX_BYTES];
    Buffer text = {0};
    if (file_read(&text, path_join(path, directory, "config.json"), 1 << 20) < 0) return -1;
    json_error_t error;
    json_t *root = json_parse((Bytes){text.data, text.size}, 0, &error);
    int result = take_config(model, root, path);
    const bool padded = model->vocab_size == padded_vocab(GPT2_VOCAB);
    if (result == 0 && (padded || model->vocab_size == GPT2_VOCAB) && is_of_gpt2(directory, padded)) {
        if (padded)
            log_line("the %lld ids of '%s' are GPT-2's %d and padding, which is left out", (long long)model->vocab_size,
                     directory, GPT2_VOCAB);
        model->vocab_size = 0;
    }
    json_decref(root);
    buffer_close(&text);
    return result;
}

int model_config_apply(ConfigReader *reader, const char *directory, bool part_is_enough) {
    Config *config = &reader->config, loaded = *config;
    if (model_config_read(&loaded, directory) < 0) return -1;
    bool shorter = part_is_enough && config_is_set(reader, KEY_block_size) && config->block_size < loaded.block_size;
    if (shorter) loaded.block_size = config->block_size;
    if (config->n_kv_head == loaded.n_head) config->n_kv_head = 0; // both mean all
    if (!loaded.vocab_size && (config->vocab_size == GPT2_VOCAB || config->vocab_size == padded_vocab(GPT2_VOCAB)))
        config->vocab_size = 0;
    for (int key = 0; key < KEY_COUNT; key++) {
        char now[32], then[32];
        if (!config_is_set(reader, key) || (config_class(key) != CLASS_MODEL && config_class(key) != CLASS_OPTION) ||
            (!config_is_used(config, key) && !config_is_used(&loaded, key)))
            continue;
        config_value(config, key, now, sizeof now), config_value(&loaded, key, then, sizeof then);
        if (strcmp(now, then))
            config_mistake(reader, key, "'%s' is %s, and the model in '%s' has %s%s", config_key(key), now, directory,
                           then, key == KEY_vocab_size && !loaded.vocab_size ? ", which is GPT-2's 50257" : "");
    }
    *config = loaded;
    return config_check(reader);
}

// ---- directories

static bool is_model(char path[PATH_MAX_BYTES], const char *folder, int folder_length, const char *name) {
    char file[PATH_MAX_BYTES];
    snprintf(path, PATH_MAX_BYTES, "%.*s%s", folder_length, folder, name);
    return access(path_join(file, path, "config.json"), F_OK) == 0;
}

// Sets `folder` to $MILLRACE_MODELS, with a slash.
static bool find_model(char path[PATH_MAX_BYTES], const char *init_from, const char *out_dir,
                       char folder[PATH_MAX_BYTES]) {
    const char *models = getenv("MILLRACE_MODELS"), *slash = strrchr(out_dir, '/');
    *folder = 0;
    if (models) snprintf(folder, PATH_MAX_BYTES, "%.*s/", PATH_MAX_BYTES / 4, models);
    return is_model(path, "", 0, init_from) || strchr(init_from, '/') ||
           (slash && is_model(path, out_dir, (int)(slash - out_dir) + 1, init_from)) ||
           (models && is_model(path, folder, PATH_MAX_BYTES / 2, init_from));
}

void model_path(char path[PATH_MAX_BYTES], const char *init_from, const char *out_dir) {
    char folder[PATH_MAX_BYTES];
    if (!find_model(path, init_from, out_dir, folder)) snprintf(path, PATH_MAX_BYTES, "%s", init_from);
}

static int refuse_file(const char *path) {
    char folder[PATH_MAX_BYTES];
    struct stat status;
    const char *slash = strrchr(path, '/');
    if (access(path_join(folder, path, "ckpt.pt"), F_OK) == 0)
        return fail(EX_NOINPUT,
                    "'%s' is a run of nanoGPT: `millrace import -o DIR %s` makes a model for --init_from=DIR of it",
                    path, folder);
    if (stat(path, &status) || !S_ISREG(status.st_mode)) return 0;
    if (slash ? is_model(folder, path, (int)(slash - path), "") : is_model(folder, ".", 1, ""))
        return fail(EX_NOINPUT, "'%s' is a file of a model: name its directory, --init_from=%s", path, folder);
    return fail(EX_NOINPUT,
                "'%s' is a file, and a model is a directory: from nanoGPT's ckpt.pt or llm.c's .bin one is made by "
                "`millrace import -o DIR %s`, for --init_from=DIR",
                path, path);
}

int model_refuse(const char *path) {
    char same[PATH_MAX_BYTES];
    if (!is_model(same, "", 0, path)) return refuse_file(path);
    return fail(EX_NOINPUT,
                "'%s' is a model, not the directory of a run: train, eval, sample and export take it by --init_from=%s",
                path, path);
}

int model_directory(char path[PATH_MAX_BYTES], const char *init_from, const char *out_dir) {
    char folder[PATH_MAX_BYTES];
    uint64_t step;
    if (!is_model(path, "", 0, init_from) && checkpoint_any(init_from, path, &step))
        return fail(EX_NOINPUT, "'%s' is a run: name its checkpoint, as '%s'", init_from, path);
    const bool found = find_model(path, init_from, out_dir, folder);
    const Bytes name = {(const uint8_t *)path, strlen(path)};
    if (found && utf8_valid(name) < name.size) // state.json could not hold it
        return fail(EX_USAGE, "the path of the model, '%s', is not UTF-8: name it by another path", path);
    if (refuse_file(found ? path : init_from) < 0) return -1;
    if (found) return checkpoint_verify_model(path);
    return fail(EX_NOINPUT,
                "there is no directory '%s' here, beside '%s' or in $MILLRACE_MODELS: put config.json and "
                "model.safetensors of the model '%s' into '%s%s'",
                init_from, out_dir, init_from, folder, init_from);
}

int model_config_resolve(ConfigReader *reader, bool resume) {
    Config *config = &reader->config;
    Config model = *config;
    char path[PATH_MAX_BYTES], folder[PATH_MAX_BYTES];
    uint64_t step;
    if (!strcmp(config->init_from, "scratch")) return 0;
    if (resume && checkpoint_any(config->out_dir, path, &step)) {
        char first[PATH_MAX_BYTES]; // of the initial weights, which the run no longer needs
        if (strcmp(config->init_from, "resume") && find_model(first, config->init_from, config->out_dir, folder))
            config->init_from = arena_copy_string(&reader->strings, first);
        if (model_config_read(&model, path) == 0) return model_config_apply(reader, path, true);
        if (err_code() != EX_DATA && err_code() != EX_NOINPUT) return -1;
        err_clear(); // damaged: reported when the checkpoint is loaded
    }
    if (!strcmp(config->init_from, "resume")) return 0; // without a checkpoint: reported by run_open
    if (model_directory(path, config->init_from, config->out_dir) < 0) return -1;
    config->init_from = arena_copy_string(&reader->strings, path);
    return model_config_apply(reader, path, true);
}
