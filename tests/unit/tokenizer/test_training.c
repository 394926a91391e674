// The training of a vocabulary: what tests/oracle/tokenizer/test_train_vocabulary.py, which compares the tokens, cannot
// reach.
#include "common/bytes.h"
#include "tests/test.h"
#include "tokenizer/training/bpe_training.h"
#include "tokenizer/training/piece_counts.h"
#include "tokenizer/training/piece_run.h"

enum { PIECES = 200000, MERGES = 20000, BYTE_IDS = 256 };

static void show(void *shown, uint32_t count) { *(uint32_t *)shown = count; }

// Different pieces of few letters: their number in base 5, with a count.
static Bytes make_piece(uint32_t number, uint8_t piece[16], uint64_t *count) {
    size_t size = 0;
    const uint32_t mixed = number * 2654435761u;
    for (uint64_t rest = (uint64_t)mixed + 1; rest; rest /= 5) piece[size++] = (uint8_t)('a' + rest % 5);
    *count = 1 + mixed % 7 * (number % 1000 == 0 ? 100 : 1);
    return (Bytes){piece, size};
}

typedef struct {
    uint32_t left, right;
    uint64_t number; // the number of a merge, or a count
} Pair;

static int by_pair(const void *a, const void *b) {
    const Pair *x = a, *y = b;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

// Does the merges before `end`, the lowest first, from the left.
static size_t merge_piece(const Pair *sorted, uint32_t end, uint32_t ids[16], size_t size) {
    for (;;) {
        uint64_t best = end;
        for (size_t i = 0; i + 1 < size; i++) {
            const Pair *found = bsearch(&(Pair){ids[i], ids[i + 1], 0}, sorted, MERGES, sizeof *sorted, by_pair);
            if (found && found->number < best) best = found->number;
        }
        if (best == end) return size;
        size_t kept = 0;
        for (size_t i = 0; i < size; i++, kept++) {
            const Pair *found =
                i + 1 == size ? NULL : bsearch(&(Pair){ids[i], ids[i + 1], 0}, sorted, MERGES, sizeof *sorted, by_pair);
            const bool merged = found && found->number == best;
            ids[kept] = merged ? BYTE_IDS + (uint32_t)best : ids[i];
            i += merged;
        }
        size = kept;
    }
}

// The most frequent pair of all pieces after the merges before `end`, the lowest of several.
static Pair find_most_frequent(const Pair *sorted, uint32_t end) {
    Pair *pairs = allocate_zeroed(PIECES * 16, sizeof *pairs), most = {0};
    size_t count = 0;
    for (uint32_t i = 0; i < PIECES; i++) {
        uint8_t piece[16];
        uint32_t ids[16];
        uint64_t times;
        size_t size = make_piece(i, piece, &times).size;
        for (size_t j = 0; j < size; j++) ids[j] = piece[j];
        size = merge_piece(sorted, end, ids, size);
        for (size_t j = 0; j + 1 < size; j++) pairs[count++] = (Pair){ids[j], ids[j + 1], times};
    }
    qsort(pairs, count, sizeof *pairs, by_pair);
    for (size_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && !by_pair(&pairs[i], &pairs[next]); next++)
            pairs[i].number += pairs[next].number;
        if (pairs[i].number > most.number) most = pairs[i];
    }
    free(pairs);
    return most;
}

TEST_CI(each_merge_is_the_most_frequent_pair_also_after_stale_places_were_removed) {
    BpeTraining *training = bpe_training_open(1 << 30, MERGES);
    uint8_t piece[16];
    uint64_t count;
    uint32_t shown = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) CHECK_EQUAL(bpe_training_begin(training), 0);
        for (uint32_t i = 0; i < PIECES; i++) {
            const Bytes bytes = make_piece(i, piece, &count);
            CHECK_EQUAL(pass ? bpe_training_add(training, bytes, count)
                             : bpe_training_announce(training, bytes.size, count),
                        0);
        }
    }
    const BpeMerge *merges;
    CHECK_EQUAL(bpe_training_run(training, &merges, show, &shown), MERGES);
    CHECK_EQUAL(shown, MERGES);
    Pair *sorted = allocate_zeroed(MERGES, sizeof *sorted);
    for (uint32_t i = 0; i < MERGES; i++) sorted[i] = (Pair){merges[i].left, merges[i].right, i};
    qsort(sorted, MERGES, sizeof *sorted, by_pair);
    static const uint32_t places[] = {0, 40, 1000, 10000, MERGES - 1};
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        const Pair most = find_most_frequent(sorted, places[i]);
        CHECK(most.left == merges[places[i]].left && most.right == merges[places[i]].right);
    }
    free(sorted);
    bpe_training_close(training);
}

