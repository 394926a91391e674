// Reads and writes the journal of an unfinished run.
#include "shardtool/pipeline/journal.h"
#include "common/err.h"
#include "common/file/cleanup.h"
#include "common/json_read.h"
#include "common/json_write.h"
#include "common/log.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { JOURNAL_BYTES_MAX = 1 << 30 };
#define PENDING_BYTES_MAX ((size_t)1 << 36) // ids of half of 68 billion tokens

static void add_header(Buffer *out, const Dataset *dataset, const Inputs *inputs, const Dataset *base) {
    uint8_t hash[32];
    inputs_hash(inputs, true, hash);
    json_add_field(out, "format", "SHRDJRNL2");
    json_add_field(out, "params", dataset->params);
    json_add_hex(out, "vocab_fp", dataset->vocab_fp, 32);
    json_add_hex(out, "inputs", hash, 32);
    if (base) json_add_hex(out, "base", base->fingerprint, 32);
    buffer_print(out, "}");
}

static void get_start(const json_t *object, JournalResume *resume, uint64_t *pending_bytes, uint32_t *pending_crc) {
    uint64_t crc = 0;
    InputPosition *start = &resume->start;
    resume->has_start = journal_get_number(object, "byte", &start->place.byte) &&
                        journal_get_number(object, "number", &start->place.number) &&
                        journal_get_number(object, "behind", &start->preceding) &&
                        journal_get_number(object, "pending", pending_bytes) && journal_get_number(object, "crc", &crc);
    *pending_crc = (uint32_t)crc;
}

static void file_path(char path[PATH_MAX_BYTES], const Dataset *dataset, const char *name) {
    if (snprintf(path, PATH_MAX_BYTES, "%s/%s", dataset->path, name) >= PATH_MAX_BYTES)
        die(EX_CREATE, "path too long: '%.60s...'", dataset->path);
}

// Adds the shard of one line. 0 when it cannot be used: its file is missing or damaged, or the line is of another
// version; -1 when it cannot be read now. A shard that was linked by --append has no position; it belongs to a finished
// dataset and is not checked.
static int load_shard(Dataset *dataset, Bytes line, int pending_split, JournalResume *resume, uint64_t *pending_bytes,
                      uint32_t *pending_crc) {
    json_t *object = json_loadb((const char *)line.data, line.size, 0, NULL);
    InputPosition position = {0};
    int split = -1;
    bool good =
        object && journal_get_number(object, "file", &position.file) &&
        journal_get_number(object, "document", &position.document) &&
        journal_get_number(object, "token", &position.token) &&
        (split = dataset_read_shard(dataset, json_object_get(object, "shard"),
                                    position.document || position.token ? SHARD_FILE_HASH : SHARD_FILE_SIZE)) >= 0;
    const bool is_unknown = !good && err_code() && err_code() != EX_DATA && err_code() != EX_NOINPUT;
    if (!good && err_code() && !is_unknown) log_warn("finished shards are made again: %s", err_text());
    if (good) resume->positions[split] = position;
    if (good && split != pending_split) {
        resume->start = position;
        get_start(object, resume, pending_bytes, pending_crc);
        char path[PATH_MAX_BYTES];
        file_path(path, dataset, DATASET_WINDOW);
        journal_point_get(object, path, &resume->point);
        resume->point.file = position.file;
    }
    json_decref(object);
    if (is_unknown) return -1;
    err_clear();
    return good;
}

// If the pending ids are missing or damaged, all inputs are read again.
static int load_pending(const Dataset *dataset, JournalResume *resume, uint64_t bytes, uint32_t crc) {
    char path[PATH_MAX_BYTES];
    file_path(path, dataset, DATASET_PENDING);
    Buffer *pending = &resume->pending;
    if (!resume->has_start || file_read(pending, path, PENDING_BYTES_MAX) < 0 || pending->size < bytes ||
        crc32c(0, pending->data, bytes) != crc)
        resume->has_start = false, bytes = 0;
    pending->size = bytes;
    if (err_code() && err_code() != EX_DATA && err_code() != EX_NOINPUT) return -1;
    err_clear();
    return 0;
}

// Whether the line is of a shard that the run made, not one that --append linked.
static bool is_made(Bytes line) {
    InputPosition position = {0};
    json_t *object = json_loadb((const char *)line.data, line.size, 0, NULL);
    journal_get_number(object, "document", &position.document);
    journal_get_number(object, "token", &position.token);
    json_decref(object);
    return position.document || position.token;
}

