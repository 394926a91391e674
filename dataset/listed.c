// The lines are sorted, and looked up by bisection.
#include "dataset/listed.h"
#include "common/err.h"
#include <stdlib.h>

#define LIST_BYTES_MAX ((size_t)1 << 36)

static int compare(Bytes a, Bytes b) {
    const size_t shorter = a.size < b.size ? a.size : b.size;
    const int order = shorter ? memcmp(a.data, b.data, shorter) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

static int by_bytes(const void *a, const void *b) { return compare(*(const Bytes *)a, *(const Bytes *)b); }

uint64_t listed_lines(const Listed *listed) { return listed->lines.size / sizeof(Bytes); }

int listed_open(Listed *listed, const char *argument) {
    *listed = (Listed){0};
    const char *file = strchr(argument, '=');
    if (!file || file == argument || !file[1])
        return fail(EX_USAGE, "--listed '%s' is not KEY=FILE, as url=removed.txt", argument);
    listed->key = allocate_text(argument, (size_t)(file - argument));
    if (file_read_stream(&listed->text, file + 1, LIST_BYTES_MAX) < 0) return fail_in("--listed");
    Bytes rest = {listed->text.data, listed->text.size}, line;
    while (bytes_next_line_or_rest(&rest, &line)) {
        line.size -= line.size && line.data[line.size - 1] == '\r';
        if (line.size) buffer_add(&listed->lines, &line, sizeof line);
    }
    Bytes *lines = (Bytes *)(void *)listed->lines.data;
    size_t kept = 0, count = listed_lines(listed);
    if (!count) return fail(EX_NOINPUT, "--listed: '%s' has no lines", file + 1);
    qsort(lines, count, sizeof *lines, by_bytes);
    Sha256 sha;
    sha256_open(&sha);
    for (size_t i = 0; i < count; i++) {
        if (kept && !compare(lines[kept - 1], lines[i])) continue;
        lines[kept++] = lines[i];
        sha256_add(&sha, lines[i].data, lines[i].size);
        sha256_add(&sha, "\n", 1);
    }
    sha256_close(&sha, listed->hash);
    listed->lines.size = kept * sizeof *lines;
    buffer_reserve(&listed->found, kept);
    memset(listed->found.data, 0, listed->found.size = kept);
    return 0;
}

bool listed_has(Listed *listed, Bytes row) {
    Provenance read;
    Bytes value;
    if (!provenance_parse(row, &read) || !provenance_find_value(&read, listed->key, &value))
        return listed->keyless++, false;
    listed->documents++;
    const Bytes *lines = (const Bytes *)(const void *)listed->lines.data,
                *line = bsearch(&value, lines, listed_lines(listed), sizeof *lines, by_bytes);
    if (line) listed->found.data[line - lines] = 1;
    return line;
}

uint64_t listed_found(const Listed *listed) {
    uint64_t count = 0;
    for (size_t i = 0; i < listed->found.size; i++) count += listed->found.data[i];
    return count;
}

int listed_check(const Listed *listed) {
    if (listed->documents) return 0;
    return fail(EX_USAGE, "--listed: no document has a kept key '%s': tokenize --keep keeps one", listed->key);
}

void listed_close(Listed *listed) {
    free(listed->key);
    buffer_close(&listed->text);
    buffer_close(&listed->lines);
    buffer_close(&listed->found);
    *listed = (Listed){0};
}