TEST(pieces_that_need_more_memory_than_allowed_are_refused_with_a_count_that_fits) {
    BpeTraining *training = bpe_training_open(16 << 20, 100);
    for (uint64_t count = 1; count <= 100; count++) // 10,000 pieces of 999 bytes for each count
        for (unsigned i = 0; i < 100; i++) CHECK_EQUAL(bpe_training_announce(training, 999, count), 0);
    CHECK_EQUAL(bpe_training_begin(training), -1);
    CHECK_EQUAL(err_code(), EX_MEMORY);
    // (16 MiB - 8 MiB of pairs) / 10 bytes a symbol = 835,000 symbols: 8 counts of 100,000 each
    CHECK(strstr(err_text(), "10000 different pieces"));
    CHECK(strstr(err_text(), "--min-count 93"));
    err_clear();
    bpe_training_close(training);
}

TEST(counts_beyond_32_bits_add_up) {
    BpeTraining *training = bpe_training_open(64 << 20, 2);
    const struct {
        const char *piece;
        uint64_t count;
    } pieces[] = {{"ab", 1ull << 33}, {"cd", 3ull << 32}, {"xab", 3ull << 32}};
    const BpeMerge *merges;
    uint32_t shown;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) CHECK_EQUAL(bpe_training_begin(training), 0);
        for (unsigned i = 0; i < 3; i++) {
            const Bytes piece = {(const uint8_t *)pieces[i].piece, strlen(pieces[i].piece)};
            CHECK_EQUAL(pass ? bpe_training_add(training, piece, pieces[i].count)
                             : bpe_training_announce(training, piece.size, pieces[i].count),
                        0);
        }
    }
    CHECK_EQUAL(bpe_training_run(training, &merges, show, &shown), 2);
    CHECK(merges[0].left == 'a' && merges[0].right == 'b'); // 5 << 32
    CHECK(merges[1].left == 'c' && merges[1].right == 'd'); // 3 << 32, as (x, ab), and lower
    bpe_training_close(training);
}

typedef struct {
    uint64_t pieces, count, last;
} Sum;

static int sum_pieces(void *context, Bytes piece, uint64_t count) {
    Sum *sum = context;
    const uint64_t hash = piece_hash(piece);
    CHECK(hash >= sum->last);
    sum->pieces++, sum->count += count, sum->last = hash;
    return 0;
}

// Pieces of 1 to 40 bytes, more than a table of a MiB holds, each twice; with runs merged, each occurs twice.
TEST(tables_that_were_full_become_runs_whose_merge_has_each_piece_once) {
    enum { DIFFERENT = 60000, PIECE_MAX = 40 };
    static uint8_t text[2 * DIFFERENT * PIECE_MAX + PIECE_PADDING];
    static uint32_t starts[2 * DIFFERENT + 1];
    PieceRun runs[32];
    size_t run_count = 0;
    uint32_t at = 0;
    for (uint32_t i = 0; i < 2 * DIFFERENT; i++) {
        const uint32_t number = i % DIFFERENT, padding = number % 36;
        starts[i] = at;
        memset(text + at, 'x', padding);
        memcpy(text + at + padding, &number, sizeof number);
        at += padding + (uint32_t)sizeof number;
    }
    starts[2 * DIFFERENT] = at;
    PieceCounts counts;
    piece_counts_open(&counts, PIECE_COUNTS_MEMORY);
    for (size_t done = 0; done < 2 * DIFFERENT || counts.used;) {
        done += piece_counts_add(&counts, text, starts + done, 2 * DIFFERENT - done);
        CHECK(run_count < 32);
        CHECK_EQUAL(piece_run_write(&counts, ".", run_count, &runs[run_count]), 0);
        run_count++;
    }
    CHECK(run_count > 2);
    Sum sum = {0};
    CHECK_EQUAL(piece_runs_merge(".", runs, run_count, sum_pieces, &sum), 0);
    CHECK_EQUAL(sum.pieces, DIFFERENT);
    CHECK_EQUAL(sum.count, 2 * DIFFERENT);
    piece_counts_close(&counts);
}
