// Finding the vocabulary of a model.
#include "trainer/setup/vocabulary.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/setup/loader_process.h"
#include "trainer/shape/params.h"
#include <string.h>
#include <unistd.h>

// A checkpoint lies in the directory of its run, which has the file.
static bool find_model_file(char path[PATH_MAX_BYTES], const char *model) {
    char run[PATH_MAX_BYTES];
    path_join(run, model, "..");
    return vocab_file_in(path, model) || vocab_file_in(path, run);
}

static bool find_file(char path[PATH_MAX_BYTES], const Config *config, const char *model) {
    char dataset[PATH_MAX_BYTES];
    if (*config->dataset && !*config->loader && loader_process_dataset(dataset, config) && vocab_file_in(path, dataset))
        return true;
    if (!config->vocab_size) return false;
    if (model) return find_model_file(path, model);
    return vocab_file_in(path, config->out_dir) || find_model_file(path, config->init_from);
}

static int state_fingerprint(const char *model, uint8_t fingerprint[32]) {
    SavedState saved;
    const int result = saved_state_read(&saved, model);
    memcpy(fingerprint, saved.state.vocab_fp, 32);
    saved_state_close(&saved);
    return result;
}

// The vocabulary of a model of init_from. NULL, maybe after fail(), if it is not known.
static const Vocab *open_model_vocabulary(const Config *config, const char *model) {
    char path[PATH_MAX_BYTES];
    uint8_t of_state[32];
    path_join(path, model, "state.json");
    const bool has_state = access(path, F_OK) == 0;
    if (has_state && state_fingerprint(model, of_state) < 0) return NULL;
    const bool has_file = (has_state ? find_model_file : vocab_file_in)(path, model);
    Config keys = *config; // not vocab_size of `config`, which a replay has from the run
    if (!has_file && (model_config_read(&keys, model) < 0 || keys.vocab_size)) return NULL;
    const Vocab *vocab = has_file ? vocab_open_path(path, NULL) : vocab_open();
    if (!vocab || !has_state || vocab_has_fingerprint(vocab, of_state)) return vocab;
    vocab_close(vocab);
    return NULL;
}

// The conversation markers of the vocabulary that init_from's model lacks. 0 also if they differ by other tokens.
static unsigned added_turns(const Config *config, const Vocab *vocab) {
    uint8_t own[32];
    if (!vocab_turns(vocab).known || !strcmp(config->init_from, "scratch") || !strcmp(config->init_from, "resume"))
        return 0;
    const Vocab *other = open_model_vocabulary(config, config->init_from);
    const unsigned size = other ? vocab_size(other) : 0;
    if (other) other = vocab_with_turns(other);
    err_clear();
    if (!other) return 0;
    vocab_fingerprint(vocab, own);
    const bool same = vocab_has_fingerprint(other, own);
    vocab_close(other);
    return same ? vocab_size(vocab) - size : 0;
}

// loss_tokens=answers requires a vocabulary with the markers of turns, which separate answers from prompts.
static int check_turns(const Config *config) {
    char dataset[PATH_MAX_BYTES];
    if (config->loss_tokens == LOSS_ALL || config->turns.known) return 0;
    if (*config->dataset && !*config->loader && !loader_process_dataset(dataset, config))
        return loader_process_no_dataset(config->dataset);
    return fail(
        EX_USAGE,
        "loss_tokens is answers, and the vocabulary has no <|user|> and <|assistant|>: make the dataset by millrace "
        "tokenize --turns, or name the tokenizer.json of one that was by --vocabulary");
}

// Fails with 76 when the model in a directory was trained with another vocabulary: a checkpoint has its fingerprint, an
// exported model its file.
static int check_model(const Config *config, const Vocab *vocab, const char *model) {
    uint8_t own[32], of_model[32];
    char path[PATH_MAX_BYTES];
    vocab_fingerprint(vocab, own);
    path_join(path, model, "state.json");
    if (access(path, F_OK) == 0) {
        if (state_fingerprint(model, of_model) < 0) return -1;
    } else if (vocab_file_in(path, model)) {
        const Vocab *other = vocab_open_path(path, NULL);
        if (!other) return -1;
        vocab_fingerprint(other, of_model);
        vocab_close(other);
    } else
        return 0;
    if (!memcmp(own, of_model, sizeof own)) return 0;
    return fail(EX_PROTOCOL,
                "'%s' is another vocabulary than that with which the model in '%s' was trained: name the right file by "
                "--vocabulary",
                config->vocabulary, model);
}

