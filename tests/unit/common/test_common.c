// Tests of common: errors, options, pool, random numbers, hashes.
#include "common/arena.h"
#include "common/bytes.h"
#include "common/cli/cli.h"
#include "common/hash.h"
#include "common/json_write.h"
#include "common/log.h"
#include "common/machine/cpu.h"
#include "common/machine/hugepages.h"
#include "common/machine/pool.h"
#include "common/machine/processor_time.h"
#include "common/rng.h"
#include "common/search.h"
#include "common/utf8.h"
#include "tests/test.h"
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <unistd.h>

TEST(err_keeps_the_first_cause_and_says_where) {
    CHECK_EQUAL(fail(EX_DATA, "frame %d is cut", 3), -1);
    fail(EX_IO, "cleaning up failed too");
    fail_in("shard '%s'", "a.zst");
    CHECK_EQUAL(err_code(), EX_DATA);
    assert_string_equal(err_text(), "shard 'a.zst': frame 3 is cut");

    Error error;
    err_take(&error);
    CHECK_EQUAL(err_code(), 0);
    err_give(&error);
    CHECK_EQUAL(err_code(), EX_DATA);
}

TEST(err_prints_no_control_characters_of_names) {
    fail(EX_DATA, "'%s' is damaged", "red\033[31m\nok a.zst\x7f");
    fail_in("'%s'", "tab\there");
    assert_string_equal(err_text(), "'tab?here': 'red?[31m?ok a.zst?' is damaged");
    err_clear();
}

TEST(err_prints_no_secrets_of_urls) {
    fail(EX_DATA, "'%s' and '%s' differ, do they?", "https://a.example/set?sig=SECRET&b=://x?SECRET",
         "http://b?SECRET");
    fail_in("https://c/d?SECRET 'it''s'");
    assert_string_equal(err_text(), "https://c/d 'it''s': 'https://a.example/set' and 'http://b' differ, do they?");
    err_clear();
    static const struct {
        const char *url, *printed;
    } urls[] = {
        {"https://h/it's?sig=SECRET", "https://h/it's"},
        {"https://h/a b?sig=SECRET", "https://h/a b"},
        {"https://h/q?a='SECRET'&b= SECRET", "https://h/q"},
        {"https://me:SECRET@h/q@1?SECRET", "https://h/q@1"},
        {"s3://me:SEC@RET@h/q", "s3://h/q"},
        {"hf://datasets/a/b@1/c?d", "hf://datasets/a/b@1/c?d"}, // has no query
        {"s3://h/a?1.jsonl", "s3://h/a?1.jsonl"},
    };
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        char want[80];
        snprintf(want, sizeof want, "'%s': missing?", urls[i].printed);
        fail(EX_DATA, "'%s': missing?", urls[i].url);
        assert_string_equal(err_text(), want);
        err_clear();
    }
}

TEST(err_derives_the_exit_code_from_errno) {
    static const int pairs[][2] = {{ENOENT, EX_NOINPUT}, {EACCES, EX_PERMISSION}, {EMFILE, EX_LIMIT},
                                   {ENOMEM, EX_MEMORY},  {EROFS, EX_CREATE},      {ENOSPC, EX_IO}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        err_clear();
        errno = pairs[i][0];
        fail_errno("cannot do it");
        CHECK_EQUAL(err_code(), pairs[i][1]);
    }
}

TEST(arena_pushes_aligned_zeroed_memory) {
    Arena arena = {0};
    char *a = arena_push(&arena, 3);
    char *b = arena_push(&arena, 100);
    CHECK((uintptr_t)b % 64 == 0 && b - a == 64 && b[99] == 0);
    char *text = arena_print(&arena, "%d shards", 7);
    for (size_t bytes = 1; bytes < 1 << 20; bytes *= 3) { // over several blocks
        unsigned char *more = arena_push(&arena, bytes);
        CHECK((uintptr_t)more % 64 == 0 && more[0] == 0 && more[bytes - 1] == 0);
        memset(more, 0xFF, bytes);
    }
    assert_string_equal(text, "7 shards");
    arena_close(&arena);
    CHECK(!arena.block);
}

