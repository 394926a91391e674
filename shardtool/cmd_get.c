// get: the ids of ranges of tokens.
#include "common/err.h"
#include "shardtool/cmd_ids.h"
#include "shardtool/cmd_options.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>

static bool decimal;
static int split;

static const Option options[] = {
    ROW_IDS(&decimal),
    ROW_SPLIT(&split),
    ROW_END,
};

// Parses "A:B": tokens A to B-1. A defaults to 0, B to the number of tokens.
static int parse_range(const char *text, uint64_t tokens, uint64_t *first, uint64_t *end) {
    char *colon, *stop;
    *first = strtoull(text, &colon, 10);
    bool bad = *colon != ':' || (colon != text && !isdigit((unsigned char)*text));
    *end = tokens;
    if (!bad && colon[1]) {
        *end = strtoull(colon + 1, &stop, 10);
        bad = *stop || !isdigit((unsigned char)colon[1]);
    }
    if (bad) return fail(EX_USAGE, "'%s' is not a range A:B", text);
    if (*first > *end || *end > tokens)
        return fail(EX_USAGE, "range '%s' is not within the %" PRIu64 " tokens of the input", text, tokens);
    return 0;
}

static int run(int count, char **arguments) {
    if (count < 2) return fail(EX_USAGE, "missing arguments: expected PATH and at least one range A:B");
    if (!decimal && cli_refuse_terminal() != 0) return -1;
    TokenReader tokens;
    if (token_reader_open(&tokens, arguments[0], split) < 0) return -1;
    int status = 0;
    for (int i = 1; status == 0 && i < count; i++) {
        uint64_t first, end;
        status = parse_range(arguments[i], tokens.tokens, &first, &end);
        if (status == 0) status = print_ids(&tokens, first, end, decimal);
    }
    token_reader_close(&tokens);
    return status;
}

const Command shardtool_get = {"get", "PATH A:B...", "print the ids of ranges of tokens", options, run, NULL};
