// Reads and writes the manifest of a dataset directory.
#include "dataset/dataset.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/json_read.h"
#include "common/json_write.h"
#include "dataset/dataset_build.h"
#include "remote/url_map.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT     "SHRDSET2"
#define OLD_FORMAT "SHRDSET1" // the same without header_hash: read, no longer written

const char *const split_names[SPLIT_COUNT] = {"train", "val"};

static void shard_file(char *out, size_t size, int split, uint64_t number) {
    snprintf(out, size, "%s/%03" PRIu64 "/%06" PRIu64 ".zst", split_names[split], number / 1000, number);
}

void dataset_shard_path(char out[PATH_MAX_BYTES], const char *directory, int split, uint64_t number) {
    char file[64];
    shard_file(file, sizeof file, split, number);
    path_join(out, directory, "%s", file);
}

void dataset_docs_path(char out[PATH_MAX_BYTES], const char *directory, int split, uint64_t number) {
    path_join(out, directory, "%s/%03" PRIu64 "/%06" PRIu64 ".docs", split_names[split], number / 1000, number);
}

void dataset_skips_path(char out[PATH_MAX_BYTES], const char *directory) { path_join(out, directory, DATASET_SKIPS); }

static void dataset_folder(char out[PATH_MAX_BYTES], const char *directory, int split, uint64_t number) {
    dataset_shard_path(out, directory, split, number);
    *strrchr(out, '/') = '\0';
}

static bool has_file(const char *path, const char *name) {
    char file[PATH_MAX_BYTES];
    struct stat st;
    return snprintf(file, sizeof file, "%s/%s", path, name) < (int)sizeof file && stat(file, &st) == 0;
}

bool dataset_is(const char *path) {
    if (url_map_takes(path)) return !path_ends(path, ".zst");
    return has_file(path, DATASET_MANIFEST) || has_file(path, DATASET_REPLACEMENT);
}

bool dataset_is_unfinished(const char *path) { return has_file(path, DATASET_JOURNAL); }

uint64_t dataset_bytes(const Dataset *dataset, int split) {
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < dataset->shard_count[split]; i++) bytes += dataset->shards[split][i].bytes;
    return bytes;
}

void dataset_begin(Dataset *dataset, const char *path) {
    *dataset = (Dataset){0};
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    dataset->path = arena_print(&dataset->arena, "%.*s", (int)length, path);
    size_t start = length;
    while (start > 0 && path[start - 1] != '/') start--;
    dataset->name = arena_print(&dataset->arena, "%.*s", (int)(length - start), path + start);
    dataset->params = dataset->val = "";
}

void dataset_close(Dataset *dataset) {
    arena_close(&dataset->arena);
    for (int split = 0; split < SPLIT_COUNT; split++) free(dataset->shards[split]);
    free(dataset->sources);
    *dataset = (Dataset){0};
}

void dataset_add(Dataset *dataset, int split, const DatasetShard *shard) {
    uint64_t number = dataset->shard_count[split];
    DatasetShard *shards = array_grow(dataset->shards[split], number, sizeof *shards), *added = &shards[number];
    char path[PATH_MAX_BYTES];
    dataset_shard_path(path, dataset->path, split, number);
    *added = *shard;
    added->path = arena_copy_string(&dataset->arena, path);
    added->first = dataset->tokens[split];
    added->from.source = arena_copy_string(&dataset->arena, shard->from.source);
    added->to.source = arena_copy_string(&dataset->arena, shard->to.source);
    dataset->shards[split] = shards;
    dataset->shard_count[split]++;
    dataset->tokens[split] += shard->tokens;
    dataset->documents[split] += shard->documents;
    dataset->source_bytes += shard->source_bytes;
}

void dataset_add_source(Dataset *dataset, const DatasetSource *source) {
    dataset->sources = array_grow(dataset->sources, dataset->source_count, sizeof *source);
    DatasetSource *added = &dataset->sources[dataset->source_count++];
    *added = *source;
    added->path = arena_copy_string(&dataset->arena, source->path);
}

