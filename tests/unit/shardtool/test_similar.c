// What dedup --similar is made of. Whole runs: tests/oracle/shardtool/test_neardup.py.
#include "common/rng.h"
#include "shardtool/similar/kept_sets.h"
#include "shardtool/similar/shingles.h"
#include "shardtool/support/record_sort.h"
#include "tests/test.h"
#include <pthread.h>

static const char *words_of(TextWords *words, const char *text) {
    words_set(words, bytes_of_text(text));
    buffer_reserve(&words->text, 1);
    words->text.data[words->text.size] = '\0';
    return (const char *)words->text.data;
}

TEST(words_have_one_form_for_case_marks_numbers_and_punctuation) {
    TextWords words = {0};
    CHECK_TEXT(words_of(&words, "The  \"QUICK\" brown-fox,\n1,234.50 m\xC3\xA9"
                                "tres!"),
               "the quick brown fox 0 0 metres");
    CHECK_EQUAL(words.count, 7);
    CHECK_TEXT(words_of(&words, "e\xCC\x81t\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87x"), "ete \xE4\xB8\xAD \xE6\x96\x87 x");
    CHECK_EQUAL(words.count, 4);
    CHECK_TEXT(words_of(&words, "..."), "");
    CHECK_EQUAL(words.count, 0);
    CHECK_TEXT(words_of(&words, "a\xFF\xC3"
                                "b"),
               "a b");
    words_close(&words);
}

TEST(numbers_are_equal_words_but_have_other_digits) {
    static const char *const texts[] = {"in 125 days", "in 12.5 days", "in 1,25 days", "in 1 25 days", "in 126 days"};
    TextWords words = {0};
    uint64_t digits[5];
    for (unsigned i = 0; i < 5; i++) {
        CHECK_TEXT(words_of(&words, texts[i]), "in 0");
        digits[i] = words.digits;
        for (unsigned k = 0; k < i; k++) CHECK(digits[k] != digits[i]);
    }
    // zero-width space, soft hyphen, joiner, byte order mark and an accent are no part of a number
    static const char *const same[] = {"IN, 125: days",     "in 1\u200b25 days", "in 12\u00ad5 days",
                                       "in 1\u200d25 days", "in 12\ufeff5 days", "in 12\u03015 days"};
    for (unsigned i = 0; i < sizeof same / sizeof *same; i++) {
        CHECK_TEXT(words_of(&words, same[i]), "in 0 days");
        CHECK(words.digits == digits[0]);
    }
    CHECK_TEXT(words_of(&words, "in 12\u200b.\u200b5 days"), "in 0 days");
    CHECK(words.digits == digits[1]);
    CHECK_TEXT(words_of(&words, "3.14 1,000 1,000,000 2.17.1.1 2026-11-28 rfc2046 a_b"), "0 0 0 0 0 0 0 0 0 rfc0 a b");
    words_close(&words);
}

// Hashes that reach all cases of the remainder, beside plain arithmetic of 128 bits.
TEST_ON_EACH_ISA(minhash_values_are_those_of_plain_arithmetic) {
    enum { HASHES = 351 };
#define PERMUTATION(factor, summand) {factor, summand},
    static const uint64_t permutations[][2] = {
#include "shardtool/similar/permutations.def"
    };
#undef PERMUTATION
    const uint64_t prime = (1ull << 61) - 1;
    uint64_t hashes[HASHES] = {0, 1, UINT64_MAX}, values[MINHASH_PERMUTATIONS];
    for (unsigned i = 3; i < HASHES; i++) hashes[i] = rng_u64(1, 2, i);
    // two small remainders of which the second is less by 1, then products of 2^64 - 1 and near a multiple of the prime
    for (unsigned i = 0; i < MINHASH_PERMUTATIONS; i++) {
        uint64_t inverse = permutations[i][0];
        if (inverse % 2 == 0) continue;
        for (unsigned k = 0; k < 6; k++) inverse *= 2 - permutations[i][0] * inverse;
        const uint64_t product = i % 3 == 0 ? UINT64_MAX : i % 3 == 1 ? prime * 8 + 7 : prime * (i % 8);
        const uint64_t small = (uint64_t)(i % 8) << 61 | rng_u64(1, 3, i) >> 20;
        hashes[i + 3] = (small - permutations[i][1]) * inverse;
        hashes[i + 3 + MINHASH_PERMUTATIONS] = (small - 1 - permutations[i][1]) * inverse;
        hashes[i + 3 + 2 * MINHASH_PERMUTATIONS] = (product - permutations[i][1]) * inverse;
    }
    for (unsigned count = 1; count <= HASHES; count += 50) {
        minhash_values_on(cpu_isa())(hashes, count, values);
        for (unsigned p = 0; p < MINHASH_PERMUTATIONS; p++) {
            uint64_t want = UINT64_MAX;
            for (unsigned i = 0; i < count; i++) {
                const uint64_t value = (permutations[p][0] * hashes[i] + permutations[p][1]) % prime;
                if (value < want) want = value;
            }
            CHECK(values[p] == want);
        }
    }
}

