// export-tokens: writes the token files of other tools.
#include "common/err.h"
#include "common/file/folder.h"
#include "common/log.h"
#include "shardtool/interchange/interchange.h"
#include "shardtool/support/dataset_vocabulary.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static InterchangeOptions to = {.format = INTERCHANGE_NONE};
static uint64_t file_tokens = 100000000; // as llm.c's own scripts write
static const char *output;
static bool force;

static const Option options[] = {
    ROWS_INTERCHANGE(&to),
    {OPT_STRING, "o,output", &output, "DIR", "directory to create, with files train* and val*"},
    {OPT_SIZE, "shard-tokens", &file_tokens, "N", "ids per file of llmc"},
    {OPT_FLAG, "force", &force, NULL, "replace the files of an earlier export"},
    ROW_END,
};

static int name_tokenizer(TokenReader *tokens, char name[65]) {
    const ShardFile *shard = token_reader_shard(tokens, 0);
    if (!shard) return -1;
    if (vocab_is_gpt2_fingerprint(shard->vocab_fp))
        snprintf(name, 65, "gpt2");
    else
        hex_encode(name, shard->vocab_fp, 32);
    return 0;
}

static int export_path(const Interchange *format, const char *path, const char *folder) {
    bool any = false;
    for (int split = 0; split < (dataset_is(path) ? SPLIT_COUNT : 1); split++) {
        TokenReader tokens;
        if (token_reader_open(&tokens, path, split) < 0) return -1;
        char tokenizer[65];
        Exporter exporter = {.tokens = &tokens,
                             .tokenizer = tokenizer,
                             .folder = folder,
                             .name = split_names[split],
                             .file_tokens = file_tokens,
                             .eot_before = interchange_eot_before(&to)};
        int status = tokens.tokens ? name_tokenizer(&tokens, tokenizer) : 0;
        if (status == 0 && tokens.tokens) status = exporter_run(&exporter, format->write);
        any |= tokens.tokens > 0;
        token_reader_close(&tokens);
        if (status < 0) return -1;
    }
    return any ? 0 : fail(EX_NOINPUT, "'%s' has no tokens", path);
}

// The formats hold ids alone: the file of a vocabulary other than GPT-2's goes beside them. import-tokens reads it.
static int find_vocabulary(const char *path, char file[PATH_MAX_BYTES]) {
    Dataset dataset;
    *file = '\0';
    if (!dataset_is(path)) return 0;
    if (dataset_open(&dataset, path) < 0) return -1;
    const int status = dataset_vocabulary_find(file, &dataset);
    dataset_close(&dataset);
    return status;
}

static int export_vocabulary(const char *file, const char *folder) {
    if (*file) log_line("the ids are those of '%s', which is written beside them", strrchr(file, '/') + 1);
    return dataset_vocabulary_copy(folder, file);
}

static int run(int count, char **arguments) {
    if (count != 1) return fail(EX_USAGE, "expected exactly one PATH of a shard or dataset");
    const Interchange *format = interchange_choose(&to);
    if (!format) return -1;
    if (!output) return fail(EX_USAGE, "missing -o DIR");
    if (file_tokens < 1 || file_tokens > INT32_MAX)
        return fail(EX_USAGE, "--shard-tokens %" PRIu64 " is not between 1 and %d", file_tokens, INT32_MAX);
    char vocabulary[PATH_MAX_BYTES];
    if (find_vocabulary(arguments[0], vocabulary) < 0) return -1;
    Buffer pattern = {0};
    interchange_pattern(&pattern);
    NewFolder folder;
    int status = newfolder_open(&folder, output, force, (const char *)pattern.data);
    buffer_close(&pattern);
    if (status == 0) status = export_path(format, arguments[0], folder.temp);
    if (status == 0) status = export_vocabulary(vocabulary, folder.temp);
    if (status == 0)
        status = newfolder_commit(&folder);
    else
        newfolder_abandon(&folder);
    return status;
}

const Command shardtool_export_tokens = {"export-tokens", "PATH", "write the token files of other tools",
                                         options,         run,    NULL};