TEST(cursor_never_passes_the_end) {
    uint8_t data[6] = {1, 0, 0, 0, 9, 9};
    Cursor cursor = cursor_init((Bytes){data, sizeof data});
    uint32_t a = 0, b = 77;
    CHECK(cursor_u32(&cursor, &a) && a == 1);
    CHECK(!cursor_u32(&cursor, &b) && b == 77);
    CHECK(!cursor_take(&cursor, 1)); // after the first failure all further ones fail
}

TEST(bytes_next_line_divides_a_text_at_line_feeds) {
    const char text[] = "one\n\nthree";
    Bytes rest = {(const uint8_t *)text, strlen(text)}, line, incomplete;
    CHECK(bytes_next_line(&rest, &line) && line.size == 3 && !memcmp(line.data, "one", 3));
    CHECK(bytes_next_line(&rest, &line) && line.size == 0);
    incomplete = rest;
    CHECK(!bytes_next_line(&rest, &line) && rest.data == incomplete.data && rest.size == 5);
    CHECK(bytes_next_line_or_rest(&rest, &line) && line.size == 5 && !memcmp(line.data, "three", 5));
    CHECK(!bytes_next_line(&rest, &line) && !bytes_next_line_or_rest(&rest, &line));
    CHECK(!bytes_next_line_or_rest(&(Bytes){NULL, 0}, &line));
}

TEST(array_grow_keeps_the_elements) {
    size_t *array = NULL;
    for (size_t i = 0; i < 1000; i++) {
        array = array_grow(array, i, sizeof *array);
        array[i] = i;
    }
    for (size_t i = 0; i < 1000; i++) CHECK_EQUAL(array[i], i);
    free(array);
}

TEST(hugepages_are_zeroed_aligned_and_freed) {
    static const size_t sizes[] = {1, 4096, 65537, 1 << 20, (1 << 20) + 1, 2 << 20, (5 << 20) + 3};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *memory = hugepages_alloc(sizes[i]);
        CHECK(memory && (uintptr_t)memory % (sizes[i] > 1 << 20 ? 2 << 20 : 64) == 0);
        for (size_t byte = 0; byte < sizes[i]; byte++) CHECK(memory[byte] == 0);
        memset(memory, 1, sizes[i]);
        hugepages_free(memory);
    }
    hugepages_free(NULL);
    CHECK(!hugepages_alloc(SIZE_MAX) && !hugepages_alloc((size_t)1 << 60));
}

TEST(search_finds_the_last_number_that_is_not_above) {
    static const struct { uint64_t first, other; } rows[] = {{0, 9}, {5, 9}, {5, 9}, {8, 0}};
    static const uint64_t want[] = {0, 0, 0, 0, 0, 2, 2, 2, 3, 3};
    for (uint64_t value = 0; value < 10; value++)
        CHECK_EQUAL(floor_index(&rows->first, sizeof *rows, 4, value), want[value]);
    CHECK_EQUAL(floor_index(&rows[1].first, sizeof *rows, 3, 1), 0); // all are above
}