TEST(record_sort_returns_records_by_key_and_equal_keys_as_they_were_added) {
    enum { RECORDS = 100000 };
    static const uint64_t keys[] = {0, 1000, 1 << 20}, memories[] = {1 << 30, 1 << 20, 1 << 12};
    for (unsigned k = 0; k < 3; k++)
        for (unsigned m = 0; m < 3; m++) {
            const RecordLimits limits = {RECORDS, keys[k], RECORDS};
            RecordSort *sort = record_sort_open(".", &limits, memories[m], 1 + k);
            CHECK(sort);
            uint64_t sum = 0, count = 0;
            for (uint64_t i = 0; i < RECORDS; i++) {
                const uint64_t key = i % 10 == 0 ? keys[k] / 2
                                     : keys[k]   ? rng_u64(1, 1, i) % keys[k]
                                                 : rng_u64(1, 1, i);
                sum += key ^ i;
                CHECK_EQUAL(record_sort_add(sort, (SortRecord){key, i}), 0);
            }
            SortRecord last = {0}, record;
            int status;
            for (; (status = record_sort_next(sort, &record)) > 0; last = record, count++) {
                CHECK(!count || record.key > last.key || (record.key == last.key && record.value > last.value));
                sum -= record.key ^ record.value;
            }
            CHECK_EQUAL(status, 0);
            CHECK(count == RECORDS && sum == 0);
            record_sort_close(sort);
        }
}

// A set of the hashes [first, end) of a family, so that their limits say what two sets share.
typedef struct {
    uint64_t family, first, end;
    uint8_t bitmap[512];
} HashRange;

// Of even families as those of texts; of odd ones, numbers whose lower bits agree.
static uint64_t range_hash(uint64_t family, uint64_t i) {
    return family % 2 ? family << 40 | i << family % 9 : rng_u64(1, family, i);
}

static void draw_range(HashRange *range, uint64_t number, uint64_t family) {
    const uint64_t size = 1 + rng_u64(2, family, 0) % 1000, cut = family % 4 < 2 ? size / 4 : size;
    uint8_t hashes[2048 * sizeof(uint64_t)];
    range->family = family, range->first = rng_u64(3, number, 0) % (cut + 1);
    range->end = range->first + 1 + size - rng_u64(3, number, 1) % (cut + 1) / 2;
    for (uint64_t i = range->first; i < range->end; i++)
        put_u64(hashes + (i - range->first) * sizeof(uint64_t), range_hash(family, i));
    CHECK(bitmap_filter_bytes(range->end - range->first) <= sizeof range->bitmap);
    bitmap_filter_set(range->bitmap, hashes, range->end - range->first);
}

TEST(a_bitmap_refuses_no_pair_that_is_similar_and_most_that_are_not) {
    enum { SETS = 1450, FAMILY = 29 }; // 1,050,525 pairs
    HashRange *ranges = allocate_zeroed(SETS, sizeof *ranges);
    uint64_t wrong = 0, similar = 0, far = 0, left = 0;
    for (uint64_t i = 0; i < SETS; i++) draw_range(&ranges[i], i, i / FAMILY);
    for (const HashRange *a = ranges; a < ranges + SETS; a++)
        for (const HashRange *b = ranges; b < a; b++) {
            const uint64_t a_count = a->end - a->first, b_count = b->end - b->first, sum = a_count + b_count;
            const uint64_t first = a->first > b->first ? a->first : b->first, end = a->end < b->end ? a->end : b->end;
            const uint64_t shared = a->family == b->family && first < end ? end - first : 0;
            const uint64_t most = bitmap_filter_shared_most(a->bitmap, a_count, b->bitmap, b_count);
            const double similarity = (double)shared / (double)(sum - shared);
            wrong += most < shared || most != bitmap_filter_shared_most(b->bitmap, b_count, a->bitmap, a_count);
            similar += similarity >= 0.8;
            if (a->family % 2 || b->family % 2 || similarity >= 0.7) continue;
            far++, left += (double)most / (double)(sum - most) >= 0.8;
        }
    free(ranges);
    CHECK_EQUAL(wrong, 0);
    CHECK(similar > 2000);
    CHECK(far > 200000);
    CHECK(left * 20 < far);
}

