// hist: counts how often each id occurs.
#include "common/err.h"
#include "common/json_write.h"
#include "shardtool/format/token_reader.h"
#include "shardtool/support/option_rows.h"
#include "tokenizer/tokenizer.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEP_TOKENS = 1 << 16, IDS = 1 << 16 };

static bool json;
static int split;
static uint64_t top;

static const Option options[] = {
    {OPT_SIZE, "n,top", &top, "N", "print the N most frequent ids, 0 = all"},
    ROW_SPLIT(&split),
    {OPT_FLAG, "json", &json, NULL, "print one JSON object per line"},
    ROW_END,
};

typedef struct {
    uint64_t count;
    uint32_t id;
} Row;

static int most_first(const void *a, const void *b) {
    const Row *x = a, *y = b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

// Whether the tokens are of this vocabulary: the ids of another one are printed without their text.
static bool has_vocabulary(TokenReader *tokens, const Vocab *vocab) {
    uint8_t fingerprint[32];
    const ShardFile *shard = tokens->tokens ? token_reader_shard(tokens, 0) : NULL;
    vocab_fingerprint(vocab, fingerprint);
    return !shard || !memcmp(shard->vocab_fp, fingerprint, sizeof fingerprint);
}

static int count_ids(const char *path, Row *rows, const Vocab *vocab, bool *has_text) {
    static uint16_t ids[STEP_TOKENS];
    TokenReader tokens;
    if (token_reader_open(&tokens, path, split) < 0) return -1;
    int status = 0;
    *has_text &= has_vocabulary(&tokens, vocab);
    for (uint64_t at = 0; status == 0 && at < tokens.tokens; at += STEP_TOKENS) {
        size_t take = tokens.tokens - at < STEP_TOKENS ? (size_t)(tokens.tokens - at) : STEP_TOKENS;
        status = token_reader_get(&tokens, at, take, ids);
        for (size_t i = 0; status == 0 && i < take; i++) rows[ids[i]].count++;
    }
    token_reader_close(&tokens);
    return status;
}

static void print_row(const Row *row, const Vocab *vocab, bool has_text) {
    Buffer out = {0};
    buffer_print(&out, json ? "{\"id\":%u,\"count\":%" PRIu64 ",\"token\":\"" : "%5u %12" PRIu64 "  \"", row->id,
                 row->count);
    if (has_text && row->id < TOKEN_COUNT)
        json_add_text(&out, vocab_bytes(vocab, (uint16_t)row->id), true, &(JsonCarry){.size = 0});
    buffer_print(&out, json ? "\"}\n" : "\"\n");
    fwrite(out.data, 1, out.size, stdout);
    buffer_close(&out);
}

static int run(int count, char **arguments) {
    static Row rows[IDS];
    if (count == 0) return fail(EX_USAGE, "missing PATH of a shard or dataset");
    const Vocab *vocab = vocab_open();
    if (!vocab) return -1;
    for (uint32_t i = 0; i < IDS; i++) rows[i].id = i;
    int status = 0;
    bool has_text = true;
    for (int i = 0; status == 0 && i < count; i++) status = count_ids(arguments[i], rows, vocab, &has_text);
    if (status == 0) {
        qsort(rows, IDS, sizeof *rows, most_first);
        for (uint64_t i = 0; i < IDS && rows[i].count && (!top || i < top); i++) print_row(&rows[i], vocab, has_text);
    }
    vocab_close(vocab);
    return status;
}

const Command shardtool_hist = {"hist", "PATH...", "count how often each id occurs", options, run, NULL};
