// Parses and prints ranges of token ids.
#include "shardtool/print/id_range.h"
#include "common/err.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
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

bool id_range_is(const char *argument) {
    const size_t first = strspn(argument, "0123456789");
    return argument[first] == ':' && !argument[first + 1 + strspn(argument + first + 1, "0123456789")];
}

int id_range_group(int count, char **arguments) {
    if (id_range_is(arguments[0]))
        return fail(EX_USAGE, "missing PATH of a shard or dataset before the range '%s'", arguments[0]);
    int group = 1;
    while (group < count && id_range_is(arguments[group])) group++;
    return group;
}

int id_range_parse(const char *text, uint64_t tokens, uint64_t *first, uint64_t *end) {
    char *colon;
    *first = strtoull(text, &colon, 10);
    *end = colon[1] ? strtoull(colon + 1, NULL, 10) : tokens;
    if (*first <= *end && *end <= tokens) return 0;
    return fail(EX_USAGE, "range '%s' is not within the %" PRIu64 " tokens of the input", text, tokens);
}
