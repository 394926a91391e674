// Reads ids at any position, across frames and shards.
#include "dataset/token_reader.h"
#include "common/err.h"
#include "common/file/mapguard.h"
#include "common/search.h"

enum { STEP_TOKENS = 1 << 16 };

static const DatasetShard *shard_of(const TokenReader *tokens, uint64_t number) {
    return &tokens->dataset.shards[tokens->split][number];
}

static int open_number(TokenReader *tokens, uint64_t number) {
    if (tokens->is_open && tokens->number == number) return 0;
    if (tokens->is_open) shard_file_close(&tokens->shard);
    tokens->is_open = false;
    const char *path = tokens->path ? tokens->path : shard_of(tokens, number)->path;
    if (shard_file_open(&tokens->shard, path) < 0) return -1;
    tokens->is_open = true;
    tokens->number = number, tokens->index = UINT64_MAX;
    if (!tokens->path && tokens->shard.tokens != shard_of(tokens, number)->tokens)
        return fail(EX_DATA, "shard '%s': its number of tokens differs from the manifest", path);
    if (!tokens->path && tokens->shard.vocab_size != tokens->dataset.vocab_size)
        return fail(EX_DATA, "shard '%s': its vocabulary differs from the manifest", path);
    tokens->id_bytes = id_bytes(tokens->shard.vocab_size);
    buffer_reserve(&tokens->frame, (size_t)tokens->shard.frame_tokens * tokens->id_bytes);
    return 0;
}

int token_reader_open(TokenReader *tokens, const char *path, int split) {
    *tokens = (TokenReader){.index = UINT64_MAX, .split = split};
    tokens->cursor = shard_cursor_open();
    int status;
    if (dataset_is(path)) {
        status = dataset_open(&tokens->dataset, path);
        if (status == 0) tokens->tokens = tokens->dataset.tokens[tokens->split];
        tokens->id_bytes = id_bytes(tokens->dataset.vocab_size);
    } else {
        tokens->path = path;
        status = open_number(tokens, 0);
        if (status == 0) tokens->tokens = tokens->shard.tokens;
    }
    if (status < 0) token_reader_close(tokens);
    return status;
}

void token_reader_close(TokenReader *tokens) {
    if (tokens->is_open) shard_file_close(&tokens->shard);
    shard_cursor_close(tokens->cursor);
    buffer_close(&tokens->frame);
    buffer_close(&tokens->step);
    if (!tokens->path) dataset_close(&tokens->dataset);
    *tokens = (TokenReader){0};
}

uint64_t token_reader_shards(const TokenReader *tokens) {
    return tokens->path ? 1 : tokens->dataset.shard_count[tokens->split];
}

const ShardFile *token_reader_shard(TokenReader *tokens, uint64_t number) {
    return open_number(tokens, number) < 0 ? NULL : &tokens->shard;
}

// The shard that holds a token.
static uint64_t find_number(const TokenReader *tokens, uint64_t token) {
    if (tokens->path) return 0;
    const DatasetShard *shards = tokens->dataset.shards[tokens->split];
    return floor_index(&shards->first, sizeof *shards, tokens->dataset.shard_count[tokens->split], token);
}

typedef struct {
    TokenReader *tokens;
    uint64_t first;
    size_t count;
    uint8_t *ids;
} TokenRequest;

static int get_mapped(void *data) {
    TokenRequest *request = data;
    TokenReader *tokens = request->tokens;
    uint64_t first = request->first;
    size_t count = request->count;
    uint8_t *ids = request->ids;
    while (count) {
        uint64_t number = find_number(tokens, first);
        if (open_number(tokens, number) < 0) return -1;
        uint64_t within = first - (tokens->path ? 0 : shard_of(tokens, number)->first);
        uint64_t index = shard_frame_at(&tokens->shard, within);
        const ShardFrame *frame = &tokens->shard.frames[index];
        if (tokens->index != index && shard_decode(&tokens->shard, tokens->cursor, index, tokens->frame.data) < 0)
            return -1;
        tokens->index = index;
        size_t skip = (size_t)(within - frame->first), left = frame->tokens - skip, take = left < count ? left : count;
        memcpy(ids, tokens->frame.data + skip * tokens->id_bytes, take * tokens->id_bytes);
        first += take, ids += take * tokens->id_bytes, count -= take;
    }
    return 0;
}

int token_reader_get(TokenReader *tokens, uint64_t first, size_t count, void *ids) {
    const char *path = tokens->path ? tokens->path : tokens->dataset.path;
    return mapguard_run(get_mapped, &(TokenRequest){tokens, first, count, ids}, path);
}

int token_reader_visit(TokenReader *tokens, uint64_t first, uint64_t end, TokenVisit *visit, void *context) {
    int status = 0;
    buffer_reserve(&tokens->step, (size_t)STEP_TOKENS * tokens->id_bytes);
    void *ids = tokens->step.data;
    for (uint64_t at = first; status == 0 && at < end; at += STEP_TOKENS) {
        const size_t count = end - at < STEP_TOKENS ? (size_t)(end - at) : STEP_TOKENS;
        status = token_reader_get(tokens, at, count, ids);
        if (status == 0) status = visit(context, ids, count, tokens->id_bytes);
    }
    return status;
}