// The standard's own examples of how many U+FFFD an invalid sequence becomes (tables 3-8 to 3-11).
TEST(utf8_replaces_maximal_subparts_as_the_standard_does) {
    static const struct {
        const char *bytes, *want; // R stands for U+FFFD
    } rows[] = {{"a\xF1\x80\x80\xE1\x80\xC2"
                 "b\x80"
                 "c\x80\xBF"
                 "d",
                 "aRRRbRcRRd"},
                {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                 "A",
                 "RRRRRRRRA"},
                {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                 "A",
                 "RRRRRRRRA"},
                {"\xF4\x91\x92\x93\xFF"
                 "A\x80\xBF"
                 "B",
                 "RRRRRARRB"},
                {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                 "A",
                 "RRRRA"},
                {"12345678\xC3\xA9\xF0\x9F\x98\x80", "12345678\xC3\xA9\xF0\x9F\x98\x80"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Buffer got = {0}, want = {0};
        for (const char *c = rows[i].want; *c; c++) buffer_add(&want, *c == 'R' ? UTF8_REPLACED : c, *c == 'R' ? 3 : 1);
        uint64_t replaced = utf8_replace((Bytes){(const uint8_t *)rows[i].bytes, strlen(rows[i].bytes)}, &got);
        CHECK_EQUAL(replaced, (want.size - strlen(rows[i].want)) / 2);
        CHECK(got.size == want.size && !memcmp(got.data, want.data, got.size));
        buffer_close(&got);
        buffer_close(&want);
    }
}

TEST(utf8_encodes_every_code_point_and_sees_where_one_is_cut) {
    for (uint32_t point = 0; point <= UTF8_LAST; point++) {
        uint8_t bytes[UTF8_BYTES_MAX];
        uint32_t got;
        unsigned length = utf8_encode(point, bytes);
        CHECK_EQUAL(length, 1 + (point >= 0x80) + (point >= 0x800) + (point >= 0x10000));
        if (point >= 0xD800 && point < 0xE000) continue;
        CHECK(utf8_decode(bytes, bytes + length, &got) == length && got == point);
        CHECK_EQUAL(utf8_valid((Bytes){bytes, length}), length);
        for (unsigned cut = 1; cut < length; cut++)
            CHECK(utf8_decode(bytes, bytes + cut, &got) == cut && got == UTF8_CUT);
    }
}

TEST(utf8_length_is_that_of_the_decoder) {
    uint64_t differences = 0;
    for (uint32_t three = 0; three < 1 << 24; three++) {
        uint8_t bytes[4] = {(uint8_t)three, (uint8_t)(three >> 8), (uint8_t)(three >> 16), 0x80};
        uint32_t point;
        unsigned length = utf8_decode(bytes, bytes + 4, &point);
        differences += utf8_length(bytes, bytes + 4) != (point > UTF8_LAST ? 0 : length);
    }
    CHECK_EQUAL(differences, 0);
}

// Jobs that finish in any order come back in order, with the error of the failed one.
typedef struct {
    int number, square;
} Job;
static int square(void *job, unsigned worker) {
    (void)worker;
    Job *j = job;
    usleep((unsigned)(j->number * 7919 % 500));
    j->square = j->number * j->number;
    return j->number == 70 ? fail(EX_DATA, "job %d", j->number) : 0;
}

TEST(pool_gives_jobs_back_in_order_for_any_number_of_threads) {
    for (unsigned threads = 1; threads <= 5; threads += 2) {
        Job jobs[4], *job;
        void *out;
        Pool *pool = pool_open(threads, square, jobs, sizeof *jobs, 4);
        CHECK(pool);
        for (int fed = 0, drained = 0; drained < 100;) {
            while (fed < 100 && (job = pool_acquire(pool))) {
                job->number = fed++;
                pool_submit(pool);
            }
            int status = pool_collect(pool, &out);
            job = out;
            CHECK_EQUAL(job->number, drained);
            CHECK_EQUAL(job->square, drained * drained);
            CHECK_EQUAL(status, drained == 70 ? -1 : 0);
            if (drained == 70) assert_string_equal(err_text(), "job 70");
            err_clear();
            drained++;
        }
        CHECK(pool_collect(pool, &out) == 0 && !out);
        pool_close(pool);
    }
}

typedef struct {
    sem_t *begun, *opened;
    unsigned worker;
    bool first, last;
} Gate;

// The first job ends when the last one has opened it.
static int pass_gate(void *data, unsigned worker) {
    Gate *gate = data;
    gate->worker = worker;
    if (gate->first) sem_post(gate->begun), sem_wait(gate->opened);
    if (gate->last) sem_post(gate->opened);
    return 0;
}

TEST(pool_help_does_the_jobs_that_no_worker_has_begun) {
    sem_t begun, opened;
    CHECK(sem_init(&begun, 0, 0) == 0 && sem_init(&opened, 0, 0) == 0);
    Gate gates[4] = {{0}};
    Pool *pool = pool_open(1, pass_gate, gates, sizeof *gates, 4);
    CHECK(pool);
    for (int i = 0; i < 4; i++) {
        CHECK_EQUAL(pool_acquire(pool), &gates[i]);
        gates[i] = (Gate){&begun, &opened, 7, i == 0, i == 3};
        pool_submit(pool);
        if (i == 0) sem_wait(&begun);
    }
    fail(EX_DATA, "an error of the owner");
    pool_help(pool);
    assert_string_equal(err_text(), "an error of the owner");
    err_clear();
    for (int i = 0; i < 4; i++) {
        void *done;
        CHECK_EQUAL(pool_collect(pool, &done), 0);
        CHECK_EQUAL(done, &gates[i]);
        CHECK_EQUAL(gates[i].worker, i > 0); // the worker waited in the first one
    }
    pool_close(pool);
}

// The first job fails after the last one.
static int fail_after_the_last(void *data, unsigned worker) {
    const Gate *gate = data;
    (void)worker;
    if (gate->first) sem_wait(gate->opened);
    if (gate->last) sem_post(gate->opened);
    return gate->first || gate->last ? fail(EX_DATA, "the %s job", gate->first ? "first" : "last") : 0;
}

TEST(pool_run_does_every_job_or_fails_as_the_first_in_order_that_failed) {
    Job jobs[9];
    for (int i = 0; i < 9; i++) jobs[i] = (Job){.number = i};
    CHECK_EQUAL(pool_run(3, square, jobs, sizeof *jobs, 9), 0);
    for (int i = 0; i < 9; i++) CHECK_EQUAL(jobs[i].square, i * i);
    CHECK_EQUAL(pool_run(3, square, jobs, sizeof *jobs, 0), 0);
    sem_t opened;
    CHECK(sem_init(&opened, 0, 0) == 0);
    Gate gates[4] = {[0] = {.first = true}, [3] = {.last = true}};
    for (int i = 0; i < 4; i++) gates[i].opened = &opened;
    CHECK_EQUAL(pool_run(2, fail_after_the_last, gates, sizeof *gates, 4), -1);
    CHECK_ERROR(EX_DATA, "the first job");
}

// Random123's published known answers for philox4x32 with 10 rounds.
TEST(philox_gives_the_published_answers) {
    static const uint32_t known[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
         0x24126ea1}};
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        philox4x32(known[i], known[i] + 4, out);
        assert_memory_equal(out, known[i] + 6, sizeof out);
    }
}

