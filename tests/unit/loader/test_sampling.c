// The sampling modes: vectors, permutations, groups.
#include "dataset/split.h"
#include "loader/protocol/sampling.h"
#include "tests/test.h"
#include <math.h>

static bool is_in_extent(const ShuffleGroup *group, uint64_t token, uint32_t T) {
    for (const SampleExtent *extent = group->extents; extent < group->extents + group->extent_count; extent++)
        if (token >= extent->first_token && token + T < extent->first_token + extent->tokens) return true;
    return false;
}

static uint64_t first_token(Sampling mode, uint64_t seed, int split, uint32_t place, uint64_t tokens, uint32_t T,
                            uint64_t sample) {
    SampleOrder order;
    ShuffleGroup group;
    CHECK(sample_order_init(&order, mode, (uint8_t)split, seed, place, tokens, T) == 0);
    sample_order_group(&order, sample, &group);
    uint64_t token = sample_order_token(&order, &group, sample);
    CHECK(is_in_extent(&group, token, T));
    for (unsigned i = 0; i < group.extent_count; i++)
        CHECK(group.extents[i].first_token + group.extents[i].tokens <= tokens);
    const uint32_t starts = sample_order_starts(&order, token); // as in the vectors: position p has it if p mod 100 = 7
    for (uint64_t at = token; starts > 1 && at < token + starts; at++)
        if (at % 100 == 7) return at;
    return token;
}

static Sampling mode_named(const char *name) {
#define IF_NAMED(mode, word)                                                                                           \
    if (!strcmp(name, word)) return mode;
    SAMPLING_ALL_MODES(SAMPLING_WORD, IF_NAMED)
    test_failed(name, __FILE__, __LINE__);
    return SAMPLING_EPOCH;
}

// tests/oracle/loader/test_loader_sampling.py computes the vectors from the specification in the header.
TEST(sampling_matches_the_vectors_of_its_specification) {
    char path[4200], mode[16];
    snprintf(path, sizeof path, "%s/../../loader/protocol/sampling.h", test_data);
    char *text = read_file(path, NULL);
    CHECK(text);
    int seen = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long long seed, tokens, sample, want;
        int split;
        unsigned T, place;
        if (sscanf(line, "// %15s %llu %d %u %llu %u %llu -> %llu", mode, &seed, &split, &place, &tokens, &T, &sample,
                   &want) != 8)
            continue;
        CHECK_EQUAL(first_token(mode_named(mode), seed, split, place, tokens, T, sample), want);
        seen++;
    }
    CHECK_EQUAL(seen, 29);
    free(text);
}

static void check_bijection(uint8_t *seen, uint64_t seed, uint64_t n) {
    Permutation permutation;
    permutation_init(&permutation, seed, 0, seed / 3, (uint32_t)seed % 5, n);
    memset(seen, 0, n);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t to = permutation_at(&permutation, i);
        if (to >= n || seen[to]++) {
            print_error("n = %llu, i = %llu\n", (unsigned long long)n, (unsigned long long)i);
            test_failed("a permutation", __FILE__, __LINE__);
        }
    }
}

TEST_CI(sampling_permutation_is_a_bijection_for_any_count) {
    uint8_t *seen = malloc((1u << 22) + 2);
    CHECK(seen);
    for (uint64_t n = 1; n <= 3000; n++) check_bijection(seen, n, n);
    for (uint64_t power = 4; power <= 1u << 22; power *= 4)
        for (uint64_t n = power - 1; n <= power + 1; n++) check_bijection(seen, 0xFFFFFFFFFFFFFFFFu - n, n);
    free(seen);
}

// Positions of the samples with these numbers, as parts of the split, of the sources of a mixture: no two correlate.
TEST(sampling_places_of_a_mixture_have_streams_that_do_not_correlate) {
    enum { SOURCES = 5, SAMPLES = 4000, T = 32 };
    static const uint64_t tokens[SOURCES] = {300000, 300000, 300010, 131072, 5000017};
    static const Sampling modes[] = {SAMPLING_EPOCH, SAMPLING_CROP, SAMPLING_SHIFTED, SAMPLING_DOCUMENTS};
    static double at[SOURCES][SAMPLES];
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        for (uint32_t i = 0; i < SOURCES; i++) {
            double mean = 0, square = 0;
            for (int s = 0; s < SAMPLES; s++)
                mean += at[i][s] = (double)first_token(modes[m], 1337, SPLIT_TRAIN, i, tokens[i], T, (uint64_t)s);
            for (int s = 0; s < SAMPLES; s++) at[i][s] -= mean / SAMPLES, square += at[i][s] * at[i][s];
            for (int s = 0; s < SAMPLES; s++) at[i][s] /= sqrt(square);
            for (uint32_t k = 0; k < i; k++) {
                double correlation = 0;
                for (int s = 0; s < SAMPLES; s++) correlation += at[i][s] * at[k][s];
                if (fabs(correlation) > 3 / sqrt(SAMPLES)) {
                    print_error("mode %u, sources %u and %u: %.4f\n", modes[m], k, i, correlation);
                    test_failed("the correlation", __FILE__, __LINE__);
                }
            }
        }
    }
}

