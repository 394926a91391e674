// Each stored input of each fuzz target (tests/data/fuzz/TARGET), as the fuzzer would run it, so that a bug
// that was found once is found again. A target aborts at a mistake.
#include "common/file/file.h"
#include "tests/test.h"
#include <dirent.h>

#define TARGETS(X)                                                                                                     \
    X(archive)                                                                                                         \
    X(config)                                                                                                          \
    X(import)                                                                                                          \
    X(jsonl)                                                                                                           \
    X(listing)                                                                                                         \
    X(manifest)                                                                                                        \
    X(parquet)                                                                                                         \
    X(parquet_page)                                                                                                    \
    X(part)                                                                                                            \
    X(piece_run)                                                                                                       \
    X(provenance) X(receipt) X(record) X(response) X(shard) X(state) X(vocabulary) X(vocabulary_config) X(wire) X(words)
#define DECLARE(name) int fuzz_##name(const uint8_t *data, size_t size);
TARGETS(DECLARE)

static void replay(const char *target, int (*run)(const uint8_t *data, size_t size)) {
    char folder[512], path[1024];
    snprintf(folder, sizeof folder, "%s/fuzz/%s", test_data, target);
    DIR *directory = opendir(folder);
    CHECK(directory);
    unsigned count = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        Buffer file = {0};
        if (*entry->d_name == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        CHECK_EQUAL(file_read(&file, path, 1 << 20), 0);
        printf("%s\n", path); // the last one before a crash
        fflush(stdout);
        run(file.data, file.size);
        CHECK_EQUAL(err_code(), 0);
        buffer_close(&file);
        count++;
    }
    closedir(directory);
    CHECK(count > 0);
}

#define REPLAY(name)                                                                                                   \
    TEST(the_corpus_of_the_fuzz_target_##name##_runs) { replay(#name, fuzz_##name); }
TARGETS(REPLAY)
