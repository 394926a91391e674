// trainer import: a model of nanoGPT or llm.c as a directory that init_from names.
#include "common/cli/cli.h"
#include "common/err.h"
#include "common/file/folder.h"
#include "common/log.h"
#include "trainer/export/export.h"
#include "trainer/import/foreign_model.h"
#include "trainer/import/nanogpt_meta.h"
#include "trainer/setup/vocabulary.h"
#include <fnmatch.h>
#include <stdio.h>

static const char *output = NULL, *vocabulary = NULL;
static VocabNames names;
static enum { GELU_WORD_EXACT, GELU_WORD_TANH } gelu = GELU_WORD_EXACT;
static const Option options[] = {
    {OPT_STRING, "o,output", &output, "DIR", "the directory to make"},
    {OPT_STRING, "vocabulary", &vocabulary, "FILE|DIR",
     "of a model of another vocabulary than GPT-2's: tokenizer.json, .tiktoken, a directory that has one, the meta.pkl of "
     "nanoGPT's data, or a file of characters in the order of their ids"},
    {OPT_STRING, "end-of-text", &names.end_of_text, "TOKEN",
     "the special token of --vocabulary that ends a document, if its name does not tell"},
    {OPT_STRING, "pattern", &names.pattern, "NAME", "the pattern of a .tiktoken, as for `millrace tokenize`"},
    {OPT_WORD, "gelu", &gelu, "exact|tanh",
     "form of GELU of a ckpt.pt, which does not tell it: tanh before nanoGPT took nn.GELU in 2023"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

static const Vocab *open_vocabulary(void) {
    Buffer text = {0};
    const Vocab *vocab = NULL;
    if (fnmatch("*.pkl", vocabulary, 0) != 0) return vocab_open_path(vocabulary, &names);
    if (nanogpt_meta_open(&text, vocabulary) == 0)
        vocab = vocab_open_characters_text((Bytes){text.data, text.size}, vocabulary);
    buffer_close(&text);
    return vocab;
}

// Sets the shape to the ids of the vocabulary. The model can have padding, or lack the id that ends a text, which is
// added if a vocabulary has no such id.
static int take_ids(ModelShape *shape, const Vocab *vocab, const char *file) {
    const int ids = shape->vocab, size = (int)vocab_size(vocab);
    const bool lacks_end = ids == size - 1 && (int)vocab_end_of_text(vocab) == ids;
    if (ids != size && !lacks_end && ids != padded_vocab(size))
        return fail(EX_PROTOCOL, "'%s' has %d %s, and the model in '%s' %d ids", vocabulary,
                    size - vocab_is_characters(vocab), vocab_is_characters(vocab) ? "characters" : "ids", file, ids);
    if (lacks_end)
        log_line(
            "the id %d is added for the end of a text, with an embedding of zeros: until it is trained it is never "
            "sampled, and the losses of the other ids are a little higher than in '%s'",
            size - 1, file);
    shape->vocab = size, shape->padded_vocab = padded_vocab(size);
    shape->end_of_text = (int)vocab_end_of_text(vocab), shape->gpt2_vocab = vocab_is_gpt2(vocab);
    return 0;
}

// Opens the vocabulary of the model, NULL if it is GPT-2's.
static int take_vocabulary(const Vocab **vocab, ModelShape *shape, const char *file) {
    if (!vocabulary) {
        if (shape->gpt2_vocab) return 0;
        return fail(EX_PROTOCOL,
                    "'%s': the vocabulary has %d ids, and GPT-2's has %d: name its tokenizer.json, or the meta.pkl "
                    "beside nanoGPT's data, by --vocabulary",
                    file, shape->vocab, GPT2_VOCAB);
    }
    *vocab = open_vocabulary();
    return *vocab ? take_ids(shape, *vocab, file) : -1;
}

static int write_vocabulary(const Vocab *vocab, const char *directory) {
    return vocab && !vocab_is_gpt2(vocab) ? vocab_file_write(vocab, directory) : 0;
}

static int write_directory(const ForeignModel *foreign, const ModelShape *shape, const Vocab *vocab) {
    char path[PATH_MAX_BYTES];
    NewFolder folder;
    if (newfolder_open(&folder, output, false, NULL) < 0) return -1;
    int result = foreign_write(foreign, path_join(path, folder.temp, "model.safetensors"), shape);
    if (result == 0) result = write_vocabulary(vocab, folder.temp);
    if (result == 0) result = export_finish(folder.temp, shape, DTYPE_FP32);
    if (result == 0) result = newfolder_commit(&folder);
    newfolder_abandon(&folder);
    return result < 0 ? fail_in("import to '%s'", output) : 0;
}

static int run(int count, char **files) {
    ForeignModel foreign;
    const Vocab *vocab = NULL;
    char parameters[16];
    if (!output) return fail(EX_USAGE, "missing -o DIR");
    if (count != 1) return fail(EX_USAGE, "name one file: a ckpt.pt of nanoGPT or a .bin of llm.c");
    if (foreign_open(&foreign, files[0], gelu == GELU_WORD_EXACT) < 0) return -1;
    ModelShape shape = foreign.model.shape;
    int result = take_vocabulary(&vocab, &shape, files[0]);
    if (result == 0) result = write_directory(&foreign, &shape, vocab);
    if (result == 0)
        log_line("imported the weights of '%s' (%s, %s parameters) to '%s'; the optimizer's state is not imported",
                 files[0], foreign.format, human_count(parameters, (double)foreign.model.parameters), output);
    vocab_close(vocab);
    foreign_close(&foreign);
    return result;
}

const Command trainer_import = {
    "import", "-o DIR FILE", "read the weights of nanoGPT's ckpt.pt or llm.c's .bin, for init_from and other tools",
    options,  run,           NULL};