static void make_fingerprint(const Dataset *dataset, uint8_t fingerprint[32]) {
    Sha256 sha;
    char line[256], hex[65];
    sha256_open(&sha);
    for (int split = 0; split < SPLIT_COUNT; split++)
        for (uint64_t i = 0; i < dataset->shard_count[split]; i++) {
            const DatasetShard *shard = &dataset->shards[split][i];
            hex_encode(hex, shard->content_hash, 32);
            int length = snprintf(line, sizeof line, "%s %" PRIu64 " %" PRIu64 " %s\n", split_names[split],
                                  shard->tokens, shard->documents, hex);
            sha256_add(&sha, line, (size_t)length);
        }
    int length = snprintf(line, sizeof line, "val=%s seed=%" PRIu64 "\n", dataset->val, dataset->val_seed);
    sha256_add(&sha, line, (size_t)length);
    hex_encode(hex, dataset->vocab_fp, 32);
    sha256_add(&sha, hex, 64);
    sha256_close(&sha, fingerprint);
}

static void add_place(Buffer *out, const char *key, const DatasetPosition *place) {
    json_add_key(out, key);
    json_add_field(out, "source", place->source);
    json_add_number(out, "document", place->document);
    buffer_print(out, "}");
}

void dataset_write_shard(Buffer *out, int split, uint64_t number, const DatasetShard *shard) {
    char file[64];
    shard_file(file, sizeof file, split, number);
    json_add_field(out, "file", file);
    json_add_field(out, "split", split_names[split]);
    json_add_number(out, "tokens", shard->tokens);
    json_add_number(out, "documents", shard->documents);
    json_add_number(out, "bytes", shard->bytes);
    json_add_number(out, "source_bytes", shard->source_bytes);
    json_add_hex(out, "content_hash", shard->content_hash, 32);
    json_add_hex(out, "stored_hash", shard->stored_hash, 16);
    add_place(out, "from", &shard->from);
    add_place(out, "to", &shard->to);
    if (shard->docs.bytes) {
        json_add_key(out, "docs");
        json_add_number(out, "bytes", shard->docs.bytes);
        json_add_hex(out, "hash", shard->docs.hash, 16);
        buffer_print(out, "}");
    }
    buffer_print(out, "}\n");
}

static void add_source(Buffer *out, const DatasetSource *source) {
    json_add_field(out, "path", source->path);
    json_add_number(out, "files", source->files);
    json_add_number(out, "bytes", source->bytes);
    json_add_hex(out, "digest", source->digest, 16);
}

static void add_split(Buffer *out, const Dataset *dataset, int split) {
    json_add_key(out, split_names[split]);
    json_add_number(out, "shards", dataset->shard_count[split]);
    json_add_number(out, "tokens", dataset->tokens[split]);
    json_add_number(out, "documents", dataset->documents[split]);
    buffer_print(out, "}");
}

static void add_header_line(Buffer *out, const Dataset *dataset, Bytes lines) {
    uint8_t hash[32];
    sha256(lines.data, lines.size, hash);
    json_add_field(out, "format", FORMAT);
    json_add_hex(out, "fingerprint", dataset->fingerprint, 32);
    json_add_hex(out, "vocab_fp", dataset->vocab_fp, 32);
    json_add_hex(out, "params_fp", dataset->params_fp, 32);
    json_add_number(out, "vocab_size", dataset->vocab_size);
    json_add_number(out, "eot_id", dataset->eot_id);
    json_add_field(out, "params", dataset->params);
    if (dataset->part) json_add_field(out, "part", dataset->part);
    json_add_field(out, "val_share", dataset->val);
    json_add_number(out, "val_seed", dataset->val_seed);
    json_add_key(out, "sources");
    for (uint64_t i = 0; i < dataset->source_count; i++) {
        buffer_print(out, i ? "," : "[");
        add_source(out, &dataset->sources[i]);
        buffer_print(out, "}");
    }
    buffer_print(out, dataset->source_count ? "]" : "[]");
    if (dataset->names_from) json_add_field(out, "names_from", dataset->names_from);
    if (dataset->history) {
        json_add_key(out, "history");
        buffer_print(out, "%s", dataset->history);
    }
    json_add_number(out, "source_bytes", dataset->source_bytes);
    for (int split = 0; split < SPLIT_COUNT; split++) add_split(out, dataset, split);
    json_add_hex(out, "lines_hash", hash, 32);
    sha256(out->data, out->size, hash);
    json_add_hex(out, "header_hash", hash, 32);
    buffer_print(out, "}\n");
}