static int resolve(ConfigReader *reader, const char *model) {
    Config *config = &reader->config;
    char path[PATH_MAX_BYTES];
    if (!*config->vocabulary && find_file(path, config, model))
        config->vocabulary = arena_copy_string(&reader->strings, path);
    if (!*config->vocabulary && config->vocab_size == GPT2_VOCAB && config_is_set(reader, KEY_vocab_size))
        config->vocab_size = 0;
    if (!*config->vocabulary && !config->vocab_size) return 0;
    if (!*config->vocabulary && config->vocab_size == padded_vocab(GPT2_VOCAB)) { // as nanoGPT sets it
        log_line("vocab_size %lld is GPT-2's %d with padding, which is added here", (long long)config->vocab_size,
                 GPT2_VOCAB);
        return config->vocab_size = 0, 0;
    }
    if (!*config->vocabulary)
        return fail(EX_NOINPUT,
                    "the model has a vocabulary of %lld ids: name its " CHARACTERS_FILE " or " VOCAB_FILE
                    " by --vocabulary",
                    (long long)config->vocab_size);
    const Vocab *vocab = vocabulary_open(config);
    if (!vocab) return -1;
    const int64_t size = vocab_size(vocab);
    const bool is_gpt2 = vocab_is_gpt2(vocab);
    int result = 0;
    config->added_ids = model ? 0 : added_turns(config, vocab);
    if (config->vocab_size && config->vocab_size != size && !config->added_ids)
        result = fail(EX_PROTOCOL, "'%s' has a vocabulary of %lld ids, and the model one of %lld", config->vocabulary,
                      (long long)size, (long long)config->vocab_size);
    if (result == 0 && !config->added_ids) result = check_model(config, vocab, model ? model : config->init_from);
    config->end_of_text = vocab_end_of_text(vocab), config->turns = vocab_turns(vocab);
    vocab_close(vocab);
    if (result < 0) return -1;
    config->vocab_size = is_gpt2 ? 0 : size;
    if (is_gpt2) config->vocabulary = "";
    return 0;
}

int vocabulary_resolve(ConfigReader *reader, const char *model) {
    return resolve(reader, model) < 0 ? -1 : check_turns(&reader->config);
}

const Vocab *vocabulary_open(const Config *config) {
    return *config->vocabulary ? vocab_open_path(config->vocabulary, NULL) : vocab_open();
}

int vocabulary_token_bytes(const Config *config, uint8_t bytes[IDS_MAX]) {
    const Vocab *vocab = vocabulary_open(config);
    if (!vocab) return -1;
    memset(bytes, 0, vocab_size(vocab));
    for (unsigned id = 0; id < vocab_size(vocab); id++)
        if (!vocab_is_special(vocab, id)) bytes[id] = (uint8_t)vocab_bytes(vocab, id).size;
    vocab_close(vocab);
    return 0;
}

int vocabulary_fingerprint(const Config *config, uint8_t fingerprint[32]) {
    if (!*config->vocabulary) return 0;
    const Vocab *vocab = vocabulary_open(config);
    if (!vocab) return -1;
    vocab_fingerprint(vocab, fingerprint);
    vocab_close(vocab);
    return 0;
}

int vocabulary_check(const Config *config, const FeedDataset *dataset) {
    const uint32_t ids = config->vocab_size ? (uint32_t)config->vocab_size : GPT2_VOCAB;
    const bool is_gpt2 = vocab_is_gpt2_fingerprint(dataset->vocab_fp);
    uint8_t own[32];
    memcpy(own, dataset->vocab_fp, sizeof own);
    if (vocabulary_fingerprint(config, own) < 0) return -1;
    if (dataset->vocab_size == ids && (*config->vocabulary || is_gpt2)) {
        if (!memcmp(own, dataset->vocab_fp, sizeof own)) return 0;
        return fail(EX_PROTOCOL,
                    "the dataset '%s' has another vocabulary than '%s', of as many ids: name the " CHARACTERS_FILE
                    " or " VOCAB_FILE " of the dataset by --vocabulary",
                    dataset->name, config->vocabulary);
    }
    if (dataset->vocab_size == ids)
        return fail(EX_PROTOCOL,
                    "the dataset '%s' has another vocabulary than GPT-2's, of as many ids as the model: name "
                    "its " CHARACTERS_FILE " or " VOCAB_FILE " by --vocabulary",
                    dataset->name);
    return fail(EX_PROTOCOL,
                "the dataset '%s' has a vocabulary of %u ids, and the model one of %u: name the " CHARACTERS_FILE
                " or " VOCAB_FILE " of the dataset by --vocabulary",
                dataset->name, dataset->vocab_size, ids);
}

int vocabulary_keep(const Config *config, const char *directory) {
    if (!*config->vocabulary) return 0;
    const Vocab *vocab = vocabulary_open(config);
    if (!vocab) return -1;
    const int status = vocab_file_write(vocab, directory);
    vocab_close(vocab);
    return status;
}
