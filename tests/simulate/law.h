// THE LAW of loader/protocol/wire.h, written a second time from the comments of mixture.h, as plainly as they are: the
// ids of a batch. It shares no code with the loader but the order of the samples of one split (sampling.c), which the
// vectors of another second implementation hold (tests/oracle/loader/test_loader_sampling.py).
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { LAW_SOURCES = 4, LAW_ENTRIES = 32 };

// A dataset by formula: its ids are test_id(salt, split, position).
typedef struct {
    const char *name;
    unsigned salt;
    uint64_t tokens[2];
    uint8_t fingerprint[32];
} LawSource;

typedef struct {
    const LawSource *sources[LAW_SOURCES];
    unsigned source_count, entry_count;
    struct {
        uint64_t from;
        uint32_t weights[LAW_SOURCES]; // of sum 65536
        uint64_t base[LAW_SOURCES];    // samples of each source in the entries before
    } entries[LAW_ENTRIES];
} LawDataset;

typedef struct {
    unsigned mode, split, source; // source: 0 all, i: source i alone
    uint64_t seed;
    uint32_t sequence_tokens;
} LawRequest;

void law_prepare(LawDataset *dataset);                                      // sets `base`, which is 0 at first
uint64_t law_samples(const LawDataset *dataset, const LawRequest *request); // UINT64_MAX: no end
uint64_t law_epoch(const LawDataset *dataset, const LawRequest *request, uint64_t sample);
void law_row(const LawDataset *dataset, const LawRequest *request, uint64_t sample, uint16_t *ids); // T+1 of them
void law_fingerprint(const LawDataset *dataset, unsigned entries, uint8_t fingerprint[32]); // with so many entries
uint64_t law_same_samples(const LawDataset *before, const LawDataset *after);
void law_scale(const uint32_t *given, unsigned count, uint32_t *weights); // to the sum of 65536
