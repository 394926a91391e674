// import-tokens: makes a dataset from the token files of other tools. Every header is checked before use.
#include "common/err.h"
#include "common/file/file.h"
#include "remote/url_map.h"
#include "shardtool/interchange/interchange.h"
#include "shardtool/support/dataset_vocabulary.h"
#include "shardtool/support/source_overlap.h"
#include "shardtool/support/vocabulary_options.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static InterchangeOptions from = {.format = INTERCHANGE_NONE};
static VocabularyOptions vocabulary;

static const Option options[] = {
    ROWS_INTERCHANGE(&from),
    VOCABULARY_ROWS(&vocabulary),
    ROWS_OUTPUT,
    ROW_END,
};

static bool is_val(const char *word, size_t length) {
    static const char *const words[] = {"val", "valid", "validation"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (length == strlen(words[i]) && !memcmp(word, words[i], length)) return true;
    return false;
}

// Files of the validation split: val.bin, fineweb_val_000000.bin and text_validation_document.bin, but not
// medieval.bin; and files in a folder val, except a file that is named after training.
static int split_of(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (const char *word = name; *word;) {
        size_t length = 0;
        while (isalpha((unsigned char)word[length])) length++;
        if (is_val(word, length)) return SPLIT_VAL;
        if (length == 5 && !memcmp(word, "train", 5)) return SPLIT_TRAIN;
        word += length ? length : 1;
    }
    for (const char *folder = path; folder < name; folder += strcspn(folder, "/") + 1)
        if (is_val(folder, strcspn(folder, "/"))) return SPLIT_VAL;
    return SPLIT_TRAIN;
}

// Chooses the files to read, and counts them for each split: the index beside a file, or a README found in a folder, is
// not read.
static int choose_files(const Interchange *format, const Inputs *inputs, bool *chosen, uint64_t counts[SPLIT_COUNT]) {
    char path[PATH_MAX_BYTES], extension[16];
    interchange_extension(format, extension);
    for (uint64_t i = 0; i < inputs->file_count; i++) {
        input_path(inputs, &inputs->files[i], path);
        const bool fits = path_ends(path, extension);
        chosen[i] = fits || !*input_folder(inputs, &inputs->files[i])->path;
        if (chosen[i] && format->has_index && !fits)
            return fail(EX_USAGE, "'%s' does not end in %s, which the name of its index is made from", path, extension);
        if (chosen[i]) counts[split_of(path)]++;
    }
    if (counts[SPLIT_TRAIN] + counts[SPLIT_VAL] > 0) return 0;
    return fail(EX_NOINPUT, "no input file ends in %s", extension);
}

static int import_file(Importer *importer, const Interchange *format, const Inputs *inputs, uint64_t number) {
    char path[PATH_MAX_BYTES];
    input_path(inputs, &inputs->files[number], path);
    Bytes file;
    if (url_map_file(&file, path) < 0) return -1;
    importer->path = path, importer->split = split_of(path);
    importer->position = (InputPosition){.file = number};
    importer->id_bytes = id_bytes(importer->vocab_size);
    int status = format->read(importer, file);
    file_unmap(&file);
    return status < 0 ? fail_in("'%s'", path) : 0;
}

static int import_files(Importer *importer, const Interchange *format, const Inputs *inputs) {
    bool *chosen = allocate_zeroed(inputs->file_count + 1, sizeof *chosen);
    uint64_t counts[SPLIT_COUNT] = {0};
    int status = choose_files(format, inputs, chosen, counts);
    if (status == 0 && importer->output.to_stdout && counts[SPLIT_TRAIN] && counts[SPLIT_VAL])
        status = fail(EX_USAGE, "-o - takes one split: the inputs hold train and val files");
    for (uint64_t i = 0; status == 0 && i < inputs->file_count; i++)
        if (chosen[i]) status = import_file(importer, format, inputs, i);
    free(chosen);
    if (status < 0 || importer_finish(importer) < 0) return -1;
    log_line("read %" PRIu64 " train and %" PRIu64 " val files", counts[SPLIT_TRAIN], counts[SPLIT_VAL]);
    return output_finish(&importer->output);
}

// Finds the file of the ids' vocabulary, as export leaves it beside them. 0 also without one.
static int find_vocabulary(const Inputs *inputs, char path[PATH_MAX_BYTES]) {
    for (uint64_t i = 0; i < inputs->argument_count; i++) {
        const char *argument = inputs->arguments[i].path, *slash = strrchr(argument, '/');
        char folder[PATH_MAX_BYTES], meta[PATH_MAX_BYTES];
        struct stat status;
        if (stat(argument, &status) == 0 && S_ISDIR(status.st_mode))
            snprintf(folder, sizeof folder, "%s", argument);
        else
            snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - argument) : 1, slash ? argument : ".");
        if (dataset_vocabulary_in(path, folder)) return 0;
        if (access(path_join(meta, folder, "meta.pkl"), F_OK) == 0)
            return fail(
                EX_DATA,
                "'%s' is beside the ids, which are of its characters and not of GPT-2's vocabulary: name a text "
                "of these characters in their order (--vocabulary), as the characters.txt that millrace import "
                "writes, or make the dataset from the text (millrace train-vocabulary --characters, tokenize)",
                meta);
    }
    *path = '\0';
    return 0;
}

