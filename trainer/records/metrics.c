// metrics.jsonl.
#include "trainer/records/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 32 << 10 }; // the first line of a process has a path and the configuration

static const char head[] = "{\"step\": "; // how every line begins

static const char lost_member[] = ", \"lost_steps\": ";

// The step of the next line of `rest`, and its text after the step. False: there is no whole line of a step.
static bool next_step(Bytes *rest, int64_t *step, char **members) {
    Bytes line;
    if (!bytes_next_line(rest, &line) || line.size < sizeof head || memcmp(line.data, head, sizeof head - 1))
        return false;
    *step = strtoll((const char *)line.data + sizeof head - 1, members, 10);
    return true;
}

bool metrics_is_part(Bytes line) {
    const size_t known = line.size < sizeof head - 1 ? line.size : sizeof head - 1;
    return !memcmp(line.data, head, known) && !memchr(line.data, 0, line.size);
}

static bool begins(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

// Whether a line of the last step is from before the state was saved.
static bool is_known(const MetricsEnd *end, const char *members) {
    unsigned long long passed_to;
    if (begins(members, ", \"val_loss\"")) return end->evaluated;
    if (begins(members, ", \"cooldown_begun\"")) return false; // it is set after the step was saved
    if (begins(members, ", \"rolled_back_from\"")) return end->rolled_back;
    return sscanf(members, ", \"passed_from\": %*u, \"passed_to\": %llu", &passed_to) < 1 || passed_to <= end->consumed;
}

// Length of the lines up to `end`, whose steps never decrease. Counts the kills in them and the steps after them.
static size_t kept_bytes(Metrics *metrics, Bytes text, const MetricsEnd *end) {
    Bytes rest = text;
    size_t kept = 0;
    char *members;
    const int64_t first = end->step > 0 ? end->step : 0;
    int64_t line_step, last = first;
    for (; next_step(&rest, &line_step, &members); kept = text.size - rest.size) {
        if (line_step > end->step || (line_step == end->step && !is_known(end, members))) break;
        metrics->kills += begins(members, lost_member);
        metrics->kept_step = (uint64_t)line_step;
    }
    for (rest = (Bytes){text.data + kept, text.size - kept}; next_step(&rest, &line_step, &members);)
        if (line_step > last) last = line_step;
    metrics->lost_steps = (uint64_t)(last - first);
    return kept;
}

static int open_file(const char *path) { return file_open_regular(path, O_WRONLY | O_CREAT | O_APPEND); }

static bool is_removed(const Metrics *metrics) {
    struct stat file;
    return fstat(metrics->fd, &file) == 0 && !file.st_nlink;
}

int metrics_replace(Metrics *metrics) {
    if (!metrics->path[0] || !is_removed(metrics)) return 0;
    const int fd = open_file(metrics->path);
    if (fd < 0) return -1;
    const int same = dup3(fd, metrics->fd, O_CLOEXEC); // which a save beside the steps may use
    close(fd);
    metrics->bytes = 0;
    return same < 0 ? fail_errno("cannot open '%s'", metrics->path) : 0;
}

// Reads a record, if there is one; `kept` is its part up to `end`.
static int read_up_to(Metrics *metrics, const MetricsEnd *end, Buffer *text, Bytes *kept) {
    const int found = file_find(metrics->path); // a missing file has no lines
    if (found < 0 || (found && file_read(text, metrics->path, SIZE_MAX / 2) < 0)) return -1;
    *kept = (Bytes){text->data, kept_bytes(metrics, (Bytes){text->data, text->size}, end)};
    return 0;
}

int metrics_copy(const char *out_dir, const char *run, MetricsEnd end, Bytes members) {
    Metrics other = {.fd = -1};
    Buffer text = {0};
    Bytes kept;
    char path[PATH_MAX_BYTES];
    path_join(other.path, run, "metrics.jsonl");
    int result = read_up_to(&other, &end, &text, &kept);
    if (result == 0) {
        text.size = kept.size;
        buffer_print(&text, "%s%lld%.*s}\n", head, (long long)end.step, (int)members.size, (const char *)members.data);
        result = file_write(path_join(path, out_dir, "metrics.jsonl"), (Bytes){text.data, text.size});
    }
    buffer_close(&text);
    return result;
}

int metrics_open(Metrics *metrics, const char *out_dir, MetricsEnd end, bool events) {
    Buffer text = {0};
    Bytes kept;
    struct stat file = {0};
    *metrics = (Metrics){.fd = -1};
    path_join(metrics->path, out_dir, "metrics.jsonl");
    if (stat(metrics->path, &file) < 0 && errno != ENOENT) return fail_errno("cannot read '%s'", metrics->path);
    if (read_up_to(metrics, &end, &text, &kept) < 0) return -1;
    const int result = events ? event_file_open(&metrics->events, out_dir, kept, (double)file.st_mtime) : 0;
    buffer_close(&text);
    if (result < 0) return -1;
    metrics->bytes = kept.size;
    metrics->fd = open_file(metrics->path);
    if (metrics->fd < 0) return -1;
    if (ftruncate(metrics->fd, (off_t)kept.size) < 0) return fail_errno("cannot cut '%s'", metrics->path);
    return 0;
}

void metrics_follow(Metrics *metrics, MetricsEnd begun) {
    metrics->follows = true, metrics->begun = begun, metrics->pending.size = 0;
}

int metrics_take_over(Metrics *metrics, const char *out_dir, uint64_t step, bool events) {
    const Buffer kept = metrics->pending;
    const bool has_step = kept.size && metrics->kept_step == step;
    const MetricsEnd before = {(int64_t)step - has_step, true, true, UINT64_MAX}, begun = metrics->begun;
    const int result = metrics_open(metrics, out_dir, begun.step == (int64_t)step ? begun : before, events);
    metrics->pending = kept;
    if (!has_step) metrics->pending.size = 0;
    return result < 0 ? -1 : metrics_flush(metrics);
}

// Writes all pending lines, or none.
int metrics_flush(Metrics *metrics) {
    Buffer *pending = &metrics->pending;
    if (!pending->size) return 0;
    if (is_removed(metrics)) return fail(EX_IO, "'%s' was removed, and its lines are lost", metrics->path);
    if (fd_write(metrics->fd, pending->data, pending->size, metrics->path) < 0) {
        if (ftruncate(metrics->fd, (off_t)metrics->bytes) < 0) log_warn("cannot truncate '%s'", metrics->path);
        return -1;
    }
    event_file_add(&metrics->events, (Bytes){pending->data, pending->size});
    metrics->bytes += pending->size, pending->size = 0;
    return 0;
}

void metrics_add_lost(Metrics *metrics, uint64_t step) {
    metrics_add(metrics, step, "%s%llu", lost_member + 2, (unsigned long long)metrics->lost_steps);
}

void metrics_add_members(Metrics *metrics, uint64_t step, Bytes members) {
    const uint64_t minute_ns = 60000000000;
    if (!metrics->path[0] && !metrics->follows) return;
    if (metrics->follows && metrics->kept_step != step) metrics->pending.size = 0, metrics->kept_step = step;
    buffer_print(&metrics->pending, "%s%llu%.*s}\n", head, (unsigned long long)step, (int)members.size,
                 (const char *)members.data);
    if (metrics->follows) return;
    if (metrics_flush(metrics) == 0 && event_file_flush(&metrics->events) == 0) return;
    if (!metrics->warned_ns || clock_ns() - metrics->warned_ns > minute_ns) {
        log_warn("%s; training continues, and the lines will be written later", err_text());
        metrics->warned_ns = clock_ns();
    }
    err_clear();
}

void metrics_add(Metrics *metrics, uint64_t step, const char *format, ...) {
    char line[LINE_MAX_BYTES];
    va_list list;
    memcpy(line, ", ", 2);
    va_start(list, format);
    const int length = vsnprintf(line + 2, sizeof line - 2, format, list);
    va_end(list);
    assert(length >= 0 && (size_t)length < sizeof line - 2);
    metrics_add_members(metrics, step, (Bytes){(const uint8_t *)line, (size_t)length + 2});
}

int metrics_sync(Metrics *metrics) {
    if (!metrics->path[0]) return 0;
    if (metrics_flush(metrics) < 0) return -1;
    return fsync(metrics->fd) < 0 ? fail_errno("cannot sync '%s'", metrics->path) : 0;
}

void metrics_close(Metrics *metrics) {
    if (metrics->path[0] && metrics->fd >= 0) {
        Error cause; // the error that ends the run
        err_take(&cause);
        if (metrics_flush(metrics) < 0 || event_file_flush(&metrics->events) < 0) err_clear(); // metrics_add has warned
        err_give(&cause);
        close(metrics->fd);
    }
    buffer_close(&metrics->pending);
    event_file_close(&metrics->events);
    *metrics = (Metrics){.fd = -1};
}

// ---- reading

enum { RATES_MAX = 100 };

typedef struct {
    MetricsStep last;
    uint64_t step; // of the earliest line that was taken
    int count;
    double rates[RATES_MAX];
} LastSteps;

// True when the rates are enough. Lines that are read a second time are left out.
static bool parse_step(void *context, const json_t *object) {
    LastSteps *steps = context;
    const json_t *rate = json_object_get(object, "tok_s"), *loss = json_object_get(object, "loss");
    const uint64_t step = (uint64_t)json_integer_value(json_object_get(object, "step"));
    if (!rate || (steps->count && step >= steps->step)) return false;
    if (!steps->count) steps->last = (MetricsStep){step, json_is_number(loss) ? json_number_value(loss) : NAN, 0};
    steps->step = step;
    steps->rates[steps->count++] = json_number_value(rate);
    return steps->count == RATES_MAX;
}

typedef struct {
    const char *member, *other;
    json_t *line;
} WantedLine;

static bool parse_wanted(void *context, const json_t *object) {
    WantedLine *wanted = context;
    if (!json_object_get(object, wanted->member) && !json_object_get(object, wanted->other)) return false;
    wanted->line = json_deep_copy(object);
    return true;
}

// Calls `parse` with the whole lines in the last `bytes` of the file, from the last line on, until it returns true. The
// last line may be torn.
static bool find_last(int fd, off_t size, off_t bytes, bool (*parse)(void *context, const json_t *line),
                      void *context) {
    char *tail = malloc((size_t)bytes);
    bool found = false;
    if (!tail) die(EX_MEMORY, "no memory for the lines of metrics.jsonl");
    const ssize_t length = pread(fd, tail, (size_t)bytes, size - bytes);
    for (char *end = length > 0 ? memrchr(tail, '\n', (size_t)length) : NULL; end && !found;) {
        char *before = memrchr(tail, '\n', (size_t)(end - tail)), *line = before ? before + 1 : tail;
        json_t *object = json_loadb(line, (size_t)(end - line), 0, NULL);
        found = object && parse(context, object);
        json_decref(object);
        end = before;
    }
    free(tail);
    return found;
}

// Looks at the end of the file first, so that a long run costs nothing.
static bool search_back(const char *out_dir, bool (*parse)(void *context, const json_t *line), void *context) {
    enum { TAIL_BYTES = 64 << 10 };
    struct stat file;
    char path[PATH_MAX_BYTES];
    bool found = false;
    path_join(path, out_dir, "metrics.jsonl");
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    if (fstat(fd, &file) == 0 && file.st_size > 0)
        for (off_t bytes = TAIL_BYTES; !found; bytes *= 16) {
            found = find_last(fd, file.st_size, bytes < file.st_size ? bytes : file.st_size, parse, context);
            if (bytes >= file.st_size) break;
        }
    close(fd);
    return found;
}

static int compare_rates(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

bool metrics_last(MetricsStep *last, const char *out_dir) {
    LastSteps steps = {0};
    search_back(out_dir, parse_step, &steps);
    if (!steps.count) return false;
    qsort(steps.rates, (size_t)steps.count, sizeof *steps.rates, compare_rates);
    *last = steps.last;
    last->tokens_per_s = steps.rates[steps.count / 2];
    return true;
}

json_t *metrics_last_of(const char *out_dir, const char *member, const char *other) {
    WantedLine wanted = {member, other, NULL};
    search_back(out_dir, parse_wanted, &wanted);
    return wanted.line;
}

json_t *metrics_last_with(const char *out_dir, const char *member) { return metrics_last_of(out_dir, member, member); }

typedef struct {
    uint64_t most, best; // steps
} WantedGrade;

static bool parse_grade(void *context, const json_t *object) {
    WantedGrade *wanted = context;
    const json_t *best = json_object_get(object, "items_best_step");
    if (!best || (uint64_t)json_integer_value(json_object_get(object, "step")) > wanted->most) return false;
    wanted->best = (uint64_t)json_integer_value(best);
    return true;
}

uint64_t metrics_graded(const char *out_dir, uint64_t most) {
    WantedGrade wanted = {most, 0};
    search_back(out_dir, parse_grade, &wanted);
    return wanted.best;
}
