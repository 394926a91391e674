// Any bytes as the manifest of a dataset: the dataset opens, or it is bad data. The files of its shards exist.
#include "dataset/dataset.h"
#include "tests/fuzz/fuzz.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HASH_DIGITS = 64, SHARD_BYTES = 100 };

static void put_hash(uint8_t *line, size_t size, const char *key, Bytes of) {
    uint8_t hash[32], *at = memmem(line, size, key, strlen(key));
    char hex[HASH_DIGITS + 1];
    if (!at || (size_t)(at - line) + strlen(key) + HASH_DIGITS > size) return;
    sha256(of.data, of.size, hash);
    hex_encode(hex, hash, sizeof hash);
    memcpy(at + strlen(key), hex, HASH_DIGITS);
}

// A wrong hash would keep the fuzzer out of the code behind the check: correct both in three files of four.
static void correct(uint8_t *file, size_t size) {
    uint8_t *end = size ? memchr(file, '\n', size) : NULL;
    if (!end || size % 4 == 0) return;
    size_t line = (size_t)(end - file), last = sizeof ",\"header_hash\":\"" - 1 + HASH_DIGITS + 2;
    put_hash(file, line, "\"lines_hash\":\"", (Bytes){end + 1, size - line - 1});
    if (line >= last) put_hash(file, line, "\"header_hash\":\"", (Bytes){file, line - last});
}

static void write_file(const char *path, const void *data, size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size || close(fd)) abort();
}

// A dataset of three shards without its manifest, in a folder of its own.
static const char *make_dataset(void) {
    static char folder[64] = "/tmp/fuzz-manifest-XXXXXX";
    static const char *const parts[] = {"train", "train/000", "val", "val/000"};
    static const char *const shards[] = {"train/000/000000.zst", "train/000/000001.zst", "val/000/000000.zst"};
    static const uint8_t zeros[SHARD_BYTES];
    char path[128];
    if (!mkdtemp(folder)) abort();
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, parts[i]);
        if (mkdir(path, 0700)) abort();
    }
    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, shards[i]);
        write_file(path, zeros, sizeof zeros);
    }
    return folder;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *folder;
    if (!folder) folder = make_dataset();
    char path[128];
    snprintf(path, sizeof path, "%s/" DATASET_MANIFEST, folder);
    uint8_t *copy = malloc(size + !size);
    memcpy(copy, data, size);
    correct(copy, size);
    write_file(path, copy, size);
    Dataset dataset;
    if (dataset_open(&dataset, folder) == 0) {
        for (int split = 0; split < SPLIT_COUNT; split++)
            for (uint64_t i = 0; i < dataset.shard_count[split]; i++)
                if (dataset.shards[split][i].bytes != SHARD_BYTES || !*dataset.shards[split][i].path) abort();
        dataset_close(&dataset);
    } else if (err_code() != EX_DATA)
        abort();
    err_clear();
    free(copy);
    return 0;
}
