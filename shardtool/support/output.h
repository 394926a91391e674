// The dataset, or the shard on standard output, that a command writes from ids that exist already.
#pragma once

#include "common/log.h"
#include "dataset/dataset_build.h"
#include "dataset/lineage.h"
#include "shardtool/pipeline/shard_sink.h"
#include "shardtool/support/option_rows.h"
#include "tokenizer/files/vocab_file.h"

// The options of all these commands.
typedef struct {
    const char *path;
    uint64_t threads, shard_tokens;
    int split; // of filter, dedup and shuffle: 0 = all, else its number + 1
    bool force;
} OutputOptions;
extern OutputOptions output_options;
#define ROW_OUTPUT                                                                                                     \
    {                                                                                                                  \
        OPT_STRING, "o,output", &output_options.path, "DIR",                                                           \
            "dataset directory to create; - writes one shard to standard output"                                       \
    }
// The rows of its shards: workers and size.
#define ROWS_SHARDS                                                                                                    \
    ROW_JOBS(&output_options.threads), {                                                                               \
        OPT_SIZE, "shard-tokens", &output_options.shard_tokens, "N", "tokens per shard, rounded up to whole frames"    \
    }
#define ROW_OUTPUT_SPLIT                                                                                               \
    { OPT_WORD, "split", &output_options.split, "all|" SPLIT_WORDS, "split to write; all is train alone with -o -" }
#define ROWS_OUTPUT ROW_OUTPUT, ROWS_SHARDS, ROW_REPLACE(&output_options.force)

typedef struct {
    const char *command; // in the manifest, with `settings`: "filter", "min_tokens=5"
    const char *settings;
    const Buffer *history; // of datasets among the inputs (lineage.h), or NULL
    const Inputs *inputs;  // their paths and digests go into the manifest
    const Vocab *vocab;    // of the ids, which output_close closes; NULL: the inputs', which are datasets
    ShardParams params;    // params_fp is computed
    const char *val;       // of the manifest
    uint64_t val_seed;
    uint64_t tokens; // expected, for the progress line; 0 = unknown
} OutputPlan;

typedef struct {
    bool to_stdout;
    DatasetBuild build;
    Dataset dataset;
    ShardSinkOptions shards;
    ShardSink *sink;
    Buffer line, history;      // the manifest's params and history
    const Vocab *vocab;        // of the ids; NULL if it is not known
    uint16_t *id_lengths;      // of each id's text, in bytes; NULL if the vocabulary is not known
    uint64_t document_bytes;   // of the document being added
    bool is_open[SPLIT_COUNT]; // the last document has no end-of-text id
    uint64_t added;
    Progress progress;
} Output;

// Checks the options and prepares `output` at `path` (output_options.path, or a directory below it). 1 when `path`
// holds this very result already, which is logged; 73 when it holds something else and --force was not given.
int output_open(Output *output, const char *path, const OutputPlan *plan);
// Adds ids, of id_bytes(params.vocab_size) each, of document `position` of the inputs. They include the end-of-text
// ids.
int output_add(Output *output, int split, const void *ids, size_t count, InputPosition position);
// Where the next document of a split came from, before its ids.
void output_row(Output *output, int split, Bytes row);
int output_finish(Output *output); // writes the manifest and moves the dataset into place
void output_close(Output *output); // removes unfinished files; accepts a zeroed struct
