// Refuses inputs that exceed the limits of the options.
#include "shardtool/ingest/source_options.h"
#include "common/err.h"
#include <inttypes.h>

int level_check(const Stream *stream, const SourceOptions *options) {
    if (stream->level <= options->max_depth) return 0;
    return fail(EX_DATA, "'%s': containers nested more than %" PRIu64 " deep (--max-depth)", stream->name,
                options->max_depth);
}

int ratio_check(const char *name, const SourceOptions *options, uint64_t in_bytes, uint64_t out_bytes) {
    enum { RATIO_FROM_BYTES = 16 << 20 }; // a small input of zeros is harmless
    if (!options->max_ratio || out_bytes < RATIO_FROM_BYTES || out_bytes / options->max_ratio <= in_bytes) return 0;
    return fail(EX_DATA,
                "'%s': expands to more than %" PRIu64 " times its size, like a decompression bomb (--max-ratio)", name,
                options->max_ratio);
}

int refuse_conditions(const Stream *stream, const SourceOptions *options) {
    if (!options->where.count) return 0;
    return fail(EX_DATA, "'%s' has no columns, so --where '%s' cannot choose its documents", stream->name,
                options->where.items[0]);
}
