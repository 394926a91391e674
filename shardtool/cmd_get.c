// get: ids by their place. sample: ids from random places.
#include "common/cli.h"
#include "common/err.h"
#include "common/rng.h"
#include "shardtool/format/token_reader.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEP_TOKENS = 1 << 16 };

static bool decimal;
static const char *split_name = "train";
static uint64_t sample_count = 1, length = 1024, seed;

static const Option get_options[] = {
    {OPT_FLAG,   "ids",   &decimal,    NULL,   "decimals, a line a range, instead of raw u16"},
    {OPT_STRING, "split", &split_name, "NAME", "of a dataset: train or val"                  },
    {OPT_END,    NULL,    NULL,        NULL,   NULL                                          },
};

static const Option sample_options[] = {
    {OPT_SIZE,   "n,count", &sample_count, "K",    "how many extents"                            },
    {OPT_SIZE,   "length",  &length,       "L",    "tokens in each"                              },
    {OPT_SIZE,   "seed",    &seed,         "S",    "other seeds, other places"                   },
    {OPT_FLAG,   "ids",     &decimal,      NULL,   "decimals, a line a range, instead of raw u16"},
    {OPT_STRING, "split",   &split_name,   "NAME", "of a dataset: train or val"                  },
    {OPT_END,    NULL,      NULL,          NULL,   NULL                                          },
};

static int print_range(TokenReader *tokens, uint64_t first, uint64_t end) {
    static uint16_t ids[STEP_TOKENS];
    Buffer line = {0};
    int status = 0;
    for (uint64_t at = first; status == 0 && at < end;) {
        size_t take = end - at < STEP_TOKENS ? (size_t)(end - at) : STEP_TOKENS;
        status = token_reader_get(tokens, at, take, ids);
        if (status < 0) break;
        line.size = 0;
        if (decimal)
            for (size_t i = 0; i < take; i++) buffer_print(&line, "%s%u", at + i > first ? " " : "", ids[i]);
        else
            buffer_add(&line, ids, take * sizeof *ids);
        status = fd_write(STDOUT_FILENO, line.data, line.size, "the output");
        at += take;
    }
    if (status == 0 && decimal) status = fd_write(STDOUT_FILENO, "\n", 1, "the output");
    buffer_close(&line);
    return status;
}

// "A:B", tokens A to B-1; either may be left out.
static int parse_range(const char *text, uint64_t tokens, uint64_t *first, uint64_t *end) {
    char *colon, *stop;
    *first = strtoull(text, &colon, 10);
    bool bad = *colon != ':' || (colon != text && !isdigit((unsigned char)*text));
    *end = tokens;
    if (!bad && colon[1]) {
        *end = strtoull(colon + 1, &stop, 10);
        bad = *stop || !isdigit((unsigned char)colon[1]);
    }
    if (bad) return fail(EX_USAGE, "'%s' is no range A:B", text);
    if (*first > *end || *end > tokens)
        return fail(EX_USAGE, "range '%s' is not within the %" PRIu64 " tokens that are there", text, tokens);
    return 0;
}

static int run_get(int count, char **arguments) {
    if (count < 2) return fail(EX_USAGE, "of which shard or dataset, and which range A:B?");
    if (!decimal && cli_refuse_terminal() != 0) return -1;
    TokenReader tokens;
    if (token_reader_open(&tokens, arguments[0], split_name) < 0) return -1;
    int status = 0;
    for (int i = 1; status == 0 && i < count; i++) {
        uint64_t first, end;
        status = parse_range(arguments[i], tokens.tokens, &first, &end);
        if (status == 0) status = print_range(&tokens, first, end);
    }
    token_reader_close(&tokens);
    return status;
}

static int run_sample(int count, char **arguments) {
    if (count != 1) return fail(EX_USAGE, "of which one shard or dataset?");
    if (!decimal && cli_refuse_terminal() != 0) return -1;
    TokenReader tokens;
    if (token_reader_open(&tokens, arguments[0], split_name) < 0) return -1;
    int status = 0;
    if (length < 1 || length > tokens.tokens)
        status = fail(EX_USAGE, "--length %" PRIu64 " is not between 1 and the %" PRIu64 " tokens that are there",
                      length, tokens.tokens);
    for (uint64_t i = 0; status == 0 && i < sample_count; i++) {
        // the high half of a product: even to 2^-64 of the number of places
        uint64_t first = (uint64_t)((unsigned __int128)rng_u64(seed, 0, i) * (tokens.tokens - length + 1) >> 64);
        status = print_range(&tokens, first, first + length);
    }
    token_reader_close(&tokens);
    return status;
}

const Command shardtool_get = {"get", "PATH A:B...", "print the ids of ranges of tokens", get_options, run_get, NULL};
const Command shardtool_sample = {"sample", "PATH", "print ids from random places", sample_options, run_sample, NULL};
