// The lines of journals, and the access point beside them.
#include "shardtool/pipeline/journal_line.h"
#include "common/err.h"
#include "common/json_read.h"
#include "common/json_write.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { CRC_DIGITS = 8 };

bool journal_has_stream(const Inputs *inputs) {
    for (uint64_t i = 0; i < inputs->argument_count; i++)
        if (inputs->arguments[i].stream) return true;
    return false;
}

bool journal_line_next(Bytes *text, Bytes *json) {
    Bytes rest = *text, line;
    if (!bytes_next_line(&rest, &line) || line.size < CRC_DIGITS + 1) return false;
    *json = (Bytes){line.data + CRC_DIGITS + 1, line.size - CRC_DIGITS - 1};
    char crc[CRC_DIGITS + 2];
    snprintf(crc, sizeof crc, "%08" PRIx32 " ", crc32c(0, json->data, json->size));
    if (memcmp(crc, line.data, CRC_DIGITS + 1)) return false;
    *text = rest;
    return true;
}

int journal_write(int fd, const void *data, size_t size, const char *path) {
    if (fd_write(fd, data, size, path) < 0) return -1;
    return (int)TEMP_FAILURE_RETRY(fdatasync(fd)) ? fail_errno("cannot write '%s' to disk", path) : 0;
}

int journal_line_add(int fd, const char *path, const Buffer *json) {
    Buffer line = {0};
    assert(json->size && !memchr(json->data, '\n', json->size));
    buffer_print(&line, "%08" PRIx32 " ", crc32c(0, json->data, json->size));
    buffer_add(&line, json->data, json->size);
    buffer_add(&line, "\n", 1);
    int status = journal_write(fd, line.data, line.size, path);
    buffer_close(&line);
    return status;
}

int journal_file_open(const char *path, int flags) { return file_open_regular(path, flags | O_CREAT | O_NOFOLLOW); }

bool journal_get_number(const json_t *object, const char *key, uint64_t *number) {
    const json_t *value = json_object_get(object, key);
    *number = (uint64_t)json_integer_value(value);
    return json_is_integer(value);
}

void journal_get_params(Bytes header, Buffer *params) {
    json_t *object = json_loadb((const char *)header.data, header.size, 0, NULL);
    const char *text = json_string_value(json_object_get(object, "params"));
    buffer_print(params, "%s", text ? text : "");
    json_decref(object);
}

enum { POINT_IN, POINT_OUT, POINT_BITS, POINT_CRC, POINT_SIZE, POINT_WINDOW, POINT_WINDOW_CRC, POINT_KEYS };
static const char *const point_keys[] = {"in", "out", "bits", "content_crc", "content_size", "window", "window_crc"};

void journal_point_add(Buffer *json, const AccessPoint *point) {
    const CodecState *state = &point->state;
    uint32_t window_crc = crc32c(0, state->window, state->window_size);
    const uint64_t numbers[] = {point->in,   point->out,         state->bits, state->crc,
                                state->size, state->window_size, window_crc};
    for (int i = 0; i < POINT_KEYS; i++) json_add_number(json, point_keys[i], numbers[i]);
}

void journal_point_get(const json_t *object, const char *path, AccessPoint *point) {
    uint64_t number[POINT_KEYS];
    Buffer window = {0};
    *point = (AccessPoint){0};
    for (int i = 0; i < POINT_KEYS; i++)
        if (!journal_get_number(object, point_keys[i], &number[i])) return;
    uint64_t size = number[POINT_WINDOW];
    CodecState *state = &point->state;
    bool is_whole = size <= sizeof state->window && number[POINT_BITS] < 8;
    if (is_whole && size)
        is_whole = file_read(&window, path, sizeof state->window) == 0 && window.size == size &&
                   crc32c(0, window.data, size) == number[POINT_WINDOW_CRC];
    if (is_whole) {
        point->in = number[POINT_IN], point->out = number[POINT_OUT];
        state->bits = (uint32_t)number[POINT_BITS], state->window_size = (uint32_t)size;
        state->crc = (uint32_t)number[POINT_CRC], state->size = (uint32_t)number[POINT_SIZE];
        if (size) memcpy(state->window, window.data, size);
    }
    buffer_close(&window);
    err_clear();
}

int journal_point_keep(JournalPoint *kept, const AccessPoints *points, InputPosition position, bool *has_point) {
    AccessPoint *point = &kept->point;
    const AccessPoint *nearer = points ? access_points_find(points, position.file, position.place.byte) : NULL;
    if (nearer && (nearer->file != point->file || nearer->out != point->out)) {
        *point = *nearer;
        int fd = journal_file_open(kept->path, O_WRONLY | O_TRUNC);
        const CodecState *state = &point->state;
        int status = fd < 0 ? -1 : journal_write(fd, state->window, state->window_size, kept->path);
        if (fd >= 0) close(fd);
        if (status < 0) return -1;
    }
    *has_point = point->out && point->file == position.file && point->out <= position.place.byte;
    return 0;
}
