// Event files, written by hand: the messages have few fields, and a record is appended whole or not at all.
#include "trainer/records/event_file.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const char prefix[] = "events.out.tfevents.", suffix[] = ".millrace"; // TensorBoard looks for "tfevents"

// Fields of the messages, as (number << 3 | wire type): 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
enum {
    EVENT_TIME = 1 << 3 | 1,
    EVENT_STEP = 2 << 3 | 0,
    EVENT_VERSION = 3 << 3 | 2,
    EVENT_SUMMARY = 5 << 3 | 2,
    EVENT_SESSION = 7 << 3 | 2,
    SUMMARY_VALUE = 1 << 3 | 2,
    VALUE_TAG = 1 << 3 | 2,
    VALUE_NUMBER = 2 << 3 | 5,
    SESSION_STATUS = 1 << 3 | 0,
    SESSION_START = 1,
};

static void add_byte(Buffer *out, int byte) { buffer_add(out, &(uint8_t){(uint8_t)byte}, 1); }

static void add_bytes(Buffer *out, int field, const void *data, size_t size) {
    add_byte(out, field);
    buffer_add_leb128(out, size);
    buffer_add(out, data, size);
}

static uint32_t masked_crc(const void *data, size_t size) {
    const uint32_t crc = crc32c(0, data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

// Adds a record with an Event of one more field.
static void add_event(Buffer *out, double time, uint64_t step, int field, const void *data, size_t size) {
    Buffer event = {0};
    add_byte(&event, EVENT_TIME);
    buffer_add(&event, &time, sizeof time);
    add_byte(&event, EVENT_STEP);
    buffer_add_leb128(&event, step);
    add_bytes(&event, field, data, size);
    const uint64_t length = event.size;
    const uint32_t length_crc = masked_crc(&length, sizeof length), crc = masked_crc(event.data, event.size);
    buffer_add(out, &length, sizeof length);
    buffer_add(out, &length_crc, sizeof length_crc);
    buffer_add(out, event.data, event.size);
    buffer_add(out, &crc, sizeof crc);
    buffer_close(&event);
}

static void add_scalar(Buffer *summary, const char *tag, float number) {
    Buffer value = {0};
    add_bytes(&value, VALUE_TAG, tag, strlen(tag));
    add_byte(&value, VALUE_NUMBER);
    buffer_add(&value, &number, sizeof number);
    add_bytes(summary, SUMMARY_VALUE, value.data, value.size);
    buffer_close(&value);
}

// Adds the numbers of a line: {"step": N, "loss": X, ...}.
static void add_line(Buffer *out, double time, Bytes line) {
    Buffer summary = {0};
    json_t *object = json_loadb((const char *)line.data, line.size, 0, NULL), *value;
    const char *key;
    json_object_foreach(object, key, value)
        if (json_is_number(value) && strcmp(key, "step")) add_scalar(&summary, key, (float)json_number_value(value));
    const uint64_t step = (uint64_t)json_integer_value(json_object_get(object, "step"));
    if (summary.size) add_event(out, time, step, EVENT_SUMMARY, summary.data, summary.size);
    json_decref(object);
    buffer_close(&summary);
}

// How many seconds the step of a line took; 0 for other lines.
static double line_seconds(Bytes line) {
    static const char key[] = "\"ms\": ";
    const char *at = memmem(line.data, line.size, key, sizeof key - 1);
    return at ? strtod(at + sizeof key - 1, NULL) * 1e-3 : 0; // a comma or a brace ends the number
}

static uint64_t line_step(Bytes line) {
    static const char key[] = "\"step\": ";
    const char *at = memmem(line.data, line.size, key, sizeof key - 1);
    return at ? strtoull(at + sizeof key - 1, NULL, 10) : 0;
}

// The lines from step `first` on. They carry no time: they are placed by the duration of their steps.
static void add_lines_before(Buffer *out, Bytes lines, uint64_t first, double last_time) {
    double time = last_time;
    for (Bytes rest = lines, line; bytes_next_line_or_rest(&rest, &line);) time -= line_seconds(line);
    add_event(out, time, 0, EVENT_VERSION, "brain.Event:2", strlen("brain.Event:2"));
    // Steps that a running TensorBoard has read from an earlier file are dropped from here on.
    const uint8_t start[] = {SESSION_STATUS, SESSION_START};
    add_event(out, time, first, EVENT_SESSION, start, sizeof start);
    for (Bytes line; bytes_next_line_or_rest(&lines, &line);) {
        time += line_seconds(line);
        if (line_step(line) >= first) add_line(out, time, line);
    }
}

static bool is_event_file(const char *name) {
    const size_t length = strlen(name);
    return length > sizeof suffix && !strncmp(name, prefix, sizeof prefix - 1) &&
           !strcmp(name + length - (sizeof suffix - 1), suffix);
}

// The step of a record that add_event has made, and its size. False at the end, and if the record is not whole.
static bool next_record(Bytes rest, uint64_t *step, size_t *size) {
    enum { HEADER = 12, CRC = 4, STEP_AT = 10 }; // time: 9 bytes; the number of the next field: 1
    if (rest.size < HEADER + STEP_AT) return false;
    const uint64_t length = get_u64(rest.data);
    if (length < STEP_AT + 1 || length > rest.size - HEADER || rest.size - HEADER - length < CRC) return false;
    const uint8_t *at = rest.data + HEADER + STEP_AT, *end = rest.data + HEADER + length;
    *step = 0;
    for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
        *step |= (uint64_t)(*at & 127) << shift;
        if (!(*at++ & 128)) break;
    }
    return *size = HEADER + (size_t)length + CRC, true;
}

// An earlier file, by its records up to the last step from which the run continues.
typedef struct {
    char *path;
    uint64_t last;         // its last step, of those
    off_t begin_last, end; // where that step begins, and where the steps end
} EarlierFile;

static int read_earlier(EarlierFile *file, uint64_t limit) {
    Buffer data = {0};
    uint64_t step;
    size_t size;
    if (file_read(&data, file->path, SIZE_MAX / 2) < 0) return -1;
    for (Bytes rest = {data.data, data.size}; next_record(rest, &step, &size) && step <= limit;
         rest.data += size, rest.size -= size) {
        if (step > file->last) file->last = step, file->begin_last = file->end;
        file->end += (off_t)size;
    }
    buffer_close(&data);
    return 0;
}

// Cuts the earlier files where the last step begins that one of them has up to `limit`; it may lack some of its lines,
// and becomes `first`. TensorBoard follows files by their names, so an earlier file stays. `second` becomes the time in
// the name of the last.
static int cut_earlier(const char *out_dir, uint64_t limit, uint64_t *first, long long *second) {
    char path[PATH_MAX_BYTES];
    EarlierFile *files = NULL;
    size_t count = 0;
    int result = 0;
    DIR *dir = opendir(out_dir);
    for (struct dirent *entry; dir && result == 0 && (entry = readdir(dir));) {
        if (!is_event_file(entry->d_name)) continue;
        const long long named = strtoll(entry->d_name + sizeof prefix - 1, NULL, 10);
        if (named > *second) *second = named;
        path_join(path, out_dir, "%s", entry->d_name);
        files = array_grow(files, count, sizeof *files);
        files[count] = (EarlierFile){.path = allocate_text(path, strlen(path))};
        result = read_earlier(&files[count], limit);
        if (files[count].last > *first) *first = files[count].last;
        count++;
    }
    if (dir) closedir(dir);
    for (size_t i = 0; i < count; i++) {
        const off_t end = files[i].last == *first ? files[i].begin_last : files[i].end;
        if (result == 0 && truncate(files[i].path, end)) result = fail_errno("cannot shorten '%s'", files[i].path);
        free(files[i].path);
    }
    free(files);
    return result;
}

int event_file_open(EventFile *file, const char *out_dir, Bytes lines, double last_time) {
    Buffer records = {0};
    uint64_t last = 0, first = 0;
    long long second = 0;
    *file = (EventFile){0};
    for (Bytes rest = lines, line; bytes_next_line_or_rest(&rest, &line);) last = line_step(line);
    if (cut_earlier(out_dir, last, &first, &second) < 0) return -1;
    const long long now = (long long)time(NULL);
    path_join(file->path, out_dir, "%s%lld%s", prefix, now > second ? now : second + 1, suffix);
    const int fd = open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) return fail_create(file->path);
    file->fd = fd;
    add_lines_before(&records, lines, first, last_time);
    const int result = fd_write(fd, records.data, records.size, file->path);
    file->bytes = records.size;
    buffer_close(&records);
    return result;
}

void event_file_add(EventFile *file, Bytes lines) {
    struct timespec now;
    if (!file->fd) return;
    clock_gettime(CLOCK_REALTIME, &now);
    const double time = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    for (Bytes line; bytes_next_line_or_rest(&lines, &line);) add_line(&file->pending, time, line);
}

// Writes all pending records, or none.
int event_file_flush(EventFile *file) {
    Buffer *pending = &file->pending;
    if (!pending->size) return 0;
    if (fd_write(file->fd, pending->data, pending->size, file->path) < 0) {
        if (ftruncate(file->fd, (off_t)file->bytes) < 0) log_warn("cannot truncate '%s'", file->path);
        return -1;
    }
    file->bytes += pending->size, pending->size = 0;
    return 0;
}

void event_file_close(EventFile *file) {
    if (file->fd) close(file->fd);
    buffer_close(&file->pending);
    *file = (EventFile){0};
}