TEST(sampling_epoch_has_every_block_once_within_its_group) {
    static const struct {
        uint64_t tokens;
        uint32_t T;
    } cases[] = {
        {2, 1},
        {500, 8},               // fewer blocks than strata
        {100000, 7},            // one group, with remaining blocks
        {(1u << 24) + 1, 1024}, // exactly one group
        {(1u << 24) + 1025, 1024},
        {40000001, 1000},     // three groups, T no power of 2
        {400000000, 1 << 18}, // a chunk is a block
        {400000000, 3000000}, // longer than a chunk
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        SampleOrder order;
        ShuffleGroup group = {0};
        CHECK(sample_order_init(&order, SAMPLING_EPOCH, SPLIT_TRAIN, 5, (uint32_t)c, cases[c].tokens, cases[c].T) == 0);
        CHECK_EQUAL(order.blocks, (cases[c].tokens - 1) / cases[c].T);
        uint8_t *seen = calloc(1, order.blocks);
        for (uint64_t sample = order.blocks * 2; sample < order.blocks * 3; sample++) { // the third epoch
            if (sample - group.first_sample >= group.samples) {
                sample_order_group(&order, sample, &group);
                CHECK_EQUAL(group.first_sample, sample);
                CHECK_EQUAL(group.epoch, 2);
            }
            uint64_t token = sample_order_token(&order, &group, sample);
            if (token % cases[c].T || seen[token / cases[c].T]++ || !is_in_extent(&group, token, cases[c].T))
                test_failed("each block once, within its extent", __FILE__, __LINE__);
        }
        free(seen);
    }
}

// Blocks of consecutive samples: the standard deviation of the share of the last fifth of the split in batches of 512
// (random: 0.018), and the correlation of neighbouring positions.
static void check_mixing(uint64_t tokens, uint32_t T, uint64_t first, uint64_t samples) {
    enum { BATCH = 512 };
    SampleOrder order;
    ShuffleGroup group = {0};
    CHECK(sample_order_init(&order, SAMPLING_EPOCH, SPLIT_TRAIN, 7, 0, tokens, T) == 0);
    double last = 0.5, sum = 0, squares = 0, lag = 0, share = 0;
    uint64_t batches = samples / BATCH;
    for (uint64_t sample = first; sample < first + batches * BATCH; sample++) {
        if (sample - group.first_sample >= group.samples) sample_order_group(&order, sample, &group);
        double at = (double)sample_order_token(&order, &group, sample) / (double)tokens;
        lag += (at - 0.5) * (last - 0.5), last = at;
        share += at >= 0.8;
        if ((sample - first) % BATCH < BATCH - 1) continue;
        sum += share / BATCH, squares += share / BATCH * share / BATCH, share = 0;
    }
    double mean = sum / (double)batches, sd = sqrt(squares / (double)batches - mean * mean);
    double correlation = 12 * lag / (double)(batches * BATCH);
    CHECK(fabs(mean - 0.2) < 0.02);
    CHECK(sd < 0.03);
    CHECK(fabs(correlation) < 0.05);
}

TEST(sampling_epoch_mixes_the_whole_split_in_every_batch) {
    check_mixing(1 << 16, 16, 0, 4095);
    check_mixing(10000000, 256, 0, 39062);
    check_mixing(16000000, 256, 0, 62499); // one group
    check_mixing(17000000, 256, 0, 66406); // two groups
    check_mixing(100000000, 1024, 0, 97656);
    check_mixing(10000000000, 1024, 9765000 * 3, 200000);
    check_mixing(10000000000, 1024, 9765624 * 2 - 100000, 200000); // around the end of an epoch
}

TEST(sampling_shifted_uses_blocks_within_the_split_in_every_epoch) {
    enum { T = 100 };
    for (uint64_t tokens = T + 1; tokens < 5 * T; tokens += 7)
        for (uint64_t sample = 0; sample < 8 * T; sample++) // first_token checks that the row is in its extent
            CHECK(first_token(SAMPLING_SHIFTED, 1, 0, 0, tokens, T, sample) + T < tokens);
}

TEST(sampling_sequential_ends) {
    SampleOrder order;
    CHECK(sample_order_init(&order, SAMPLING_SEQUENTIAL, SPLIT_VAL, 0, 0, 101, 10) == 0);
    CHECK_EQUAL(sample_order_left(&order, 0), 10);
    CHECK_EQUAL(sample_order_left(&order, 9), 1);
    CHECK_EQUAL(sample_order_left(&order, 10), 0);
    CHECK_EQUAL(sample_order_left(&order, UINT64_MAX), 0);
}

TEST(sampling_refuses_a_split_that_is_too_short) {
    SampleOrder order;
    CHECK(sample_order_init(&order, SAMPLING_EPOCH, SPLIT_VAL, 0, 0, 10, 10) < 0);
    CHECK_TEXT(err_text(), "needs 11");
    CHECK_ERROR(EX_DATA, "val split has 10 tokens");
    CHECK(sample_order_init(&order, SAMPLING_EPOCH, SPLIT_VAL, 0, 0, 11, 10) == 0);
}

TEST(sampling_mode_finds_the_numbers_of_the_table) {
    for (unsigned number = 0; number < 256; number++)
        CHECK((sampling_mode(number) != NULL) == (number == 0 || number == 3 || (number >= 6 && number <= 10)));
}