// Expected: the same formula in Python, whose doubles are IEEE's and never fused.
TEST(normal_numbers_have_the_same_bits_everywhere) {
    static const struct {
        uint64_t seed, stream, index, bits;
    } known[] = {{1337, 0, 0, 0x3fcd2f0fe11cb048},
                 {1337, 4294967301, 123456789, 0xbfef557fce3987c8},
                 {9223372036854775813u, 7, 4294967295, 0xbfef7791950282a1},
                 {9223372036854775813u, 7, 4294967296, 0xbff5f7ebb72a2824}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const double value = rng_normal(known[i].seed, known[i].stream, known[i].index);
        assert_memory_equal(&value, &known[i].bits, sizeof value);
    }
    for (uint64_t i = 1; i < 10000; i++) {
        const double x = (double)i / 10000;
        CHECK(fabs(rng_log(x) - log(x)) <= 1e-15 * fabs(log(x)));
        CHECK(fabs(rng_cosine(x) - cos(6.283185307179586476925 * x)) < 1e-15);
    }
    CHECK(rng_log(1) == 0 && fabs(rng_log(0x1p-53) + 36.736800569677101) < 1e-14);
}

TEST(hashes_give_the_published_answers) {
    uint8_t digest[32], back[32];
    char hex[65];
    sha256("abc", 3, digest); // FIPS 180-2
    hex_encode(hex, digest, 32);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(hex_decode(back, hex, 32) == 0 && !memcmp(back, digest, 32));
    CHECK(hex_decode(back, "zz", 1) < 0 && hex_decode(back, "abc", 1) < 0);
    CHECK_EQUAL(crc32c(0, "123456789", 9), 0xE3069283); // RFC 3720
    CHECK_EQUAL(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xE3069283);
}

