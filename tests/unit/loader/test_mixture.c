// Mixtures of datasets: the vectors of mixture.h, and schedules that are refused.
#include "common/err.h"
#include "loader/protocol/mixture.h"
#include "tests/test.h"
#include <string.h>

typedef struct {
    uint64_t from;
    uint32_t weights[3];
} Entry;

static Mixture mixture_of(unsigned sources, unsigned entries, const Entry *entry) {
    static const uint8_t fingerprints[3][32] = {{1}, {2}, {3}};
    Mixture mixture;
    CHECK(mixture_init(&mixture, sources, fingerprints, entry[0].weights) == 0);
    for (unsigned i = 1; i < entries; i++) CHECK(mixture_add(&mixture, entry[i].from, entry[i].weights) == 0);
    return mixture;
}

TEST(loader_mixture_matches_the_vectors_of_its_specification) {
    const struct {
        unsigned sources, entries;
        Entry entry[3];
        uint64_t sample;
        unsigned source;
        uint64_t number;
    } vectors[] = {
        {2, 1, {{0, {3, 1}}}, 0, 1, 0},
        {2, 1, {{0, {3, 1}}}, 3, 0, 2},
        {2, 1, {{0, {3, 1}}}, 1000000000000, 1, 250000000000},
        {3, 1, {{0, {5, 2, 1}}}, 1234567, 0, 771604},
        {3, 1, {{0, {1, 1, 1}}}, 65535, 0, 21845},
        {2, 2, {{0, {3, 1}}, {100000, {1, 1}}}, 99999, 0, 74999},
        {2, 2, {{0, {3, 1}}, {100000, {1, 1}}}, 100001, 0, 75000},
        {2, 3, {{0, {1, 0}}, {70000, {2, 3}}, {200000, {0, 1}}}, 1ull << 40, 1, 1099511505777},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        Mixture mixture = mixture_of(vectors[i].sources, vectors[i].entries, vectors[i].entry);
        MixtureSample at = mixture_at(&mixture, vectors[i].sample);
        CHECK_EQUAL(at.source, vectors[i].source);
        CHECK_EQUAL(at.sample, vectors[i].number);
        mixture_close(&mixture);
    }
}

TEST(loader_mixture_knows_which_samples_a_change_of_weights_keeps) {
    const Entry entries[] = {{0, {3, 1}}, {100000, {1, 1}}, {200000, {1, 3}}};
    Mixture first = mixture_of(2, 1, entries), second = mixture_of(2, 2, entries), third = mixture_of(2, 3, entries);
    CHECK(mixture_same_samples(&third, mixture_fingerprint(&third)) == UINT64_MAX);
    CHECK_EQUAL(mixture_same_samples(&third, mixture_fingerprint(&second)), 200000);
    CHECK_EQUAL(mixture_same_samples(&third, mixture_fingerprint(&first)), 100000);
    CHECK_EQUAL(mixture_same_samples(&first, mixture_fingerprint(&third)), 0);
    for (uint64_t sample = 99990; sample < 100000; sample++) {
        MixtureSample a = mixture_at(&first, sample), b = mixture_at(&third, sample);
        CHECK(a.source == b.source && a.sample == b.sample);
    }
    mixture_close(&first), mixture_close(&second), mixture_close(&third);
}

TEST(loader_mixture_refuses_weights_that_cannot_be_exact) {
    static const uint8_t fingerprints[2][32] = {{1}, {2}};
    Mixture mixture;
    CHECK(mixture_init(&mixture, 2, fingerprints, (uint32_t[]){0, 0}) < 0);
    CHECK_ERROR(EX_USAGE, "");
    mixture_close(&mixture);
    CHECK(mixture_init(&mixture, 2, fingerprints, (uint32_t[]){1000000, 1}) < 0);
    CHECK_ERROR(EX_USAGE, "below 1 in 65536");
    mixture_close(&mixture);
    CHECK(mixture_init(&mixture, 2, fingerprints, (uint32_t[]){1, 1}) == 0);
    CHECK(mixture_add(&mixture, 0, (uint32_t[]){1, 2}) < 0);
    CHECK_ERROR(EX_USAGE, "do not come after");
    mixture_close(&mixture);
}

// By the rule for whole windows, half of 65,536 samples are of each source.
TEST(loader_mixture_has_any_number_of_entries) {
    enum { ENTRIES = 5000 };
    static const uint8_t fingerprints[2][32] = {{1}, {2}};
    Mixture mixture;
    CHECK(mixture_init(&mixture, 2, fingerprints, (uint32_t[]){1, 1}) == 0);
    for (uint64_t i = 1; i < ENTRIES; i++)
        CHECK(mixture_add(&mixture, i * MIXTURE_SUM, (uint32_t[]){i % 2 ? 3 : 1, 1}) == 0);
    uint64_t number = 0;
    for (uint64_t i = 0; i < ENTRIES; i++) { // the first sample of the first source in each entry
        MixtureSample at;
        for (uint64_t sample = i * MIXTURE_SUM; (at = mixture_at(&mixture, sample)).source; sample++) {
        }
        CHECK_EQUAL(at.sample, number);
        number += MIXTURE_SUM / 4 * (i % 2 ? 3u : 2u);
    }
    CHECK_EQUAL(mixture_entry(&mixture, MIXTURE_SUM - 1)->from, 0);
    CHECK_EQUAL(mixture_entry(&mixture, 70 * MIXTURE_SUM)->given[0], 1);
    mixture_close(&mixture);
}
