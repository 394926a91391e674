// Reads and writes the journal of an unfinished count of pieces.
#include "shardtool/vocabulary/count_journal.h"
#include "common/err.h"
#include "common/file/cleanup.h"
#include "common/json_read.h"
#include "common/json_write.h"
#include "common/log.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define JOURNAL_NAME "/" COUNT_JOURNAL
#define WINDOW_NAME  "/" COUNT_JOURNAL "-window"
enum { JOURNAL_BYTES_MAX = 1 << 28 };

static const char *const state_keys[] = {"file",  "document", "byte",     "number",      "behind",  "documents",
                                         "bytes", "pieces",   "replaced", "sample_from", "next_run"};
enum { STATE_KEYS = sizeof state_keys / sizeof *state_keys };

// The numbers of a state by the order of state_keys.
static void state_numbers(CountState *state, uint64_t *numbers[STATE_KEYS]) {
    InputPosition *position = &state->position;
    uint64_t *const all[] = {&position->file,      &position->document, &position->place.byte, &position->place.number,
                             &position->preceding, &state->documents,   &state->bytes,         &state->pieces,
                             &state->replaced,     &state->sample_from, &state->next_run};
    memcpy(numbers, all, sizeof all);
}

static void add_header(Buffer *out, const char *params, const Inputs *inputs) {
    uint8_t hash[32];
    inputs_hash(inputs, true, hash);
    json_add_field(out, "format", "PIECEJRNL1");
    json_add_field(out, "params", params);
    json_add_hex(out, "inputs", hash, sizeof hash);
    buffer_print(out, "}");
}

static bool read_runs(const json_t *object, CountState *state) {
    const json_t *runs = json_object_get(object, "runs");
    state->run_count = json_array_size(runs);
    if (state->run_count > COUNT_RUNS_MAX) return false;
    for (size_t i = 0; i < state->run_count; i++) {
        const json_t *run = json_array_get(runs, i);
        uint64_t crc;
        if (!journal_get_number(run, "run", &state->runs[i].number) ||
            !journal_get_number(run, "size", &state->runs[i].bytes) || !journal_get_number(run, "crc", &crc))
            return false;
        state->runs[i].crc = (uint32_t)crc;
    }
    return true;
}

static bool read_state(Bytes line, CountState *state, const char *window, AccessPoint *point) {
    json_t *object = json_loadb((const char *)line.data, line.size, 0, NULL);
    uint64_t *numbers[STATE_KEYS];
    CountState read = {0};
    state_numbers(&read, numbers);
    bool good = object;
    for (int i = 0; good && i < STATE_KEYS; i++) good = journal_get_number(object, state_keys[i], numbers[i]);
    read.complete = json_is_true(json_object_get(object, "complete"));
    good = good && read_runs(object, &read) && (!read.complete || read.run_count == 1);
    if (good) {
        *state = read;
        journal_point_get(object, window, point);
        point->file = read.position.file;
    }
    json_decref(object);
    return good;
}

static void set_path(char path[PATH_MAX_BYTES], const char *folder, const char *name) {
    if (snprintf(path, PATH_MAX_BYTES, "%s%s", folder, name) >= PATH_MAX_BYTES)
        die(EX_CREATE, "path too long: '%.60s...'", folder);
}