TEST(hash_crc32c_of_any_length_is_the_bitwise_one) {
    enum { MOST = 20000 };
    static uint8_t bytes[MOST];
    uint32_t want = ~0u;
    for (size_t i = 0; i < MOST; i++) {
        if (i < 100 || i % 509 == 0 || (i >= 3070 && i < 3080)) CHECK_EQUAL(crc32c(0, bytes, i), ~want);
        bytes[i] = (uint8_t)(i * i >> 3 ^ i);
        want ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) want = want & 1 ? want >> 1 ^ 0x82F63B78u : want >> 1;
    }
}

static bool flag;
static uint64_t size = 5;
static int64_t number = -1;
static double real = 0.5;
static const char *text = "";
static const Option options[] = {
    {OPT_FLAG, "json", &flag, NULL, "one object a line"},
    {OPT_SIZE, "shard-tokens", &size, "N", "tokens a shard"},
    {OPT_INT, "j,threads", &number, "N", "worker threads"},
    {OPT_FLOAT, "val", &real, "P", "share of validation documents"},
    {OPT_STRING, "o,output", &text, "DIR", "where to"},
    {OPT_END, NULL, NULL, NULL, NULL},
};
static char seen[256];
static int run(int count, char **arguments) {
    seen[0] = '\0';
    for (int i = 0; i < count; i++) strcat(strcat(seen, arguments[i]), ";");
    return 0;
}
static const Command command = {"pack", "[FILE...]", "packs files", options, run, NULL};
static int run_and_fail(int count, char **arguments) {
    (void)count, (void)arguments;
    Progress progress;
    progress_start(&progress, "drawing", "B", 100);
    progress.drawn_ns = 0; // long ago
    progress_update(&progress, 50);
    return fail(EX_DATA, "it broke");
}
static const Command drawing = {"draw", "", "draws a progress line and fails", NULL, run_and_fail, NULL};
static const Command *const commands[] = {&command, &drawing, NULL};
static const Program program = {
    .name = "tool", .installed = "millrace-tool", .summary = "a tool", .commands = commands, .see_also = "other(1)"};

#define TRY(...) cli_main(&program, (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[]){__VA_ARGS__})

TEST(cli_parses_every_form_of_an_option) {
    CHECK_EQUAL(
        TRY("tool", "pack", "a", "--shard_tokens=64k", "--json", "-j4", "-o", "out", "--val", "0.25", "-", "--", "--b"),
        0);
    CHECK(flag && size == 65536 && number == 4 && real == 0.25);
    assert_string_equal(text, "out");
    assert_string_equal(seen, "a;-;--b;");
    CHECK_EQUAL(TRY("tool", "pack", "--no-json", "--shard-tokens", "1.5GiB"), 0);
    CHECK(!flag && size == 1610612736);
    CHECK_EQUAL(TRY("tool", "pack", "--shard-tokens", "9007199254740993"), 0);
    CHECK(size == 9007199254740993u);
}