int dataset_save(Dataset *dataset) {
    make_fingerprint(dataset, dataset->fingerprint);
    Buffer lines = {0}, header = {0};
    for (int split = 0; split < SPLIT_COUNT; split++)
        for (uint64_t i = 0; i < dataset->shard_count[split]; i++)
            dataset_write_shard(&lines, split, i, &dataset->shards[split][i]);
    add_header_line(&header, dataset, (Bytes){lines.data, lines.size});

    NewFile file = {0};
    char path[PATH_MAX_BYTES];
    int status = newfile_open(&file, path_join(path, dataset->path, DATASET_MANIFEST));
    if (status == 0) status = newfile_write(&file, header.data, header.size);
    if (status == 0) status = newfile_write(&file, lines.data, lines.size);
    if (status == 0)
        status = newfile_commit(&file);
    else
        newfile_abandon(&file);
    buffer_close(&lines);
    buffer_close(&header);
    return status;
}

// Each get_* function reads one field of a JSON object, or fails with its name.
static int get_number(const json_t *object, const char *key, uint64_t *number) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0) return fail(EX_DATA, "no number '%s'", key);
    *number = (uint64_t)json_integer_value(value);
    return 0;
}

static int get_string(Dataset *dataset, const json_t *object, const char *key, const char **string) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) return fail(EX_DATA, "no string '%s'", key);
    *string = arena_copy_string(&dataset->arena, json_string_value(value));
    return 0;
}

static int get_hex(const json_t *object, const char *key, void *out, size_t size) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value) || hex_decode(out, json_string_value(value), size) < 0)
        return fail(EX_DATA, "no hash '%s' of %zu digits", key, 2 * size);
    return 0;
}

static int get_place(Dataset *dataset, const json_t *object, const char *key, DatasetPosition *place) {
    const json_t *value = json_object_get(object, key);
    return get_string(dataset, value, "source", &place->source) || get_number(value, "document", &place->document) ? -1
                                                                                                                   : 0;
}

// The header ends in ,"header_hash":"..."} over the bytes before it.
static int check_header_hash(Bytes line) {
    enum { END_BYTES = 16 + 64 + 2 };
    uint8_t hash[32];
    char hex[65], end[END_BYTES + 1];
    if (line.size < END_BYTES) return fail(EX_DATA, "no header hash");
    const uint8_t *written = line.data + line.size - END_BYTES;
    sha256(line.data, line.size - END_BYTES, hash);
    hex_encode(hex, hash, sizeof hash);
    snprintf(end, sizeof end, ",\"header_hash\":\"%s\"}", hex);
    return memcmp(end, written, END_BYTES) ? fail(EX_DATA, "damaged: the header does not match its hash") : 0;
}

