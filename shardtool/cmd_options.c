// The variables behind the option rows that commands share.
#include "shardtool/cmd_options.h"
#include "shardtool/ingest/where.h"

SourceOptions source_options = {.text_field = "text", .text_column = "text"};

int input_check(void) {
    for (size_t i = 0; i < source_options.where.count; i++) {
        Where where;
        if (where_parse(&where, source_options.where.items[i]) < 0) return -1;
    }
    return 0;
}