TEST(cli_sizes_are_decimal_with_KB_to_TB_alone) {
    static const struct {
        const char *text;
        uint64_t bytes, things; // UINT64_MAX: refused
    } rows[] = {
        {"4096", 4096, 4096},
        {"4096B", 4096, 4096},
        {"64k", 65536, 65536},
        {"64K", 65536, 65536},
        {"64Ki", 65536, 65536},
        {"64kB", 64000, 65536},
        {"3MB", 3000000, 3145728},
        {"3mb", 3000000, 3145728},
        {"3M", 3145728, 3145728},
        {"3mib", 3145728, 3145728},
        {"12GB", 12000000000, 12884901888},
        {"12G", 12884901888, 12884901888},
        {"1.5GiB", 1610612736, 1610612736},
        {"1.5", UINT64_MAX, UINT64_MAX},
        {"0.4KiB", 409, UINT64_MAX},
        {"1.5TB", 1500000000000, 1649267441664},
        {"2T", 2199023255552, 2199023255552},
        {"2TiB", 2199023255552, 2199023255552},
        {"2PB", UINT64_MAX, UINT64_MAX},
        {"2GBs", UINT64_MAX, UINT64_MAX},
        {"2iB", 2, 2},
        {"2i", UINT64_MAX, UINT64_MAX},
        {"-2k", UINT64_MAX, UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int of_things = 0; of_things < 2; of_things++) {
            uint64_t got = UINT64_MAX;
            const Option option = {OPT_SIZE, "size", &got, of_things ? "N" : "SIZE", ""};
            const uint64_t want = of_things ? rows[i].things : rows[i].bytes;
            CHECK_EQUAL(option_set(&option, rows[i].text), want == UINT64_MAX ? -1 : 0);
            CHECK_EQUAL(got, want);
            err_clear();
        }
}

TEST(cli_uses_the_last_of_several_equal_options) {
    CHECK_EQUAL(TRY("tool", "pack", "--json", "-j4", "--threads=7", "--no-json", "-o", "a", "--output=b", "-j", "5"),
                0);
    CHECK(!flag && number == 5);
    assert_string_equal(text, "b");
}

// What `print` writes to a terminal on stderr.
static void print_to_terminal(void (*print)(void), char *out, size_t out_size) {
    int terminal = posix_openpt(O_RDWR | O_NOCTTY), saved = dup(STDERR_FILENO);
    CHECK(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int side = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    CHECK(side >= 0);
    fflush(stderr);
    dup2(side, STDERR_FILENO);
    print();
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(side), close(saved);
    size_t end = 0; // a read may return one write of several; with the other side closed the last one fails
    for (ssize_t got; (got = read(terminal, out + end, out_size - 1 - end)) > 0;) end += (size_t)got;
    out[end] = '\0';
    close(terminal);
}

static void print_error_during_progress(void) { CHECK_EQUAL(TRY("tool", "draw"), EX_DATA); }
static void print_finished_progress(void) {
    Progress progress;
    progress_start(&progress, "drawing", "B", 100);
    progress.drawn_ns = 0;
    progress_update(&progress, 50);
    progress_finish(&progress);
    progress_finish(&progress); // no line is left
    log_line("done");
}

TEST(log_erases_a_progress_line_before_an_error) {
    char out[4096];
    print_to_terminal(print_error_during_progress, out, sizeof out);
    err_clear();
    CHECK_TEXT(out, "drawing  50 %");
    CHECK_TEXT(out, "\r\033[Ktool draw: it broke\r\n");
}

static void print_more_progress_than_expected(void) {
    Progress progress;
    progress_start(&progress, "drawing", "B", 100);
    progress.drawn_ns = 0;
    progress_update(&progress, 101);
    log_line("done");
}

TEST(log_gives_no_share_of_a_total_that_was_too_small) {
    char out[4096];
    print_to_terminal(print_more_progress_than_expected, out, sizeof out);
    CHECK_TEXT(out, "drawing 101 B");
    CHECK(!strchr(out, '%') && !strstr(out, "left"));
}

TEST(log_ends_a_finished_progress_line) {
    char out[4096];
    print_to_terminal(print_finished_progress, out, sizeof out);
    const char *last = strstr(out, "drawing 50 B");
    CHECK(last && !strstr(last + 1, "drawing"));
    CHECK_TEXT(last, "B/s\r\ntool: done\r\n");
}

TEST(exit_codes_are_unique_and_in_the_manual_page) {
    static const int codes[] = {
#define EXIT_CODE(name, code, meaning) code,
#include "common/exit_codes.def"
#undef EXIT_CODE
    };
    int file = open("manual", O_CREAT | O_RDWR | O_TRUNC, 0600), saved = dup(STDOUT_FILENO);
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    int status = TRY("tool", "--man");
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    CHECK_EQUAL(status, 0);
    char *manual = read_file("manual", NULL);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        char row[32];
        snprintf(row, sizeof row, ".B %d\n", codes[i]);
        CHECK_TEXT(manual, row);
        for (size_t j = 0; j < i; j++) CHECK(codes[i] != codes[j]);
    }
    free(manual);
    close(file), close(saved);
}

TEST(cli_refuses_with_2_and_names_the_nearest) {
    fflush(stderr);
    int saved = dup(2), sink = open("words", O_CREAT | O_RDWR, 0600);
    dup2(sink, 2);
    static char *bad[][2] = {{"--shard-token", "5"},   {"--val", "nan"},   {"--threads", "3x"}, {"--json=maybe", "x"},
                             {"--shard-tokens", "-5"}, {"--val", "1e999"}, {"-j", "1e3"},       {"-x", ""}};
    int codes = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err_clear();
        codes += TRY("tool", "pack", bad[i][0], bad[i][1]) == EX_USAGE;
    }
    err_clear();
    codes += TRY("tool", "pakc") == EX_USAGE;
    err_clear();
    codes += TRY("tool") == EX_USAGE;
    fflush(stderr);
    dup2(saved, 2);
    CHECK_EQUAL(codes, 10);
    size_t length;
    char *words = read_file("words", &length);
    CHECK_TEXT(words, "did you mean --shard-tokens?");
    CHECK_TEXT(words, "did you mean pack?");
    CHECK_TEXT(words, "'nan' is not a finite number");
    err_clear();
}

