// get: the ids of ranges of tokens.
#include "common/err.h"
#include "shardtool/support/id_range.h"
#include "shardtool/support/option_rows.h"

static bool decimal;
static int split;

static const Option options[] = {
    ROW_IDS(&decimal),
    ROW_SPLIT(&split),
    REMOTE_ROWS,
    ROW_END,
};

static int run(int count, char **arguments) {
    if (count < 2) return fail(EX_USAGE, "missing arguments: expected PATH and at least one range A:B");
    if (!decimal && cli_refuse_terminal() != 0) return -1;
    TokenReader tokens;
    if (token_reader_open(&tokens, arguments[0], split) < 0) return -1;
    int status = 0;
    for (int i = 1; status == 0 && i < count; i++) {
        uint64_t first, end;
        status = id_range_parse(arguments[i], tokens.tokens, &first, &end);
        if (status == 0) status = id_range_print(&tokens, first, end, decimal);
    }
    token_reader_close(&tokens);
    return status;
}

const Command shardtool_get = {"get", "PATH A:B...", "print the ids of ranges of tokens", options, run, NULL};
