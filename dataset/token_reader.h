// The ids of a shard file, or of one split of a dataset, as one sequence.
#pragma once

#include "dataset/dataset.h"

typedef struct {
    Dataset dataset;  // zeroed for a shard file
    const char *path; // of the shard file; NULL for a dataset
    int split;
    uint64_t tokens;
    unsigned id_bytes; // of an id (common/id_array.h)
    ShardFile shard;   // the open one: shard `number` of the split
    uint64_t number;
    bool is_open;
    ShardCursor *cursor;
    Buffer frame; // the ids of frame `index` of the open shard
    uint64_t index;
    Buffer step; // of token_reader_visit
} TokenReader;

// Opens one split of a dataset, or a shard file ("-": standard input), for which `split` is ignored. The path is
// borrowed.
int token_reader_open(TokenReader *tokens, const char *path, int split);
// The shards that hold the tokens, in order: 1 for a shard file.
uint64_t token_reader_shards(const TokenReader *tokens);
// Opens shard `number`. It is borrowed until the next call of this function or of token_reader_get. NULL after fail().
const ShardFile *token_reader_shard(TokenReader *tokens, uint64_t number);
// Copies ids [first, first + count), which must exist.
int token_reader_get(TokenReader *tokens, uint64_t first, size_t count, void *ids);
// Calls `visit` with ids [first, end) in steps. Stops at a status other than 0 and returns it.
typedef int TokenVisit(void *context, const void *ids, size_t count, unsigned id_bytes);
int token_reader_visit(TokenReader *tokens, uint64_t first, uint64_t end, TokenVisit *visit, void *context);
void token_reader_close(TokenReader *tokens); // accepts a zeroed struct