static int read_header(Dataset *dataset, const json_t *object, Bytes line, uint8_t fingerprint[32],
                       uint8_t lines_hash[32]) {
    const char *format = NULL;
    uint64_t vocab_size = 0, eot_id = 0;
    if (get_string(dataset, object, "format", &format)) return -1;
    bool old = !strcmp(format, OLD_FORMAT) && !json_object_get(object, "header_hash");
    if (!old && strcmp(format, FORMAT))
        return fail(EX_DATA, "format '%s', this program reads '" FORMAT "': use a newer program", format);
    if (!old && check_header_hash(line) < 0) return -1;
    if (get_hex(object, "fingerprint", fingerprint, 32) || get_hex(object, "vocab_fp", dataset->vocab_fp, 32) ||
        get_hex(object, "params_fp", dataset->params_fp, 32) || get_hex(object, "lines_hash", lines_hash, 32) ||
        get_number(object, "vocab_size", &vocab_size) || get_number(object, "eot_id", &eot_id) ||
        get_number(object, "val_seed", &dataset->val_seed) || get_string(dataset, object, "params", &dataset->params) ||
        get_string(dataset, object, "val_share", &dataset->val))
        return -1;
    const json_t *history = json_object_get(object, "history");
    if (history && !json_is_object(history)) return fail(EX_DATA, "'history' is not an object");
    if (history) {
        char *text = json_dumps(history, JSON_COMPACT);
        dataset->history = text ? arena_copy_string(&dataset->arena, text) : NULL;
        free(text);
    }
    if (json_object_get(object, "names_from") && get_string(dataset, object, "names_from", &dataset->names_from))
        return -1;
    if (json_object_get(object, "part") && get_string(dataset, object, "part", &dataset->part)) return -1;
    if (vocab_size == 0 || vocab_size > IDS_MAX || eot_id > UINT32_MAX)
        return fail(EX_DATA, "a vocabulary of %" PRIu64 " ids, this program reads up to %d", vocab_size, IDS_MAX);
    dataset->vocab_size = (uint32_t)vocab_size, dataset->eot_id = (uint32_t)eot_id;

    const json_t *sources = json_object_get(object, "sources");
    for (size_t i = 0; i < json_array_size(sources); i++) {
        const json_t *entry = json_array_get(sources, i);
        DatasetSource source = {0};
        if (get_string(dataset, entry, "path", &source.path) || get_number(entry, "files", &source.files) ||
            get_number(entry, "bytes", &source.bytes) || get_hex(entry, "digest", source.digest, 16))
            return fail_in("source %zu", i);
        dataset_add_source(dataset, &source);
    }
    return 0;
}

static int check_stored_hash(const char *path, const DatasetShard *shard) {
    ShardFile file;
    if (shard_file_open(&file, path) < 0) return -1;
    int status = shard_verify(&file, NULL, true);
    if (status == 0 && memcmp(file.members[0].stored_hash, shard->stored_hash, sizeof shard->stored_hash))
        status = fail(EX_DATA, "shard '%s': its stored hash differs from the written one", path);
    shard_file_close(&file);
    return status;
}

int dataset_fail_vocabularies(const char *path, const uint8_t vocab_fp[32], uint32_t vocab_size, const char *other,
                              const uint8_t other_fp[32], uint32_t other_size) {
    char hex[17], other_hex[17];
    hex_encode(hex, vocab_fp, 8), hex_encode(other_hex, other_fp, 8);
    return fail(EX_DATA,
                "'%s' and '%s' have different vocabularies: %s of %u ids, and %s of %u: tokenize both with one "
                "--vocabulary",
                path, other, hex, vocab_size, other_hex, other_size);
}

int dataset_check_size(const char *path, uint64_t bytes) {
    struct stat st;
    if (url_map_takes(path)) return 0; // compared when it is opened
    if (stat(path, &st))
        return errno == ENOENT || errno == ENOTDIR ? fail(EX_DATA, "'%s' is missing: %s", path, strerror(errno))
                                                   : fail_errno("cannot read '%s'", path);
    if ((uint64_t)st.st_size == bytes) return 0;
    return fail(EX_DATA, "'%s' has %lld bytes instead of %" PRIu64, path, (long long)st.st_size, bytes);
}

