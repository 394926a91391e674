// metrics.jsonl.
#include "trainer/run/metrics.h"
#include "common/err.h"
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 2048 };

static const char head[] = "{\"step\": "; // how every line begins

// Length of the lines up to `step`. The steps in the file never decrease.
static size_t kept_bytes(const Buffer *text, int64_t step) {
    size_t at = 0;
    while (at < text->size) {
        const char *line = (const char *)text->data + at, *end = memchr(line, '\n', text->size - at);
        if (!end || (size_t)(end - line) < sizeof head || memcmp(line, head, sizeof head - 1)) break;
        if (strtoll(line + sizeof head - 1, NULL, 10) > step) break;
        at = (size_t)(end - (const char *)text->data) + 1;
    }
    return at;
}

int metrics_open(Metrics *metrics, const char *out_dir, int64_t step) {
    Buffer text = {0};
    snprintf(metrics->path, sizeof metrics->path, "%.*s/metrics.jsonl", PATH_MAX_BYTES - 32, out_dir);
    if (access(metrics->path, F_OK) == 0 && file_read(&text, metrics->path, SIZE_MAX / 2) < 0) return -1;
    size_t keep = kept_bytes(&text, step);
    buffer_close(&text);
    metrics->fd = open(metrics->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (metrics->fd < 0) return fail_errno("cannot open '%s'", metrics->path);
    if (ftruncate(metrics->fd, (off_t)keep) < 0) return fail_errno("cannot cut '%s'", metrics->path);
    return 0;
}

int metrics_add(Metrics *metrics, uint64_t step, const char *format, ...) {
    char line[LINE_MAX_BYTES];
    int length = snprintf(line, sizeof line, "%s%llu, ", head, (unsigned long long)step);
    size_t room = sizeof line - (size_t)length - 2; // for "}\n"
    va_list list;
    va_start(list, format);
    int more = vsnprintf(line + length, room, format, list);
    va_end(list);
    if (more < 0 || (size_t)more >= room) return fail(EX_BUG, "a line of metrics is too long");
    memcpy(line + length + more, "}\n", 2);
    return fd_write(metrics->fd, line, (size_t)(length + more) + 2, metrics->path);
}

const char *metrics_string(char out[512], const char *text) {
    json_t *string = json_string(text);
    size_t length = string ? json_dumpb(string, out, 511, JSON_ENCODE_ANY) : 0;
    json_decref(string);
    if (!length || length > 511)
        snprintf(out, 512, "\"\""); // not UTF-8, or too long
    else
        out[length] = 0;
    return out;
}

int metrics_sync(Metrics *metrics) {
    return fsync(metrics->fd) < 0 ? fail_errno("cannot sync '%s'", metrics->path) : 0;
}

void metrics_close(Metrics *metrics) {
    if (metrics->path[0] && metrics->fd >= 0) close(metrics->fd);
    *metrics = (Metrics){.fd = -1};
}
