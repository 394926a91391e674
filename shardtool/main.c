// shardtool: tokenizes documents into shards, and reads, checks and edits shards.
#include "common/cli/cli.h"
#include "common/file/cleanup.h"
#include <signal.h>
#include <stddef.h>

#define COMMANDS(X)                                                                                                    \
    X(tokenize)                                                                                                        \
    X(characters)                                                                                                      \
    X(text)                                                                                                            \
    X(encode)                                                                                                          \
    X(decode)                                                                                                          \
    X(cat)                                                                                                             \
    X(info)                                                                                                            \
    X(verify)                                                                                                          \
    X(get)                                                                                                             \
    X(sample) X(hist) X(diff) X(merge) X(index) X(import) X(export) X(ls) X(stat) X(filter) X(dedup) X(shuffle) X(split)

#define DECLARE(name) extern const Command shardtool_##name;
COMMANDS(DECLARE)

static const ManualRow environment[] = {
    {"MILLRACE_ISA", "portable, avx2 or avx512: use no instruction set beyond this one"},
    {"TMPDIR", "folder for temporary files, in place of /tmp"},
    {NULL, NULL},
};
static const ManualRow files[] = {
    {"DIR/dataset.jsonl", "the manifest of the dataset DIR: a line for the dataset, then one for each shard"},
    {"DIR/train/000/000000.zst", "a shard of the training split; those of the validation split are below DIR/val"},
    {"DIR/skipped.jsonl", "the damaged inputs that tokenize skipped (--max-bad, --keep-going)"},
    {"DIR/.journal", "the state of an unfinished tokenize, from which the same command continues"},
    {NULL, NULL},
};
static const ManualRow examples[] = {
    {"tokenize -o data --val 0.01 books", "tokenizes all files of a folder; 1 % of the documents are for validation"},
    {"tokenize -o web --where 'language_score >= 0.65' web.parquet",
     "chooses documents by the columns of a Parquet file"},
    {"info data", "prints tokens, documents, compression ratio and fingerprints"},
    {"decode data --doc 7", "prints the text of one document"},
    {"filter --min-tokens 64 -o long data", "keeps the documents of at least 64 tokens"},
    {"export --to nanogpt -o out data", "writes the files train.bin and val.bin of nanoGPT"},
    {NULL, NULL},
};

int main(int argc, char **argv) {
#define ROW(name) &shardtool_##name,
    static const Command *const commands[] = {COMMANDS(ROW) NULL};
    static const Program program = {
        .name = "shardtool",
        .summary = "tokenize documents into shards of token ids, and work with shards",
        .commands = commands,
        .environment = environment,
        .files = files,
        .examples = examples,
    };
    cleanup_on_signals();
    signal(SIGXFSZ, SIG_IGN); // a write beyond `ulimit -f` is an error with a message
    return cli_main(&program, argc, argv);
}
