// The first stage of dedup --similar alone, on documents that end with NUL (shardtool decode -0). bench_neardup FILE
// prints the megabytes, and the CPU seconds of words, of hashes of 5 words, of permutations, and of all with the bands;
// bench_neardup words FILE the normal form of each document, and bench_neardup values FILE its MinHash, for tests.
#include "common/err.h"
#include "common/file/file.h"
#include "shardtool/similar/shingles.h"
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

typedef enum { UP_TO_WORDS, UP_TO_HASHES, UP_TO_VALUES, UP_TO_BANDS, STAGES, PRINT_WORDS, PRINT_VALUES } Stage;

static uint64_t run(Shingler *shingler, Bytes text, Stage stage) {
    uint64_t values[MINHASH_PERMUTATIONS] = {0};
    MinhashBand bands[MINHASH_BANDS] = {0};
    if (stage == UP_TO_BANDS) return shingler_bands(shingler, text, bands), bands[0].key;
    words_set(&shingler->words, text);
    const Bytes normal = {shingler->words.text.data, shingler->words.text.size};
    if (stage == PRINT_WORDS) return printf("%.*s\n", (int)normal.size, (const char *)normal.data), 0;
    if (stage == UP_TO_WORDS) return shingler->words.count;
    const size_t count = words_hash(&shingler->words, SHINGLE_WORDS, &shingler->hashes);
    if (stage == UP_TO_HASHES) return count;
    shingler->values((const uint64_t *)(const void *)shingler->hashes.data, count, values);
    for (unsigned i = 0; stage == PRINT_VALUES && i < MINHASH_PERMUTATIONS; i++)
        printf("%" PRIu64 "%c", values[i], i + 1 < MINHASH_PERMUTATIONS ? ' ' : '\n');
    return values[0];
}

static uint64_t run_all(Shingler *shingler, Bytes file, Stage stage) {
    uint64_t sum = 0;
    for (size_t at = 0, end; at < file.size; at = end + 1) {
        const uint8_t *stop = memchr(file.data + at, 0, file.size - at);
        end = stop ? (size_t)(stop - file.data) : file.size;
        sum += run(shingler, (Bytes){file.data + at, end - at}, stage);
    }
    return sum;
}

int main(int argc, char **argv) {
    Bytes file;
    if (argc < 2 || file_map(&file, argv[argc - 1]) < 0)
        die(EX_USAGE, "bench_neardup [words|values] FILE: %s", err_text());
    Shingler shingler = {0};
    shingler_open(&shingler);
    uint64_t sum = 0;
    double seconds[STAGES];
    if (argc > 2) return run_all(&shingler, file, strcmp(argv[1], "words") ? PRINT_VALUES : PRINT_WORDS), 0;
    for (Stage stage = 0; stage < STAGES; stage++) {
        seconds[stage] = cpu_seconds();
        sum += run_all(&shingler, file, stage);
        seconds[stage] = cpu_seconds() - seconds[stage];
    }
    printf("%.3f %.3f %.3f %.3f %.3f\n", (double)file.size / 1e6, seconds[UP_TO_WORDS],
           seconds[UP_TO_HASHES] - seconds[UP_TO_WORDS], seconds[UP_TO_VALUES] - seconds[UP_TO_HASHES],
           seconds[UP_TO_BANDS]);
    shingler_close(&shingler);
    return sum == 1; // so that no stage is left out
}
