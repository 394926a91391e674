// trainer import: a model of nanoGPT or llm.c as a directory that init_from names.
#include "common/err.h"
#include "common/folder.h"
#include "common/log.h"
#include "trainer/import/foreign_model.h"
#include "trainer/run/export.h"
#include "trainer/trainer_commands.h"
#include <stdio.h>

static const char *output = NULL;
static enum { GELU_WORD_EXACT, GELU_WORD_TANH } gelu = GELU_WORD_EXACT;
static const Option options[] = {
    {OPT_STRING, "o",    &output, "DIR",        "the directory to make"                           },
    {OPT_WORD,   "gelu", &gelu,   "exact|tanh",
     "form of GELU of a ckpt.pt, which does not tell it: tanh before nanoGPT took nn.GELU in 2023"},
    {OPT_END,    NULL,   NULL,    NULL,         NULL                                              },
};

static int write_directory(const ForeignModel *foreign) {
    char path[PATH_MAX_BYTES];
    NewFolder folder;
    if (newfolder_open(&folder, output, false, NULL) < 0) return -1;
    snprintf(path, sizeof path, "%.*s/model.safetensors", PATH_MAX_BYTES - 32, folder.temp);
    int result = foreign_write(foreign, path);
    if (result == 0) result = export_finish(folder.temp, &foreign->model.shape, DTYPE_FP32);
    if (result == 0) result = newfolder_commit(&folder);
    newfolder_abandon(&folder);
    return result < 0 ? fail_in("import to '%s'", output) : 0;
}

static int run(int count, char **files) {
    ForeignModel foreign;
    char parameters[16];
    if (!output) return fail(EX_USAGE, "missing -o DIR");
    if (count != 1) return fail(EX_USAGE, "name one file: a ckpt.pt of nanoGPT or a .bin of llm.c");
    if (foreign_open(&foreign, files[0], gelu == GELU_WORD_EXACT) < 0) return -1;
    const int vocab = foreign.model.shape.vocab;
    int result = 0;
    if (vocab != GPT2_VOCAB)
        result = fail(EX_PROTOCOL, "'%s': the vocabulary has %d ids, and GPT-2's has %d", files[0], vocab, GPT2_VOCAB);
    if (result == 0) result = write_directory(&foreign);
    if (result == 0)
        log_line("imported the weights of '%s' (%s, %s parameters) to '%s'; the optimizer's state is not imported",
                 files[0], foreign.format, human_count(parameters, (double)foreign.model.parameters), output);
    foreign_close(&foreign);
    return result;
}

const Command trainer_import = {
    "import", "-o DIR FILE", "read the weights of nanoGPT's ckpt.pt or llm.c's .bin, for init_from and other tools",
    options,  run,           NULL};