// The set of a text of the words `first` and so on: `count` sequences.
static Bytes set_by(Shingler *shingler, Buffer *set, uint64_t first, uint64_t count) {
    Buffer text = {0};
    set->size = 0;
    for (uint64_t i = 0; i < count + SHINGLE_WORDS - 1; i++) {
        for (uint64_t left = first + i; left; left /= 10) buffer_add(&text, &"abcdefghij"[left % 10], 1);
        buffer_print(&text, "x ");
    }
    shingler_set(shingler, (Bytes){text.data, text.size}, set);
    buffer_close(&text);
    return (Bytes){set->data, set->size};
}

static Bytes set_of(Buffer *set, uint64_t first, uint64_t count) {
    static Shingler shingler;
    if (!shingler.values) shingler_open(&shingler);
    return set_by(&shingler, set, first, count);
}

TEST(a_set_is_compared_with_the_first_32_kept_ones_of_its_group) {
    enum { DOCUMENTS = GROUP_KEPT_MAX + 4 };
    Buffer set = {0};
    KeptSets *kept = kept_sets_open(".", group_slots(DOCUMENTS), 0.8, 0, 1);
    KeptFound found;
    for (uint64_t i = 0; i < DOCUMENTS; i++) {
        const uint64_t member = membership(0, i, i + 1 == DOCUMENTS);
        // The last two are near to the 33rd and to the 32nd, the others have no hash in common.
        const uint64_t first = i + 2 == DOCUMENTS ? 32001 : i + 1 == DOCUMENTS ? 31001 : 1000 * i;
        const KeptQuery one = {&member, 1, set_of(&set, first, 99)};
        found = (KeptFound){0};
        CHECK_EQUAL(kept_sets_find(kept, &one, &found), i + 1 == DOCUMENTS);
        if (!found.place) CHECK_EQUAL(kept_sets_keep(kept, &one, 100 + i), 0);
    }
    CHECK_EQUAL(found.number, 131);
    CHECK(found.similarity == 98.0 / 100);
    CHECK_EQUAL(kept_sets_statistics(kept).largest, 1);
    kept_sets_close(kept);
    buffer_close(&set);
}

// A worker looks at none, at some or at all of the kept documents before the owner does.
TEST(the_owner_looks_on_from_where_a_worker_ended) {
    enum { DOCUMENTS = 6 };
    Buffer set = {0};
    for (unsigned seen = 0; seen <= DOCUMENTS; seen++)
        for (unsigned near = 0; near <= DOCUMENTS; near++) {
            KeptSets *kept = kept_sets_open(".", 3 * DOCUMENTS, 0.8, 1 << 20, 2);
            const uint64_t lasts[] = {membership(0, DOCUMENTS, true), membership(DOCUMENTS, DOCUMENTS, true)};
            KeptFound found = {0};
            for (unsigned i = 0; i <= DOCUMENTS; i++) {
                const KeptQuery last = {lasts, 2, set_of(&set, 1000 * near, 99)};
                if (i == seen) CHECK_EQUAL(kept_sets_search(kept, 1, &last, &found), 0);
                CHECK(i < seen || (found.place != 0) == (near < seen));
                if (i == DOCUMENTS) break;
                const uint64_t members[] = {membership(0, i, false), membership(DOCUMENTS, i, false)};
                const KeptQuery one = {members, 2, set_of(&set, 1000 * i, 99)};
                CHECK_EQUAL(kept_sets_keep(kept, &one, i), 0);
            }
            const KeptQuery last = {lasts, 2, set_of(&set, 1000 * near, 99)};
            CHECK_EQUAL(kept_sets_find(kept, &last, &found), near < DOCUMENTS);
            CHECK(near == DOCUMENTS || (found.number == near && found.similarity == 1));
            CHECK_EQUAL(kept_sets_statistics(kept).comparisons, near < DOCUMENTS ? near + 1 : DOCUMENTS);
            CHECK_EQUAL(kept_sets_statistics(kept).texts, near < DOCUMENTS);
            kept_sets_close(kept);
        }
    buffer_close(&set);
}

typedef struct {
    KeptSets *kept;
    unsigned worker;
    bool ended; // by the owner: atomic
    uint64_t wrong;
} KeptReader;

