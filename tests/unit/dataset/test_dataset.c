// The manifest: written, read back, and refused when it does not match the shards.
#include "common/file/file.h"
#include "dataset/dataset.h"
#include "tests/test.h"
#include <fcntl.h>
#include <unistd.h>

static void add_shard(Dataset *dataset, int split, uint64_t tokens) {
    char path[PATH_MAX_BYTES], bytes[64] = {0};
    uint64_t number = dataset->shard_count[split];
    dataset_shard_path(path, dataset->path, split, number);
    char directory[PATH_MAX_BYTES];
    snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
    CHECK(dir_make(directory) == 0);
    write_file(path, bytes, 10 + number);
    DatasetShard shard = {.tokens = tokens,
                          .documents = tokens / 10,
                          .bytes = 10 + number,
                          .source_bytes = 4 * tokens,
                          .from = {"in/a.txt", number},
                          .to = {"in/\xFF\"b\n.txt", number + 1}};
    memset(shard.content_hash, (int)tokens, 32);
    memset(shard.stored_hash, 7, 16);
    dataset_add(dataset, split, &shard);
}

static void make_dataset(const char *path) {
    Dataset dataset;
    dataset_begin(&dataset, path);
    memset(dataset.vocab_fp, 0x11, 32);
    dataset.vocab_size = 50257, dataset.eot_id = 50256, dataset.val_seed = 3;
    dataset.params = "frame_tokens=32768", dataset.val = "0.05";
    dataset_add_source(&dataset, &(DatasetSource){.path = "in", .files = 2, .bytes = 99});
    for (uint64_t i = 0; i < 3; i++) add_shard(&dataset, SPLIT_TRAIN, 100 + i);
    add_shard(&dataset, SPLIT_VAL, 20);
    CHECK(dataset_save(&dataset) == 0);
    dataset_close(&dataset);
}

TEST(dataset_reads_back_as_saved) {
    make_dataset("set");
    Dataset dataset;
    CHECK(dataset_open(&dataset, "./set/") == 0);
    CHECK(!strcmp(dataset.name, "set"));
    CHECK_EQUAL(dataset.shard_count[SPLIT_TRAIN], 3);
    CHECK_EQUAL(dataset.shard_count[SPLIT_VAL], 1);
    CHECK_EQUAL(dataset.tokens[SPLIT_TRAIN], 303);
    CHECK_EQUAL(dataset.documents[SPLIT_VAL], 2);
    CHECK_EQUAL(dataset.shards[SPLIT_TRAIN][2].first, 201);
    CHECK_EQUAL(dataset.shards[SPLIT_TRAIN][2].bytes, 12);
    CHECK_TEXT(dataset.shards[SPLIT_TRAIN][2].path, "set/train/000/000002.zst");
    CHECK(!strcmp(dataset.shards[SPLIT_TRAIN][1].to.source, "in/\xEF\xBF\xBD\"b\n.txt"));
    CHECK_EQUAL(dataset.shards[SPLIT_TRAIN][1].to.document, 2);
    CHECK_EQUAL(dataset.source_count, 1);
    CHECK_EQUAL(dataset.sources[0].bytes, 99);
    CHECK(!strcmp(dataset.val, "0.05") && !strcmp(dataset.params, "frame_tokens=32768"));
    CHECK_EQUAL(dataset.eot_id, 50256);
    dataset_close(&dataset);
}

TEST(dataset_fingerprint_is_the_sha256_that_dataset_h_specifies) {
    make_dataset("set");
    Dataset dataset;
    CHECK(dataset_open(&dataset, "set") == 0);
    Buffer text = {0};
    static const struct {
        const char *split;
        unsigned tokens;
    } rows[] = {{"train", 100}, {"train", 101}, {"train", 102}, {"val", 20}};
    for (int i = 0; i < 4; i++) {
        buffer_print(&text, "%s %u %u ", rows[i].split, rows[i].tokens, rows[i].tokens / 10);
        for (int j = 0; j < 32; j++) buffer_print(&text, "%02x", rows[i].tokens);
        buffer_print(&text, "\n");
    }
    buffer_print(&text, "val=0.05 seed=3\n");
    for (int j = 0; j < 32; j++) buffer_print(&text, "11");
    uint8_t want[32];
    sha256(text.data, text.size, want);
    CHECK(!memcmp(want, dataset.fingerprint, 32));
    buffer_close(&text);
    dataset_close(&dataset);
}

static void check_refused(int code, const char *words) {
    Dataset dataset;
    CHECK(dataset_open(&dataset, "set") < 0);
    CHECK_ERROR(code, words);
}

TEST(a_directory_without_manifest_is_refused_as_no_input) { check_refused(EX_NOINPUT, "'set' is not a dataset"); }

// fault 33
TEST(dataset_names_a_shard_that_is_missing_or_has_another_size) {
    make_dataset("set");
    write_file("set/train/000/000001.zst", "longer than it should be", 24);
    check_refused(EX_DATA, "000001.zst' has 24 bytes instead of 11");
    remove("set/train/000/000001.zst");
    check_refused(EX_DATA, "000001.zst' is missing");
}

// fault 27
TEST(every_flipped_bit_and_every_truncation_of_a_manifest_is_found) {
    make_dataset("set");
    size_t size;
    char *bytes = read_file("set/dataset.jsonl", &size);
    Dataset dataset;
    const int file =
        open("set/dataset.jsonl", O_WRONLY); // changed in place: ext4 writes out a file that was emptied first
    for (size_t bit = 0; bit < 8 * size; bit++) {
        const char changed = (char)(bytes[bit / 8] ^ (1 << bit % 8));
        CHECK(pwrite(file, &changed, 1, (off_t)(bit / 8)) == 1);
        if (dataset_open(&dataset, "set") == 0)
            print_error("bit %zu\n", bit), test_failed("an error", __FILE__, __LINE__);
        CHECK_ERROR(EX_DATA, "");
        CHECK(pwrite(file, bytes + bit / 8, 1, (off_t)(bit / 8)) == 1);
    }
    for (size_t length = size; length-- > 0;) {
        CHECK(ftruncate(file, (off_t)length) == 0);
        CHECK(dataset_open(&dataset, "set") < 0);
        CHECK_ERROR(EX_DATA, "");
    }
    close(file);
    free(bytes);
}

TEST(a_manifest_of_version_1_without_header_hash_is_read) {
    make_dataset("set");
    size_t size;
    char *bytes = read_file("set/dataset.jsonl", &size);
    *strchr(strstr(bytes, "SHRDSET"), '2') = '1';
    write_file("set/dataset.jsonl", bytes, size);
    check_refused(EX_DATA, "format 'SHRDSET1', this program reads 'SHRDSET2'"); // a damaged one: it has a header hash

    char *hash = strstr(bytes, ",\"header_hash\""), *end = strchr(hash, '}');
    memmove(hash, end, size - (size_t)(end - bytes));
    write_file("set/dataset.jsonl", bytes, size - (size_t)(end - hash));
    Dataset dataset = {0};
    CHECK_EQUAL(dataset_open(&dataset, "set"), 0);
    CHECK(dataset.tokens[SPLIT_TRAIN] > 0);
    dataset_close(&dataset);
    free(bytes);
}
