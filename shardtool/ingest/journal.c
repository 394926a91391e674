// Reads and writes the journal of an unfinished run.
#include "shardtool/ingest/journal.h"
#include "common/err.h"
#include "common/json_read.h"
#include "common/json_write.h"
#include "common/log.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CRC_DIGITS = 8, JOURNAL_BYTES_MAX = 1 << 30 };

static void hash_inputs(const Inputs *inputs, uint8_t hash[32]) {
    Sha256 sha;
    sha256_open(&sha);
    for (uint64_t i = 0; i < inputs->argument_count; i++) {
        const InputArgument *argument = &inputs->arguments[i];
        sha256_add(&sha, argument->path, strlen(argument->path) + 1);
        sha256_add(&sha, &argument->files, sizeof argument->files);
        sha256_add(&sha, &argument->bytes, sizeof argument->bytes);
        sha256_add(&sha, argument->digest, sizeof argument->digest);
    }
    sha256_close(&sha, hash);
}

static void add_header(Buffer *out, const Dataset *dataset, const Inputs *inputs, const Dataset *base) {
    uint8_t hash[32];
    hash_inputs(inputs, hash);
    buffer_print(out, "{\"format\":\"SHRDJRNL1\",\"params\":");
    json_add_string(out, dataset->params);
    json_add_hex(out, "vocab_fp", dataset->vocab_fp, 32);
    json_add_hex(out, "inputs", hash, 32);
    if (base) json_add_hex(out, "base", base->fingerprint, 32);
    buffer_print(out, "}");
}

static bool has_stream(const Inputs *inputs) {
    for (uint64_t i = 0; i < inputs->argument_count; i++)
        if (inputs->arguments[i].stream) return true;
    return false;
}

// Removes one line with a correct checksum from `text` and returns its JSON text.
static bool next_line(Bytes *text, Bytes *line) {
    const uint8_t *end = text->size ? memchr(text->data, '\n', text->size) : NULL;
    if (!end || end - text->data < CRC_DIGITS + 1) return false;
    *line = (Bytes){text->data + CRC_DIGITS + 1, (size_t)(end - text->data) - CRC_DIGITS - 1};
    char crc[CRC_DIGITS + 1];
    snprintf(crc, sizeof crc, "%08" PRIx32, crc32c(0, line->data, line->size));
    if (memcmp(crc, text->data, CRC_DIGITS) || text->data[CRC_DIGITS] != ' ') return false;
    *text = (Bytes){end + 1, text->size - (size_t)(end + 1 - text->data)};
    return true;
}

static bool get_number(const json_t *object, const char *key, uint64_t *number) {
    const json_t *value = json_object_get(object, key);
    *number = (uint64_t)json_integer_value(value);
    return json_is_integer(value);
}

// Adds the shard of one line. False when it cannot be used: its file is missing, or the line is of another version.
static bool load_shard(Dataset *dataset, Bytes line, InputPosition positions[SPLIT_COUNT]) {
    json_t *object = json_parse(line, 0, NULL);
    InputPosition position;
    int split = -1;
    bool good = object && get_number(object, "file", &position.file) &&
                get_number(object, "document", &position.document) && get_number(object, "token", &position.token) &&
                (split = dataset_read_shard(dataset, json_object_get(object, "shard"))) >= 0;
    if (good) positions[split] = position;
    json_decref(object);
    err_clear();
    return good;
}

static void journal_path(char path[PATH_MAX_BYTES], const Dataset *dataset) {
    if (snprintf(path, PATH_MAX_BYTES, "%s/" DATASET_JOURNAL, dataset->path) >= PATH_MAX_BYTES)
        die(EX_CREATE, "path too long: '%.60s...'", dataset->path);
}

int journal_load(Dataset *dataset, const Inputs *inputs, const Dataset *base, InputPosition positions[SPLIT_COUNT]) {
    char path[PATH_MAX_BYTES];
    Buffer bytes = {0}, header = {0};
    journal_path(path, dataset);
    memset(positions, 0, SPLIT_COUNT * sizeof *positions);
    if (has_stream(inputs) || access(path, F_OK)) return 0;
    if (file_read(&bytes, path, JOURNAL_BYTES_MAX) < 0) return -1;
    Bytes text = {bytes.data, bytes.size}, line;
    add_header(&header, dataset, inputs, base);
    bool same = next_line(&text, &line) && line.size == header.size && !memcmp(line.data, header.data, line.size);
    if (!same && bytes.size) log_line("starting over: '%s' is of a run with other options or inputs", path);
    size_t good = same ? bytes.size - text.size : 0;
    while (same && next_line(&text, &line) && load_shard(dataset, line, positions)) good = bytes.size - text.size;
    if (same && truncate(path, (off_t)good)) same = false;
    buffer_close(&bytes);
    buffer_close(&header);
    return same;
}

static int add_line(Journal *journal, const Buffer *json) {
    Buffer line = {0};
    buffer_print(&line, "%08" PRIx32 " ", crc32c(0, json->data, json->size));
    buffer_add(&line, json->data, json->size);
    buffer_add(&line, "\n", 1);
    int status = fd_write(journal->fd, line.data, line.size, journal->path);
    if (status == 0 && fdatasync(journal->fd)) status = fail_errno("cannot write '%s' to disk", journal->path);
    buffer_close(&line);
    return status;
}

int journal_open(Journal *journal, const Dataset *dataset, const Inputs *inputs, const Dataset *base, bool continued) {
    journal_path(journal->path, dataset);
    int flags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | (continued ? 0 : O_TRUNC);
    journal->fd = open(journal->path, flags, 0666);
    if (journal->fd < 0) return fail_errno("cannot create '%s'", journal->path);
    if (continued) return 0;
    Buffer header = {0};
    add_header(&header, dataset, inputs, base);
    int status = add_line(journal, &header);
    buffer_close(&header);
    return status;
}

int journal_add(Journal *journal, int split, uint64_t number, const DatasetShard *shard, InputPosition position) {
    Buffer json = {0};
    buffer_print(&json,
                 "{\"file\":%" PRIu64 ",\"document\":%" PRIu64 ",\"token\":%" PRIu64 ",\"shard\":", position.file,
                 position.document, position.token);
    dataset_write_shard(&json, split, number, shard);
    json.size--; // the line end
    buffer_print(&json, "}");
    int status = add_line(journal, &json);
    buffer_close(&json);
    return status;
}

void journal_close(Journal *journal) {
    if (journal->fd > 0) close(journal->fd);
    journal->fd = -1;
}