int count_journal_load(CountJournal *journal, const char *folder, const char *params, const Inputs *inputs,
                       CountState *state, Buffer *other) {
    *journal = (CountJournal){.fd = -1};
    *state = (CountState){0};
    set_path(journal->folder, folder, "");
    set_path(journal->path, folder, JOURNAL_NAME);
    set_path(journal->point.path, folder, WINDOW_NAME);
    const int found = file_find(journal->path);
    if (found <= 0) return found < 0 ? -1 : COUNT_NEW;
    Buffer bytes = {0}, header = {0};
    if (file_read(&bytes, journal->path, JOURNAL_BYTES_MAX) < 0) return -1;
    Bytes text = {bytes.data, bytes.size}, line;
    add_header(&header, params, inputs);
    int start = COUNT_NEW;
    if (journal_line_next(&text, &line)) {
        const bool same = line.size == header.size && !memcmp(line.data, header.data, line.size);
        const Bytes first = line;
        while (journal_line_next(&text, &line) && read_state(line, state, journal->point.path, &journal->point.point))
            start = COUNT_CONTINUES, journal->good = bytes.size - text.size;
        if (start == COUNT_CONTINUES && !same) start = COUNT_OTHER, journal_get_params(first, other);
        if (start == COUNT_CONTINUES && journal_has_stream(inputs)) start = COUNT_NEW;
    }
    if (start != COUNT_CONTINUES) *state = (CountState){0}, journal->point.point = (AccessPoint){0};
    buffer_close(&bytes);
    buffer_close(&header);
    return start;
}

static bool is_listed(const CountState *state, const char *name) {
    char *end;
    const uint64_t number = strtoull(name, &end, 10);
    for (size_t i = 0; i < state->run_count; i++)
        if (!*end && state->runs[i].number == number) return true;
    return false;
}

static void remove_runs(const char *folder, const CountState *state) {
    DIR *directory = opendir(folder);
    for (const struct dirent *entry; directory && (entry = readdir(directory));)
        if (!strncmp(entry->d_name, PIECE_RUN_PREFIX, strlen(PIECE_RUN_PREFIX)) &&
            !is_listed(state, entry->d_name + strlen(PIECE_RUN_PREFIX)))
            unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory) closedir(directory);
}

int count_journal_open(CountJournal *journal, const char *params, const Inputs *inputs, const CountState *state,
                       bool continues, const SourceOptions *options) {
    journal->options = options;
    cleanup_announce("stopped: the same command continues");
    dir_sweep(journal->folder, NULL);
    journal->fd = journal_file_open(journal->path, O_WRONLY | O_APPEND);
    if (journal->fd < 0) return -1;
    if ((int)TEMP_FAILURE_RETRY(ftruncate(journal->fd, continues ? (off_t)journal->good : 0)))
        return fail_errno("cannot truncate '%s'", journal->path);
    remove_runs(journal->folder, state);
    if (continues) return 0;
    Buffer header = {0};
    add_header(&header, params, inputs);
    int status = journal_line_add(journal->fd, journal->path, &header);
    if (status == 0) status = dir_sync(journal->folder);
    buffer_close(&header);
    return status;
}

int count_journal_add(CountJournal *journal, const CountState *state) {
    Buffer json = {0};
    CountState copy = *state;
    uint64_t *numbers[STATE_KEYS];
    state_numbers(&copy, numbers);
    for (int i = 0; i < STATE_KEYS; i++) json_add_number(&json, state_keys[i], *numbers[i]);
    json_add_bool(&json, "complete", state->complete);
    bool has_point = false;
    int status = journal_point_keep(&journal->point, journal->options->points, state->position, &has_point);
    if (has_point) journal_point_add(&json, &journal->point.point);
    json_add_key(&json, "runs");
    for (size_t i = 0; i < state->run_count; i++) {
        buffer_print(&json, i ? "," : "[");
        json_add_number(&json, "run", state->runs[i].number);
        json_add_number(&json, "size", state->runs[i].bytes);
        json_add_number(&json, "crc", state->runs[i].crc);
        buffer_print(&json, "}");
    }
    buffer_print(&json, state->run_count ? "]}" : "[]}");
    if (status == 0) status = journal_line_add(journal->fd, journal->path, &json);
    if (status == 0) remove_runs(journal->folder, state);
    buffer_close(&json);
    return status;
}

void count_journal_close(CountJournal *journal) {
    cleanup_announce(NULL);
    if (journal->fd > 0) close(journal->fd);
    journal->fd = -1;
}

void count_journal_remove(const char *folder) {
    char path[PATH_MAX_BYTES];
    remove_runs(folder, &(CountState){0});
    set_path(path, folder, WINDOW_NAME);
    unlink(path);
    set_path(path, folder, JOURNAL_NAME);
    unlink(path);
}
