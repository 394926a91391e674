// shardtool: tokenizes documents into shards, and reads, checks and edits shards.
#include "common/cli/cli.h"
#include "common/cli/commands.h"
#include "common/file/cleanup.h"
#include "remote/url_map.h"
#include "shardtool/support/option_rows.h"
#include <signal.h>
#include <stddef.h>

#define DECLARE(name) extern const Command shardtool_##name;
SHARDTOOL_COMMANDS(DECLARE)

// Commands that write datasets.
#define DATASETS "tokenize import-tokens merge filter dedup decontaminate shuffle split"

// Commands that read URLs.
#define URLS "tokenize train-vocabulary decode cat info verify"

static const ManualRow environment[] = {
    {"MILLRACE_ISA", "portable, avx2 or avx512: use no instruction set beyond this one", NULL},
    {"TMPDIR", "folder for temporary files, in place of /tmp", "tokenize train-vocabulary decode dedup shuffle"},
    {"CURL_CA_BUNDLE", "file of the authorities whose certificates are accepted for inputs by URL", URLS},
    {"SSL_CERT_FILE", "the same, if CURL_CA_BUNDLE is not set", URLS},
    {"SSL_CERT_DIR", "folder of authorities, beside that file", URLS},
    {"https_proxy", "proxy for inputs by URL, as for curl; no_proxy lists hosts without it", URLS},
    {NULL, NULL, NULL},
};
static const ManualRow files[] = {
    {"DIR/dataset.jsonl", "the manifest of the dataset DIR: a line for the dataset, then one for each shard", DATASETS},
    {"DIR/train/000/000000.zst", "a shard of the training split; shards of the validation split are below DIR/val",
     DATASETS},
    {"DIR/skipped.jsonl", "the damaged inputs that tokenize skipped (--max-bad)", "tokenize"},
    {"DIR/vocabulary.tiktoken",
     "the tokens of a vocabulary in base64 with their ids; beside it vocabulary.json, and tokenizer.json for other "
     "tools",
     "train-vocabulary"},
    {"DIR/.counting", "the state of an unfinished train-vocabulary, with the counts in DIR/.counts-*",
     "train-vocabulary"},
    {"DIR/.journal", "the state of an unfinished tokenize, from which the same command continues", "tokenize"},
    {NULL, NULL, NULL},
};
static const ManualRow descriptions[] = {
    {"tokenize",
     "Inputs are files, folders and archives in any nesting: text, JSON lines, Parquet, tar, zip, gzip, bzip2, xz, "
     "zstd. Every document ends with <|endoftext|>. Its hash decides whether it is for training or validation. A run "
     "that was stopped or killed continues when the same command is repeated.",
     NULL},
    {"merge",
     "The shards of the result are hard links, or copies where the file system refuses links. The datasets must have one "
     "vocabulary. They may have been made with different options, or by import-tokens, filter and other commands.",
     NULL},
    {"decode",
     "Prints the training split of a dataset, or the split of --split. With --json or -0 a PATH is a dataset or shard, or "
     "else an input, as for tokenize. Without them a PATH is a dataset, a shard, or a file of ids.",
     NULL},
    {"cat", "Reads the training split of a dataset, or the split of --split. A shard has no splits.", NULL},
    {"dedup",
     "The first of equal documents stays, in the order of the PATHs, training before validation. With --similar X a "
     "document is also removed if it is similar to an earlier one that stays. Two documents are similar if they share "
     "at least X of the sequences of 5 words that the two have together. MinHash finds the documents to compare; the "
     "comparison is exact. Words are compared in lower case, without marks and punctuation, and every number is 0. "
     "Characters of scripts without blanks are words. At 0.8 about 2 of 100 words may differ, at 0.6 about 5. "
     "Documents of fewer than 5 words are removed if all their words are equal. Those without a word stay. --report "
     "names the document that stays for each that is removed. The result is the same for any -j and --memory, and by "
     "--part I/N on any number of machines.",
     NULL},
    {"decontaminate",
     "A document is removed if it has at least half of the sequences of 13 words of an item, whatever else it holds. "
     "An item of 8 to 12 words has to occur whole. Shorter items are counted, but not searched for. Words are as "
     "in dedup --similar. The report has the item with the greatest share, and the words of the first sequence that "
     "was found.",
     NULL},
    {"diff",
     "Compares the files of shards. With --ids it compares the ids alone, so shards that are cut in other places "
     "are equal.",
     NULL},
    {NULL, NULL, NULL},
};
static const ManualRow examples[] = {
    {"tokenize -o data --val 0.01 books", "tokenizes all files of a folder; 1 % of the documents are for validation",
     NULL},
    {"tokenize -o web --where 'language_score >= 0.65' web.parquet",
     "chooses documents by the columns of a Parquet file", NULL},
    {"train-vocabulary -V 2048 -o vocabulary books", "learns a vocabulary of 2,048 ids from a folder", NULL},
    {"train-vocabulary --characters books > abc.txt", "writes a vocabulary of characters, for tokenize --vocabulary",
     NULL},
    {"decode --json --include '*a' books | jq -r .text", "prints the documents of some files", NULL},
    {"tokenize --ids book.txt", "prints the ids of a text", NULL},
    {"decode data --doc 7", "prints the text of one document", NULL},
    {"cat -o whole.zst data", "writes the shards of the training split as one", NULL},
    {"info data", "prints tokens, documents, compression ratio and fingerprints", NULL},
    {"info --shards data", "lists the shards", NULL},
    {"info --ids data | head", "prints the ten most frequent ids", NULL},
    {"verify data", "exits with 1 if a bit of a shard is wrong", NULL},
    {"verify --rebuild saved.zst whole.zst", "copies what is undamaged of a shard", NULL},
    {"cat --ids data 0:8 100:108", "prints the first 8 ids, and 8 others", NULL},
    {"cat --random 3:8 --ids data", "prints 8 ids from each of three places", NULL},
    {"diff data web", "exits with 1 if the datasets are not equal", NULL},
    {"export-tokens --format nanogpt -o out data", "writes the files train.bin and val.bin of nanoGPT", NULL},
    {"import-tokens --format nanogpt -o back out", "makes a dataset from train.bin and val.bin", NULL},
    {"filter --min-tokens 64 -o long data", "keeps the documents of at least 64 tokens", NULL},
    {"dedup -o unique data", "keeps one of several equal documents", NULL},
    {"dedup --similar 0.8 --report removed.jsonl -o distinct data", "keeps one of several similar documents", NULL},
    {"dedup --part 1/1 -o data data", "writes the hashes of the documents to data, for --old data", NULL},
    {"dedup --old data -o new web", "keeps the documents that are not in data", NULL},
    {"decontaminate --against book.txt -o clean data", "removes documents that hold lines of a text", NULL},
    {"shuffle --seed 1 -o shuffled data", "writes the documents in random order", NULL},
    {"split --parts 4 -o parts data", "writes four datasets: parts/part-000000 to parts/part-000003", NULL},
    {"merge -o joined parts/part-000000 parts/part-000001", "joins datasets of one vocabulary", NULL},
    {NULL, NULL, NULL},
};

int main(int argc, char **argv) {
#define ROW(name) &shardtool_##name,
    static const Command *const commands[] = {SHARDTOOL_COMMANDS(ROW) NULL};
    static const UrlMapOptions urls = {.remote = &input_filter.remote};
    url_map_enable(&urls);
    static const Program program = {
        .name = "shardtool",
        .installed = "shardtool",
        .summary = "tokenize documents into shards of token ids, and work with shards",
        .commands = commands,
        .environment = environment,
        .files = files,
        .descriptions = descriptions,
        .examples = examples,
        .see_also = "millrace-loader(1), millrace-trainer(1), millrace-shard(5)",
    };
    cleanup_on_signals();
    signal(SIGXFSZ, SIG_IGN); // a write beyond `ulimit -f` is an error with a message
    return cli_main(&program, argc, argv);
}
