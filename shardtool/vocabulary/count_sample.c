// Finds the smallest hash of a sample from the bytes of all documents by their hashes.
#include "shardtool/vocabulary/count_sample.h"
#include "common/sizes.h"
#include "shardtool/pipeline/text_batch.h"
#include <stdlib.h>

enum { STEPS = 1 << 16 }; // of all hashes
#define STEP (UINT64_MAX / STEPS + 1)

bool sample_has(uint64_t from, Bytes document) { return !from || document_hash(document, 0) >= from; }

// Adds the bytes of each document to its step's.
static int sum_bytes(Source *source, uint64_t bytes[STEPS]) {
    Buffer first = {0};
    Part part;
    uint64_t size = 0;
    int status;
    while ((status = source_next(source, &part)) > 0) {
        buffer_add(&first, part.text.data, size_smaller(part.text.size, DOCUMENT_HASH_BYTES - first.size));
        size += part.text.size;
        if (!part.last) continue;
        bytes[document_hash((Bytes){first.data, first.size}, 0) / STEP] += size;
        first.size = size = 0;
    }
    buffer_close(&first);
    return status;
}

int sample_find(Source *source, uint64_t bytes, uint64_t *from) {
    uint64_t *step_bytes = allocate_zeroed(STEPS, sizeof *step_bytes), sum = 0;
    const int status = sum_bytes(source, step_bytes);
    uint64_t step = STEPS;
    while (step && sum < bytes) sum += step_bytes[--step];
    *from = step * STEP;
    free(step_bytes);
    return status;
}