int dataset_read_shard(Dataset *dataset, const json_t *object, ShardFileCheck check) {
    const char *file = NULL, *split_name = NULL;
    DatasetShard shard = {0};
    if (get_string(dataset, object, "file", &file) || get_string(dataset, object, "split", &split_name) ||
        get_number(object, "tokens", &shard.tokens) || get_number(object, "documents", &shard.documents) ||
        get_number(object, "bytes", &shard.bytes) || get_number(object, "source_bytes", &shard.source_bytes) ||
        get_hex(object, "content_hash", shard.content_hash, 32) ||
        get_hex(object, "stored_hash", shard.stored_hash, 16) || get_place(dataset, object, "from", &shard.from) ||
        get_place(dataset, object, "to", &shard.to))
        return -1;
    const json_t *docs = json_object_get(object, "docs");
    if (docs && (get_number(docs, "bytes", &shard.docs.bytes) || get_hex(docs, "hash", shard.docs.hash, 16)))
        return fail_in("docs");
    int split = 0;
    while (split < SPLIT_COUNT && strcmp(split_name, split_names[split])) split++;
    if (split == SPLIT_COUNT) return fail(EX_DATA, "split '%s' is neither train nor val", split_name);
    char expected[64];
    shard_file(expected, sizeof expected, split, dataset->shard_count[split]);
    if (strcmp(file, expected)) return fail(EX_DATA, "file '%s', expected '%s'", file, expected);

    char path[PATH_MAX_BYTES];
    dataset_shard_path(path, dataset->path, split, dataset->shard_count[split]);
    if (check >= SHARD_FILE_SIZE && dataset_check_size(path, shard.bytes) < 0) return -1;
    if (check == SHARD_FILE_HASH && check_stored_hash(path, &shard) < 0) return -1;
    dataset_docs_path(path, dataset->path, split, dataset->shard_count[split]);
    if (check == SHARD_FILE_HASH && shard.docs.bytes && provenance_check(path, &shard.docs, shard.documents) < 0)
        return -1;
    dataset_add(dataset, split, &shard);
    return split;
}

static int read_lines(Dataset *dataset, Bytes text, ShardFileCheck check) {
    uint8_t fingerprint[32] = {0}, made[32], lines_hash[32] = {0};
    Bytes line;
    for (uint64_t number = 1; text.size; number++) {
        if (!bytes_next_line(&text, &line)) return fail(EX_DATA, "line %" PRIu64 " is truncated", number);
        json_error_t error;
        json_t *object = json_parse(line, 0, &error);
        int status = object ? 0 : fail(EX_DATA, "%s", error.text);
        if (status == 0)
            status = number == 1 ? read_header(dataset, object, line, fingerprint, lines_hash)
                                 : dataset_read_shard(dataset, object, check);
        json_decref(object);
        if (status < 0) return fail_in("line %" PRIu64, number);
        if (number > 1) continue;
        sha256(text.data, text.size, made);
        if (memcmp(made, lines_hash, 32)) return fail(EX_DATA, "the lines do not match the hash in the header");
    }
    make_fingerprint(dataset, dataset->fingerprint);
    if (memcmp(dataset->fingerprint, fingerprint, 32))
        return fail(EX_DATA, "line 1: the fingerprint does not match the shards");
    return 0;
}

static int open_checked(Dataset *dataset, const char *path, ShardFileCheck check) {
    *dataset = (Dataset){0};
    char manifest[PATH_MAX_BYTES];
    if (snprintf(manifest, sizeof manifest, "%s/" DATASET_MANIFEST, path) >= (int)sizeof manifest)
        return fail(EX_NOINPUT, "path too long: '%.60s...'", path);
    if (dataset_build_complete(path) < 0) return fail_in("the dataset '%s' is being replaced", path);
    Bytes text;
    if (url_map_file(&text, manifest) < 0)
        return err_code() == EX_NOINPUT ? fail_in("'%s' is not a dataset", path) : fail_in("dataset '%s'", path);
    dataset_begin(dataset, path);
    int status = text.size ? read_lines(dataset, text, check) : fail(EX_DATA, "empty");
    file_unmap(&text);
    if (status == 0) return 0;
    dataset_close(dataset);
    return fail_in("dataset '%s': " DATASET_MANIFEST, path);
}

int dataset_open(Dataset *dataset, const char *path) { return open_checked(dataset, path, SHARD_FILE_SIZE); }

int dataset_open_manifest(Dataset *dataset, const char *path) {
    return open_checked(dataset, path, SHARD_FILE_NOTHING);
}

int dataset_make_folder(const char *directory, int split, uint64_t number) {
    char folder[PATH_MAX_BYTES], parent[PATH_MAX_BYTES];
    dataset_folder(folder, directory, split, number);
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(folder, '/') - folder), folder);
    return dir_make(folder) || dir_sync(parent) || dir_sync(directory) ? -1 : 0;
}
