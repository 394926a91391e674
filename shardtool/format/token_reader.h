// The ids of a shard, or of one split of a dataset, as one sequence.
#pragma once

#include "shardtool/format/dataset.h"

typedef struct {
    Dataset dataset;  // when it is one
    const char *path; // else of the shard
    int split;
    uint64_t tokens;
    ShardFile shard; // the one that is open: number `number` of the split
    uint64_t number;
    bool is_open;
    ShardCursor *cursor;
    Buffer frame; // the ids of frame `index` of that shard
    uint64_t index;
} TokenReader;

// A dataset's split, by its name, or a shard, which has none. The path is borrowed.
int token_reader_open(TokenReader *tokens, const char *path, const char *split_name);
// Copies ids [first, first + count), which must be there.
int token_reader_get(TokenReader *tokens, uint64_t first, size_t count, uint16_t *ids);
void token_reader_close(TokenReader *tokens); // accepts a zeroed struct

int split_by_name(const char *name); // 2 and -1 when it is neither train nor val