// Looks for sets of which each was kept in a group of its own, or will be.
static void *look_for_sets(void *argument) {
    KeptReader *reader = argument;
    Shingler shingler = {0};
    Buffer set = {0};
    shingler_open(&shingler);
    for (uint64_t i = 0; !__atomic_load_n(&reader->ended, __ATOMIC_ACQUIRE); i = (i + 7) % 3000) {
        const uint64_t second = membership(i, 1, true);
        KeptFound found;
        const KeptQuery one = {&second, 1, set_by(&shingler, &set, 1000 * i, 99)};
        reader->wrong += kept_sets_search(reader->kept, reader->worker, &one, &found) < 0;
        reader->wrong += found.place && (found.number != i || found.similarity != 1);
    }
    buffer_close(&set);
    shingler_close(&shingler);
    return NULL;
}

TEST(workers_look_at_kept_documents_while_the_owner_keeps_others) {
    Buffer set = {0};
    // 1 MB: hashes, compressed words and words in the file come while the workers look
    KeptReader readers[2] = {{.kept = kept_sets_open(".", 3000, 0.8, 1 << 20, 2)}};
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++) {
        readers[i] = (KeptReader){.kept = readers[0].kept, .worker = i};
        CHECK_EQUAL(pthread_create(&threads[i], NULL, look_for_sets, &readers[i]), 0);
    }
    for (uint64_t i = 0; i < 3000; i++) {
        const uint64_t first = membership(i, 0, false);
        const KeptQuery one = {&first, 1, set_of(&set, 1000 * i, 99)};
        CHECK_EQUAL(kept_sets_keep(readers[0].kept, &one, i), 0);
    }
    for (unsigned i = 0; i < 2; i++) {
        __atomic_store_n(&readers[i].ended, true, __ATOMIC_RELEASE);
        pthread_join(threads[i], NULL);
        CHECK_EQUAL(readers[i].wrong, 0);
    }
    kept_sets_close(readers[0].kept);
    buffer_close(&set);
}

TEST(sets_that_do_not_fit_in_memory_are_compared_as_those_that_do) {
    enum { DOCUMENTS = 3000 }; // 2 MB of words: as hashes, then compressed, then in the file
    Buffer set = {0};
    KeptSets *kept = kept_sets_open(".", DOCUMENTS, 0.8, 0, 1);
    for (uint64_t i = 0; i < DOCUMENTS; i++) {
        const uint64_t first = membership(i, 0, false);
        const KeptQuery one = {&first, 1, set_of(&set, 1000 * i, 99)};
        CHECK_EQUAL(kept_sets_keep(kept, &one, i), 0);
    }
    for (uint64_t i = 0; i < DOCUMENTS; i++) {
        const uint64_t second = membership(i, 1, true);
        const uint64_t differs = i % 20;
        const KeptQuery one = {&second, 1, set_of(&set, 1000 * i + differs, 99)};
        KeptFound found = {0};
        CHECK_EQUAL(kept_sets_find(kept, &one, &found), differs <= 11);
        CHECK(differs > 11 ||
              (found.number == i && found.similarity == (double)(99 - differs) / (double)(99 + differs)));
    }
    CHECK_EQUAL(kept_sets_statistics(kept).comparisons, DOCUMENTS);
    // The near ones, and a part of those with similarities of 0.68 to 0.78.
    CHECK(kept_sets_statistics(kept).texts >= DOCUMENTS / 20 * 12 && kept_sets_statistics(kept).texts < DOCUMENTS);
    kept_sets_close(kept);
    buffer_close(&set);
}

TEST(a_similarity_that_is_the_least_is_near) {
    Buffer set = {0};
    for (uint64_t shared = 1; shared < 40; shared++) {
        KeptSets *kept = kept_sets_open(".", 1, (double)shared / 40, 0, 1); // of 20 + shared / 2 hashes each, roughly
        const uint64_t first = membership(0, 0, false), second = membership(0, 1, true);
        const KeptQuery part = {&first, 1, set_of(&set, 0, shared)};
        CHECK_EQUAL(kept_sets_keep(kept, &part, 1), 0); // a part of the other
        KeptFound found = {0};
        const KeptQuery near = {&second, 1, set_of(&set, 0, 40)};
        CHECK_EQUAL(kept_sets_find(kept, &near, &found), 1);
        CHECK(found.similarity == (double)shared / 40);
        found = (KeptFound){0};
        const KeptQuery far = {&second, 1, set_of(&set, 0, 41)};
        CHECK_EQUAL(kept_sets_find(kept, &far, &found), 0);
        kept_sets_close(kept);
    }
    buffer_close(&set);
}
