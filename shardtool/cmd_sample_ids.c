// sample: the ids of ranges at random positions.
#include "common/err.h"
#include "common/rng.h"
#include "shardtool/support/id_range.h"
#include "shardtool/support/option_rows.h"
#include <inttypes.h>

static bool decimal;
static int split;
static uint64_t sample_count = 1, length = 1024, seed;

static const Option options[] = {
    {OPT_SIZE, "n,count", &sample_count, "K", "number of ranges"},
    {OPT_SIZE, "length", &length, "L", "tokens in each range"},
    {OPT_SIZE, "seed", &seed, "S", "seed of the positions"},
    ROW_IDS(&decimal),
    ROW_SPLIT(&split),
    ROW_END,
};

static int run(int count, char **arguments) {
    if (count != 1) return fail(EX_USAGE, "expected exactly one PATH of a shard or dataset");
    if (!decimal && cli_refuse_terminal() != 0) return -1;
    TokenReader tokens;
    if (token_reader_open(&tokens, arguments[0], split) < 0) return -1;
    int status = 0;
    if (length < 1 || length > tokens.tokens)
        status = fail(EX_USAGE, "--length %" PRIu64 " is not between 1 and the %" PRIu64 " tokens of '%s'", length,
                      tokens.tokens, arguments[0]);
    for (uint64_t i = 0; status == 0 && i < sample_count; i++) {
        // The high half of the product is uniform over the positions to within 2^-64 of their number.
        uint64_t first = (uint64_t)((unsigned __int128)rng_u64(seed, 0, i) * (tokens.tokens - length + 1) >> 64);
        status = id_range_print(&tokens, first, first + length, decimal);
    }
    token_reader_close(&tokens);
    return status;
}

const Command shardtool_sample = {"sample", "PATH", "print ids at random positions", options, run, NULL};