int journal_load(Dataset *dataset, const Inputs *inputs, const Dataset *base, int pending_split,
                 JournalResume *resume) {
    char path[PATH_MAX_BYTES];
    Buffer bytes = {0}, header = {0};
    uint64_t pending_bytes = 0;
    uint32_t pending_crc = 0;
    file_path(path, dataset, DATASET_JOURNAL);
    *resume = (JournalResume){0};
    const int found = journal_has_stream(inputs) ? 0 : file_find(path);
    if (found <= 0) return found < 0 ? -1 : JOURNAL_NONE;
    int fd = journal_file_open(path, O_RDWR);
    if (fd < 0) return -1;
    if (fd_read_all(fd, &bytes, JOURNAL_BYTES_MAX, path) < 0) {
        close(fd);
        buffer_close(&bytes);
        return -1;
    }
    Bytes text = {bytes.data, bytes.size}, line = {0}, shard;
    add_header(&header, dataset, inputs, base);
    bool whole = journal_line_next(&text, &line);
    bool same = whole && line.size == header.size && !memcmp(line.data, header.data, line.size);
    if (!whole && bytes.size) log_warn("starting over: '%s' is damaged", path);
    if (whole && !same) {
        bool has_work = false;
        for (Bytes rest = text; !has_work && journal_line_next(&rest, &shard);) has_work = is_made(shard);
        if (has_work) journal_get_params(line, &resume->params);
        close(fd);
        buffer_close(&bytes);
        buffer_close(&header);
        return has_work ? JOURNAL_OTHER : JOURNAL_NONE;
    }
    size_t good = same ? bytes.size - text.size : 0;
    int loaded = 1;
    while (same && journal_line_next(&text, &shard) &&
           (loaded = load_shard(dataset, shard, pending_split, resume, &pending_bytes, &pending_crc)) > 0)
        good = bytes.size - text.size;
    if (loaded >= 0 && same && (int)TEMP_FAILURE_RETRY(ftruncate(fd, (off_t)good))) same = false;
    close(fd);
    if (loaded >= 0 && same) loaded = load_pending(dataset, resume, pending_bytes, pending_crc);
    buffer_close(&bytes);
    buffer_close(&header);
    if (loaded < 0) return fail_in("cannot continue now; the same command continues later");
    return same ? JOURNAL_SAME : JOURNAL_NONE;
}

int journal_open(Journal *journal, const Dataset *dataset, const Inputs *inputs, const Dataset *base,
                 const JournalResume *resume, int pending_split, const SourceOptions *options) {
    *journal = (Journal){.fd = -1, .pending_fd = -1, .pending_split = pending_split, .options = options};
    journal->id_bytes = id_bytes(dataset->vocab_size);
    cleanup_announce("stopped: the same command continues");
    file_path(journal->point.path, dataset, DATASET_WINDOW);
    if (resume) journal->point.point = resume->point;
    file_path(journal->path, dataset, DATASET_JOURNAL);
    file_path(journal->pending_path, dataset, DATASET_PENDING);
    if (resume) journal->pending_bytes = resume->pending.size;
    if (resume) journal->pending_crc = crc32c(0, resume->pending.data, resume->pending.size);
    journal->pending_fd = journal_file_open(journal->pending_path, O_WRONLY);
    if (journal->pending_fd < 0) return -1;
    assert(pending_split >= 0 && pending_split < SPLIT_COUNT &&
           (!resume || resume->has_start || !resume->pending.size));
    if ((int)TEMP_FAILURE_RETRY(ftruncate(journal->pending_fd, (off_t)journal->pending_bytes)))
        return fail_errno("cannot truncate '%s'", journal->pending_path);
    if (lseek(journal->pending_fd, (off_t)journal->pending_bytes, SEEK_SET) < 0)
        return fail_errno("cannot seek in '%s'", journal->pending_path);
    journal->fd = journal_file_open(journal->path, O_WRONLY | O_APPEND | (resume ? 0 : O_TRUNC));
    if (journal->fd < 0 || resume) return journal->fd < 0 ? -1 : 0;
    Buffer header = {0};
    add_header(&header, dataset, inputs, base);
    int status = journal_line_add(journal->fd, journal->path, &header);
    buffer_close(&header);
    return status;
}