TEST(cpu_isa_can_be_capped) {
    unsetenv("MILLRACE_ISA");
    Isa best = cpu_isa();
    for (Isa cap = ISA_PORTABLE; cap <= ISA_AVX512; cap++) { // a cap above the best changes nothing
        setenv("MILLRACE_ISA", cpu_isa_name(cap), 1);
        CHECK_EQUAL(cpu_isa(), cap < best ? cap : best);
    }
}

TEST(json_fields_get_their_braces_and_commas) {
    Buffer out = {0};
    json_add_field(&out, "name", "a\"b");
    json_add_number(&out, "count", UINT64_MAX);
    json_add_key(&out, "inner");
    json_add_real(&out, "share", 0.25, 3);
    buffer_print(&out, "}");
    json_add_bool(&out, "full", true);
    buffer_print(&out, "}\n");
    json_add_hex(&out, "hash", "\x01\xff", 2);
    buffer_add(&out, "}", 2);
    CHECK(!strcmp((const char *)out.data,
                  "{\"name\":\"a\\\"b\",\"count\":18446744073709551615,\"inner\":{\"share\":0.250},"
                  "\"full\":true}\n{\"hash\":\"01ff\"}"));
    buffer_close(&out);
}

TEST(processor_lost_is_the_share_of_the_time_in_which_threads_were_ready) {
    const ProcessorTime before = {1000, 500}, after = {1300, 600}, thread_gone = {1400, 400};
    CHECK(processor_lost(before, after) == 0.25);
    CHECK(processor_lost(before, before) == 0 && processor_lost(before, thread_gone) == 0);
    const ProcessorTime now = processor_time();
    while (processor_time().used_ns == now.used_ns) continue;
    CHECK(processor_time().waited_ns >= now.waited_ns);
    const ProcessorTime thread = processor_time_of_thread();
    CHECK(thread.used_ns > 0 && thread.used_ns <= processor_time().used_ns &&
          thread.waited_ns <= processor_time().waited_ns);
}
