// trainer import: a model of nanoGPT or llm.c as a directory that init_from names.
#include "common/cli/cli.h"
#include "common/err.h"
#include "common/file/folder.h"
#include "common/log.h"
#include "trainer/export/export.h"
#include "trainer/import/foreign_model.h"
#include "trainer/import/nanogpt_meta.h"
#include "trainer/setup/vocabulary.h"
#include <stdio.h>

static const char *output = NULL, *characters = NULL;
static enum { GELU_WORD_EXACT, GELU_WORD_TANH } gelu = GELU_WORD_EXACT;
static const Option options[] = {
    {OPT_STRING, "o", &output, "DIR", "the directory to make"},
    {OPT_STRING, "characters", &characters, "FILE",
     "of a model of characters: the meta.pkl of nanoGPT's data, or a file of the characters in the order of their ids"},
    {OPT_WORD, "gelu", &gelu, "exact|tanh",
     "form of GELU of a ckpt.pt, which does not tell it: tanh before nanoGPT took nn.GELU in 2023"},
    {OPT_END, NULL, NULL, NULL, NULL},
};

// Reads the characters of a model with another vocabulary than GPT-2's to `text`, and sets the shape to their number.
// nanoGPT has no end of a text among them: it becomes the last id.
static int take_characters(Buffer *text, ModelShape *shape, const char *file) {
    const int ids = shape->vocab;
    if (ids == GPT2_VOCAB)
        return characters ? fail(EX_USAGE, "--characters, and '%s' has the vocabulary of GPT-2", file) : 0;
    if (!characters)
        return fail(
            EX_PROTOCOL,
            "'%s': the vocabulary has %d ids, and GPT-2's has %d: name the characters of the ids by --characters, "
            "which reads the meta.pkl beside nanoGPT's data",
            file, ids, GPT2_VOCAB);
    if (nanogpt_characters(text, characters) < 0) return -1;
    const Vocab *vocab = vocab_open_characters_text((Bytes){text->data, text->size}, characters);
    if (!vocab) return -1;
    shape->vocab = (int)vocab_size(vocab), shape->padded_vocab = padded_vocab(shape->vocab);
    shape->end_of_text = (int)vocab_end_of_text(vocab);
    vocab_close(vocab);
    if (ids == shape->vocab || ids == shape->vocab - 1) return 0;
    return fail(EX_PROTOCOL, "'%s' has %d characters, and the model in '%s' %d ids", characters, shape->vocab - 1, file,
                ids);
}

static int write_directory(const ForeignModel *foreign, const ModelShape *shape, const Buffer *text) {
    char path[PATH_MAX_BYTES];
    NewFolder folder;
    if (newfolder_open(&folder, output, false, NULL) < 0) return -1;
    snprintf(path, sizeof path, "%.*s/model.safetensors", PATH_MAX_BYTES - 32, folder.temp);
    int result = foreign_write(foreign, path, shape);
    snprintf(path, sizeof path, "%.*s/" CHARACTERS_FILE, PATH_MAX_BYTES - 32, folder.temp);
    if (result == 0 && text->size) result = file_write(path, (Bytes){text->data, text->size});
    if (result == 0) result = export_finish(folder.temp, shape, DTYPE_FP32);
    if (result == 0) result = newfolder_commit(&folder);
    newfolder_abandon(&folder);
    return result < 0 ? fail_in("import to '%s'", output) : 0;
}

static int run(int count, char **files) {
    ForeignModel foreign;
    Buffer text = {0};
    char parameters[16];
    if (!output) return fail(EX_USAGE, "missing -o DIR");
    if (count != 1) return fail(EX_USAGE, "name one file: a ckpt.pt of nanoGPT or a .bin of llm.c");
    if (foreign_open(&foreign, files[0], gelu == GELU_WORD_EXACT) < 0) return -1;
    ModelShape shape = foreign.model.shape;
    int result = take_characters(&text, &shape, files[0]);
    if (result == 0) result = write_directory(&foreign, &shape, &text);
    if (result == 0)
        log_line("imported the weights of '%s' (%s, %s parameters) to '%s'; the optimizer's state is not imported",
                 files[0], foreign.format, human_count(parameters, (double)foreign.model.parameters), output);
    buffer_close(&text);
    foreign_close(&foreign);
    return result;
}

const Command trainer_import = {
    "import", "-o DIR FILE", "read the weights of nanoGPT's ckpt.pt or llm.c's .bin, for init_from and other tools",
    options,  run,           NULL};
