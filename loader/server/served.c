// Opens and closes what a loader serves.
#include "loader/server/served.h"
#include "common/log.h"
#include <stdlib.h>

Served *served_open(const char *path) {
    Served *served = allocate_zeroed(1, sizeof *served);
    served->requested_ns = clock_ns();
    served->source_count = 1;
    bool opened = dataset_open(&served->dataset, path) == 0;
    for (unsigned split = 0; opened && split < SPLIT_COUNT; split++) {
        ShardStream *stream = &served->streams[split];
        shard_stream_open(stream, split, served->dataset.shard_count[split]);
        opened = shard_stream_add(stream, &served->dataset) == 0;
        if (opened) shard_stream_ready(stream);
        served->sources[0].tokens[split] = stream->tokens;
    }
    if (opened) return served;
    served_close(served);
    return NULL;
}

void served_close(Served *served) {
    if (!served) return;
    for (unsigned split = 0; split < SPLIT_COUNT; split++) shard_stream_close(&served->streams[split]);
    dataset_close(&served->dataset);
    free(served);
}

SourceSample served_sample(const Served *served, unsigned split, unsigned mode, uint64_t sample) {
    (void)served, (void)split, (void)mode;
    return (SourceSample){0, sample};
}