// The vocabulary that options name, the one of a file beside the ids, or GPT-2's.
static const Vocab *open_vocabulary(const Inputs *inputs) {
    char path[PATH_MAX_BYTES];
    if (vocabulary.vocabulary) return vocabulary_options_open(&vocabulary);
    if (find_vocabulary(inputs, path) < 0) return NULL;
    if (!*path)
        log_line("the ids are taken as GPT-2's: --vocabulary names another vocabulary");
    else
        log_line("the ids are of '%s'", path);
    return *path ? vocabulary_path_open(path, NULL) : vocab_open();
}

static int import_inputs(const Interchange *format, const Inputs *inputs) {
    char eot[16], settings[64];
    word_print(EOT_WORDS, from.eot, eot, sizeof eot);
    snprintf(settings, sizeof settings, "from=%s;eot=%s", format->name, eot);
    const Vocab *vocab = open_vocabulary(inputs);
    if (!vocab) return -1;
    OutputPlan plan = {.command = "import", // as in datasets of 0.1
                       .settings = settings,
                       .inputs = inputs,
                       .vocab = vocab,
                       .params = {.frame_tokens = SHARD_FRAME_TOKENS,
                                  .vocab_size = vocab_size(vocab),
                                  .eot_id = vocab_end_of_text(vocab)},
                       .val = "0"};
    vocab_fingerprint(vocab, plan.params.vocab_fp);

    static Importer importer;
    importer.vocab_size = plan.params.vocab_size, importer.end_of_text = plan.params.eot_id;
    importer.eot_before = interchange_eot_before(&from);
    int status = output_open(&importer.output, output_options.path, &plan);
    if (status == 0) status = import_files(&importer, format, inputs);
    output_close(&importer.output);
    return status < 0 ? -1 : 0;
}

static int run(int count, char **arguments) {
    const Interchange *format = interchange_choose(&from);
    Inputs inputs;
    if (!format || inputs_open(&inputs, count, arguments, NULL) < 0) return -1;
    int status = refuse_within_inputs(output_options.path, &inputs, NULL);
    if (status == 0) status = inputs_digest(&inputs);
    if (status == 0) status = import_inputs(format, &inputs);
    inputs_close(&inputs);
    return status;
}

const Command shardtool_import_tokens = {
    "import-tokens",
    "[PATH...]",
    "make a dataset from the token files of other tools; files and folders named val are the validation split",
    options,
    run,
    NULL};
