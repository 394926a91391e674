// Mixtures: which sample of which dataset a sample of several datasets is. A pure function of the sample number and of
// a schedule of weights, exact, without state, in integers; so it is part of the law (wire.h), and a client in another
// language can compute it from this comment.
//
// A mixture has at most MIXTURE_SOURCES_MAX = 16 sources; a weight is a whole number up to 1,000,000.
//
// A schedule has entries {from, weights}; `from` of the first is 0, and they ascend. An entry holds for samples from
// its own `from` to the `from` of the next entry. The weights of an entry, one for each source, are scaled to integers
// w of sum W = MIXTURE_SUM = 65,536: w[i] = 65,536 * weight[i] / total, rounded down. The sources with the largest
// remainders get one more each until the sum is W. If remainders are equal, the first source comes first. A weight that
// is not 0 must not become 0.
//
// Sample s of an entry: p = s - from, V = W; for each source i in turn, r = p * w[i] / V (rounded down, of a product of
// 128 bits). When (p + 1) * w[i] / V > r, the sample is number base[i] + r of source i. Else p -= r, V -= w[i], and the
// next source is tried. base[i] is the number of samples of source i in all entries before. So each source's samples
// are used in their own order, none is left out or repeated, and of 65,536 samples that begin at a multiple of 65,536
// after `from`, exactly w[i] are of source i.
//
// The train split is mixed in this way in the modes without an end: sample b of source i is the sample that sampling.h
// gives for the tokens of that source's split, with c = i, the first source being 0. The val split, and modes
// sequential, permuted and rest, read all sources joined in their order, as one split (c = 0).
//
// Fingerprint of a mixture: F[0] = SHA-256 of "mixture of streams\n", then "FINGERPRINT w\n" for each source (in hex; w
// of entry 0). For each further entry, F[k] = SHA-256 of "F[k-1] from w[0] w[1] ...\n". So the samples before `from` of
// entry k are the same in F[k-1] and F[k]: a trainer that has used no others continues where it is. If the first line
// is "mixture\n", it is the fingerprint of the same sources and weights until protocol version 3, in which c was 0 for
// every source: the samples are others.
//
// Vectors (schedule as from:weights, then sample -> source and number in it):
//   0:3,1 0 -> 1 0
//   0:3,1 3 -> 0 2
//   0:3,1 1000000000000 -> 1 250000000000
//   0:5,2,1 1234567 -> 0 771604
//   0:1,1,1 65535 -> 0 21845
//   0:3,1;100000:1,1 99999 -> 0 74999
//   0:3,1;100000:1,1 100001 -> 0 75000
//   0:1,0;70000:2,3;200000:0,1 1099511627776 -> 1 1099511505777
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MIXTURE_SUM = 65536, MIXTURE_SOURCES_MAX = 16, MIXTURE_ENTRIES_MAX = 65535, WEIGHT_MAX = 1000000 };

typedef struct {
    uint64_t from;
    uint32_t given[MIXTURE_SOURCES_MAX];   // the weights
    uint32_t weights[MIXTURE_SOURCES_MAX]; // scaled: their sum is MIXTURE_SUM
    uint64_t base[MIXTURE_SOURCES_MAX];    // samples of each source in the entries before
    uint8_t fingerprint[32];               // F[k]
    uint8_t shared[32];                    // the same until protocol version 3: the sources shared one random stream
} MixtureEntry;

typedef struct {
    unsigned source_count, entry_count;
    MixtureEntry *entries;
} Mixture;

// Begins a mixture of `count` sources with these fingerprints and with entry 0. Fails with 2 when the weights are all
// 0, or one is too small beside the others.
int mixture_init(Mixture *mixture, unsigned count, const uint8_t (*fingerprints)[32], const uint32_t *weights);
// Adds an entry. Fails with 2 also when `from` is not above the last entry's.
int mixture_add(Mixture *mixture, uint64_t from, const uint32_t *weights);
const uint8_t *mixture_fingerprint(const Mixture *mixture);
// Whether the first `size` bytes of a fingerprint are of this mixture, or of it with fewer entries, until protocol
// version 3.
bool mixture_shared_streams(const Mixture *mixture, const uint8_t *fingerprint, size_t size);
// Adds the entries of a file, a line "FROM WEIGHT WEIGHT ..." for each; # begins a comment. Fails with 2 naming the
// line.
int mixture_read_schedule(Mixture *mixture, const char *path);
const MixtureEntry *mixture_entry(const Mixture *mixture, uint64_t sample); // the entry that holds for the sample
void mixture_close(Mixture *mixture);                                       // accepts a zeroed struct

typedef struct {
    unsigned source;
    uint64_t sample;
} MixtureSample;
MixtureSample mixture_at(const Mixture *mixture, uint64_t sample);

// How many samples are the same in the mixture with this fingerprint (its first 8 bytes) and in this one: UINT64_MAX
// when it is this one, 0 when it is neither this one nor an earlier one of its schedule.
uint64_t mixture_same_samples(const Mixture *mixture, const uint8_t fp8[8]);

// A weight as it is written: a whole number up to WEIGHT_MAX; 2 for another text.
int weight_parse(const char *text, uint32_t *weight);
// Cuts the weight off "DIR:WEIGHT", unless a directory has the whole name; 1 without a weight.
int weight_cut(char *word, uint32_t *weight);
