// Parses and prints ranges of token ids.
#include "shardtool/support/id_range.h"
#include "common/err.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEP_TOKENS = 1 << 16 };

int id_range_print(TokenReader *tokens, uint64_t first, uint64_t end, bool decimal) {
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

int id_range_parse(const char *text, uint64_t tokens, uint64_t *first, uint64_t *end) {
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
