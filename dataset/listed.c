// The lines are sorted, and looked up by bisection.
#include "dataset/listed.h"
#include "common/err.h"
#include "common/log.h"
#include <inttypes.h>
#include <stdlib.h>

#define LIST_BYTES_MAX ((size_t)1 << 36)

static int compare(Bytes a, Bytes b) {
    const size_t shorter = a.size < b.size ? a.size : b.size;
    const int order = shorter ? memcmp(a.data, b.data, shorter) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

static int by_bytes(const void *a, const void *b) { return compare(*(const Bytes *)a, *(const Bytes *)b); }

static uint64_t line_count(const Listed *list) { return list->lines.size / sizeof(Bytes); }

// Why a file is no list of lines, or NULL. No line of it would be found, and the documents would stay.
static const char *unfit(Bytes text) {
    static const struct {
        const char *begin, *is;
    } others[] = {{"\xFF\xFE", "is UTF-16 text: convert it first (iconv -f UTF-16 -t UTF-8)"},
                  {"\xFE\xFF", "is UTF-16 text: convert it first (iconv -f UTF-16 -t UTF-8)"},
                  {"\x1F\x8B", "is compressed: decompress it first (zcat)"},
                  {"\x28\xB5\x2F\xFD", "is compressed: decompress it first (zstdcat)"},
                  {"BZh91AY&SY", "is compressed: decompress it first (bzcat)"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const size_t size = strlen(others[i].begin);
        if (text.size >= size && !memcmp(text.data, others[i].begin, size)) return others[i].is;
    }
    if (text.size && memchr(text.data, 0, text.size))
        return "holds a NUL byte: it takes one value a line, in UTF-8 (tr '\\0' '\\n', iconv -f UTF-16LE -t UTF-8)";
    return NULL;
}

static int add_lines(Listed *list, Bytes text, const char *file) {
    Bytes line;
    const char *is = unfit(text);
    if (is) return fail(EX_DATA, "--listed: '%s' %s", file, is);
    if (text.size >= 3 && !memcmp(text.data, "\xEF\xBB\xBF", 3)) text.data += 3, text.size -= 3;
    while (bytes_next_line_or_rest(&text, &line)) {
        line.size -= line.size && line.data[line.size - 1] == '\r';
        if (!line.size) continue;
        if (memchr(line.data, '\r', line.size))
            return fail(EX_DATA, "--listed: '%s' has a carriage return within a line: end lines by a line feed", file);
        buffer_add(&list->lines, &line, sizeof line);
    }
    return line_count(list) ? 0 : fail(EX_NOINPUT, "--listed: '%s' has no lines", file);
}

static int open_list(Listed *list, const char *argument) {
    const char *file = strchr(argument, '=');
    if (!file || file == argument || !file[1])
        return fail(EX_USAGE, "--listed '%s' is not KEY=FILE, as url=removed.txt", argument);
    list->key = allocate_text(argument, (size_t)(file - argument));
    if (file_read_stream(&list->text, file + 1, LIST_BYTES_MAX) < 0) return fail_in("--listed");
    if (add_lines(list, (Bytes){list->text.data, list->text.size}, file + 1) < 0) return -1;
    Bytes *lines = (Bytes *)(void *)list->lines.data;
    size_t kept = 0;
    const size_t count = line_count(list);
    qsort(lines, count, sizeof *lines, by_bytes);
    Sha256 sha;
    sha256_open(&sha);
    for (size_t i = 0; i < count; i++) {
        if (kept && !compare(lines[kept - 1], lines[i])) continue;
        lines[kept++] = lines[i];
        sha256_add(&sha, lines[i].data, lines[i].size);
        sha256_add(&sha, "\n", 1);
    }
    sha256_close(&sha, list->hash);
    list->lines.size = kept * sizeof *lines;
    buffer_reserve(&list->found, kept);
    memset(list->found.data, 0, list->found.size = kept);
    return 0;
}

int listed_open(ListedSet *set, const StringList *arguments) {
    int status = 0;
    *set = (ListedSet){.count = arguments->count};
    for (size_t i = 0; status == 0 && i < set->count; i++) status = open_list(&set->lists[i], arguments->items[i]);
    return status;
}

static bool has(Listed *list, const Provenance *row) {
    Bytes value;
    if (!row || !provenance_find_value(row, list->key, &value)) return list->keyless++, false;
    list->documents++;
    const Bytes *lines = (const Bytes *)(const void *)list->lines.data,
                *line = bsearch(&value, lines, line_count(list), sizeof *lines, by_bytes);
    if (!line) return false;
    list->found.data[line - lines] = 1, list->listed++;
    return true;
}

bool listed_has(ListedSet *set, Bytes row) {
    Provenance read;
    const bool known = provenance_parse(row, &read);
    bool any = false;
    for (size_t i = 0; i < set->count; i++) any |= has(&set->lists[i], known ? &read : NULL);
    return any;
}

int listed_finish(ListedSet *set, const char *rest) {
    for (size_t i = 0; i < set->count; i++) {
        Listed *list = &set->lists[i];
        const uint64_t lines = line_count(list);
        uint64_t found = 0;
        if (!list->documents)
            return fail(EX_USAGE, "--listed: no document has a kept key '%s': tokenize --keep keeps one", list->key);
        for (size_t k = 0; k < list->found.size; k++) found += list->found.data[k];
        if (rest)
            log_line("--listed: %" PRIu64 " of %" PRIu64 " line%s of '%s' occur in %" PRIu64 " document%s", found,
                     lines, PLURAL(lines), list->key, list->listed, PLURAL(list->listed));
        if (rest && list->keyless)
            log_warn("%" PRIu64 " document%s no kept key '%s': %s", list->keyless,
                     list->keyless == 1 ? " has" : "s have", list->key, rest);
        memset(list->found.data, 0, list->found.size);
        list->keyless = list->documents = list->listed = 0;
    }
    return 0;
}

void listed_close(ListedSet *set) {
    for (size_t i = 0; i < set->count; i++) {
        free(set->lists[i].key);
        buffer_close(&set->lists[i].text);
        buffer_close(&set->lists[i].lines);
        buffer_close(&set->lists[i].found);
    }
    *set = (ListedSet){0};
}
