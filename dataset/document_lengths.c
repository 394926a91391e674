// Lengths of documents.
#include "dataset/document_lengths.h"
#include <stdlib.h>

// A histogram of lengths in bounded memory: exact below 2^16, above it to 11 significant bits, an error below 0.1 %.
enum { EXACT = 1 << 16, PER_OCTAVE = 1 << 10, BUCKETS = EXACT + 48 * PER_OCTAVE };

static unsigned bucket_of(uint64_t length) {
    if (length < EXACT) return (unsigned)length;
    unsigned octave = 63 - (unsigned)__builtin_clzll(length); // 16 or more
    return EXACT + (octave - 16) * PER_OCTAVE + (unsigned)(length >> (octave - 10)) % PER_OCTAVE;
}

static uint64_t bucket_length(unsigned bucket) {
    if (bucket < EXACT) return bucket;
    unsigned octave = 16 + (bucket - EXACT) / PER_OCTAVE;
    return ((uint64_t)PER_OCTAVE + (bucket - EXACT) % PER_OCTAVE) << (octave - 10);
}

const unsigned length_percents[LENGTH_PERCENTS] = {1, 5, 25, 50, 75, 95, 99};

typedef struct {
    DocumentLengths *lengths;
    uint64_t *counts; // of each bucket
} LengthCount;

// The length that `percent` of the documents do not exceed (nearest rank); long ones are rounded down by up to 0.1 %.
static uint64_t quantile(const LengthCount *count, unsigned percent) {
    const DocumentLengths *lengths = count->lengths;
    uint64_t rank = (uint64_t)(((unsigned __int128)lengths->documents * percent + 99) / 100), seen = 0;
    unsigned bucket = 0;
    while (bucket < BUCKETS - 1 && (seen += count->counts[bucket]) < rank) bucket++;
    const uint64_t length = bucket_length(bucket);
    return length < lengths->least ? lengths->least : length;
}

static int add_document(void *context, const Document *document) {
    const LengthCount *count = context;
    DocumentLengths *lengths = count->lengths;
    if (document->is_cut) return lengths->cut++, lengths->cut_tokens += document->tokens, 0;
    const unsigned octave = 63 - (unsigned)__builtin_clzll(document->tokens | 1);
    count->counts[bucket_of(document->tokens)]++;
    lengths->octaves[octave].documents++, lengths->octaves[octave].tokens += document->tokens;
    if (lengths->octaves[octave].documents > lengths->highest) lengths->highest = lengths->octaves[octave].documents;
    lengths->tokens += document->tokens;
    lengths->empty += document->tokens == 1 && document->has_end;
    if (!lengths->documents || octave < lengths->first_octave) lengths->first_octave = octave;
    if (octave >= lengths->octave_end) lengths->octave_end = octave + 1;
    if (!lengths->documents++ || document->tokens < lengths->least) lengths->least = document->tokens;
    if (document->tokens > lengths->most) lengths->most = document->tokens;
    return 0;
}

static uint64_t text_bytes(const TokenReader *tokens) {
    if (tokens->path) return tokens->shard.source_bytes;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < token_reader_shards(tokens); i++)
        bytes += tokens->dataset.shards[tokens->split][i].source_bytes;
    return bytes;
}

int document_lengths_read(DocumentLengths *lengths, TokenReader *tokens) {
    *lengths = (DocumentLengths){.text_bytes = text_bytes(tokens)};
    LengthCount count = {lengths, allocate_zeroed(BUCKETS, sizeof(uint64_t))};
    const int status = document_reader_visit(tokens, add_document, &count);
    for (size_t i = 0; i < LENGTH_PERCENTS; i++) lengths->quantiles[i] = quantile(&count, length_percents[i]);
    free(count.counts);
    return status;
}