void journal_keep(Journal *journal, InputPosition position, Bytes ids, Bytes kept, uint64_t source_bytes) {
    PendingIds head = {position.file, position.document, position.record, source_bytes, ids.size / journal->id_bytes,
                       kept.size};
    assert(ids.size == head.count * journal->id_bytes);
    buffer_add(&journal->pending, &head, sizeof head);
    buffer_add(&journal->pending, ids.data, ids.size);
    buffer_add(&journal->pending, kept.data, kept.size);
    buffer_add(&journal->pending, "\0\0", pending_kept(&head) - kept.size);
}

// Writes the pending ids of the documents before `end`; those after it will be read again.
static int write_pending(Journal *journal, InputPosition end) {
    Buffer *pending = &journal->pending;
    size_t size = 0;
    PendingIds head;
    InputPosition last = {0};
    while (size < pending->size) {
        memcpy(&head, pending->data + size, sizeof head);
        const InputPosition position = {.file = head.file, .document = head.document};
        assert(!position_is_before(position, last)); // journal_keep is called in order
        if (!position_is_before(position, end)) break;
        last = position;
        size += sizeof head + head.count * journal->id_bytes + pending_kept(&head);
    }
    assert(size <= pending->size);
    if (!size) return 0;
    if (journal_write(journal->pending_fd, pending->data, size, journal->pending_path) < 0) return -1;
    journal->pending_crc = crc32c(journal->pending_crc, pending->data, size);
    journal->pending_bytes += size;
    memmove(pending->data, pending->data + size, pending->size - size);
    pending->size -= size;
    return 0;
}

int journal_add(Journal *journal, int split, uint64_t number, const DatasetShard *shard, InputPosition position) {
    assert(journal->fd >= 0 && split >= 0 && split < SPLIT_COUNT);
    bool is_start = split != journal->pending_split && !journal->options->skips.count;
    if (is_start && write_pending(journal, position) < 0) return -1;
    bool has_point = false;
    if (is_start && journal_point_keep(&journal->point, journal->options->points, position, &has_point) < 0) return -1;
    Buffer json = {0};
    json_add_number(&json, "file", position.file);
    json_add_number(&json, "document", position.document);
    json_add_number(&json, "token", position.token);
    if (is_start) {
        json_add_number(&json, "byte", position.place.byte);
        json_add_number(&json, "number", position.place.number);
        json_add_number(&json, "behind", position.preceding);
        json_add_number(&json, "pending", journal->pending_bytes);
        json_add_number(&json, "crc", journal->pending_crc);
    }
    if (has_point) journal_point_add(&json, &journal->point.point);
    json_add_key(&json, "shard");
    dataset_write_shard(&json, split, number, shard);
    json.size--; // the line end
    buffer_print(&json, "}");
    int status = journal_line_add(journal->fd, journal->path, &json);
    buffer_close(&json);
    return status;
}

static bool is_of_file(Bytes line, uint64_t file) {
    InputPosition position = {0};
    json_t *object = json_loadb((const char *)line.data, line.size, 0, NULL);
    journal_get_number(object, "file", &position.file);
    json_decref(object);
    return is_made(line) && position.file >= file;
}

int journal_forget(Journal *journal, uint64_t file) {
    assert(journal->fd >= 0);
    Buffer bytes = {0};
    if (file_read(&bytes, journal->path, JOURNAL_BYTES_MAX) < 0) return -1;
    Bytes text = {bytes.data, bytes.size}, line;
    size_t kept = 0;
    bool found = false;
    while (!found && journal_line_next(&text, &line)) {
        found = kept && is_of_file(line, file);
        if (!found) kept = bytes.size - text.size;
    }
    buffer_close(&bytes);
    if (!found) return 0;
    if ((int)TEMP_FAILURE_RETRY(ftruncate(journal->fd, (off_t)kept)) || (int)TEMP_FAILURE_RETRY(fdatasync(journal->fd)))
        return fail_errno("cannot truncate '%s'", journal->path);
    return 0;
}

void journal_close(Journal *journal) {
    cleanup_announce(NULL);
    if (journal->fd > 0) close(journal->fd);
    if (journal->pending_fd > 0) close(journal->pending_fd);
    buffer_close(&journal->pending);
    journal->fd = journal->pending_fd = -1;
}
