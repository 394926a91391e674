// Parses and prints ranges of token ids.
#include "shardtool/support/id_range.h"
#include "common/err.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    bool decimal, begun; // begun: an id is before the next one
    Buffer line;
} IdPrinter;

static int print_ids(void *context, const void *ids, size_t count, unsigned bytes) {
    IdPrinter *printer = context;
    if (!printer->decimal) return fd_write(STDOUT_FILENO, ids, count * bytes, "the output");
    printer->line.size = 0;
    for (size_t i = 0; i < count; i++, printer->begun = true)
        buffer_print(&printer->line, "%s%u", printer->begun ? " " : "", id_at(ids, i, bytes));
    return fd_write(STDOUT_FILENO, printer->line.data, printer->line.size, "the output");
}

int id_range_print(TokenReader *tokens, uint64_t first, uint64_t end, bool decimal) {
    IdPrinter printer = {.decimal = decimal};
    int status = token_reader_visit(tokens, first, end, print_ids, &printer);
    if (status == 0 && decimal) status = fd_write(STDOUT_FILENO, "\n", 1, "the output");
    buffer_close(&printer.line);
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
