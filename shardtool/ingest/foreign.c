// Magic numbers of formats that are not read, and content that a data file should not hold.
#include "shardtool/ingest/foreign.h"
#include "dataset/manifest.h"
#include "dataset/shard.h"
#include <ctype.h>
#include <strings.h>

static const struct {
    const char *magic;
    unsigned size;
    const char *is;
} foreign[] = {
#define MAGIC(text) text, sizeof text - 1
    {MAGIC("PAR1"), "is a Parquet file"},
    {MAGIC("PARE"), "is an encrypted Parquet file"},
    {MAGIC("ARROW1\0\0"), "is an Arrow or Feather file: convert it to Parquet or JSON lines"},
    {MAGIC("FEA1"), "is a Feather file: convert it to Parquet or JSON lines"},
    {MAGIC("\xFF\xFF\xFF\xFF"), "is an Arrow stream: convert it to Parquet or JSON lines"},
    {MAGIC("Obj\1"), "is an Avro file: convert it to Parquet or JSON lines"},
    {MAGIC("ORC\n"), "is an ORC file"},
    {MAGIC("Rar!\x1A\7"), "is a RAR archive: unpack it first"},
    {MAGIC("7z\xBC\xAF\x27\x1C"), "is a 7-Zip archive: unpack it first"},
    {MAGIC("\4\"M\x18"), "is an LZ4 file: decompress it first"},
    {MAGIC("]\0\0"), "is an LZMA file: decompress it first"},
    {MAGIC("LZIP"), "is an lzip file: decompress it first"},
    {MAGIC("\x1F\x9D"), "is a compress (.Z) file: decompress it first"},
    {MAGIC("%PDF-"), "is a PDF document: extract its text first"},
    {MAGIC("WARC/"), "is a WARC archive: extract its text first"},
    {MAGIC("SQLite format 3\0"), "is an SQLite database"},
    {MAGIC("\x89HDF\r\n\x1A\n"), "is an HDF5 file"},
    {MAGIC("\x93NUMPY"), "is a NumPy array"},
    {MAGIC("GGUF"), "is a GGUF model"},
    {MAGIC("\x7F"
           "ELF"),
     "is an ELF program"},
    {MAGIC("\x89PNG\r\n\x1A\n"), "is a PNG image"},
    {MAGIC("\xFF\xD8\xFF"), "is a JPEG image"},
    {MAGIC("\xFF\xFE\0\0"), "is UTF-32 text: convert it to UTF-8 first (iconv -f UTF-32 -t UTF-8)"},
    {MAGIC("\xFF\xFE"), "is UTF-16 text: convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8)"},
    {MAGIC("\xFE\xFF"), "is UTF-16 text: convert it to UTF-8 first (iconv -f UTF-16 -t UTF-8)"},
};

static bool starts_with(Bytes head, const void *magic, size_t size) {
    return head.size >= size && !memcmp(head.data, magic, size);
}

static bool is_shard(Bytes head) {
    size_t opening = sizeof SHARD_OPENING - 1;
    return head.size >= opening + 16 && starts_with(head, SHARD_OPENING, opening) &&
           get_u32(head.data + opening) == SHARD_HEADER_MAGIC &&
           !memcmp(head.data + opening + SKIPPABLE_BYTES, "SHRDHDR1", 8);
}

// Zip files whose first member shows that they are documents of an application.
static bool is_office_document(Bytes head) {
    enum { NAME_OFFSET = 30 };
    if (!starts_with(head, "PK\3\4", 4) || head.size < NAME_OFFSET) return false;
    Bytes name = {head.data + NAME_OFFSET, head.size - NAME_OFFSET};
    return starts_with(name, "[Content_Types].xml", 19) || starts_with(name, "mimetype", 8) ||
           starts_with(name, "_rels/", 6) || starts_with(name, "META-INF/", 9);
}

const char *foreign_find(Bytes head) {
    if (is_shard(head)) return "is a shard already: use cat, decode or merge";
    if (starts_with(head, DATASET_BEGIN, sizeof DATASET_BEGIN - 1))
        return "is the manifest of a dataset: cat, decode and merge read the dataset";
    if (is_office_document(head)) return "is an office document or a program in a zip file: extract its text first";
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (starts_with(head, foreign[i].magic, foreign[i].size)) return foreign[i].is;
    return NULL;
}

// A byte order mark begins no text in UTF-8. In UTF-16, every second byte is below 9 in nearly all scripts except those of East Asia, and hardly any other byte.
const char *utf16_find(Bytes head) {
    if (starts_with(head, "\xFF\xFE", 2) || starts_with(head, "\xFE\xFF", 2)) return foreign_find(head);
    size_t low[2] = {0}, pairs = head.size / 2;
    for (size_t i = 0; i < 2 * pairs; i++) low[i % 2] += head.data[i] < 9;
    if (pairs < 4 || low[0] + low[1] < pairs * 7 / 8 || (low[0] > pairs / 8 && low[1] > pairs / 8)) return NULL;
    return low[1] > low[0]
               ? "is probably UTF-16 text (little-endian): convert it to UTF-8 first (iconv -f UTF-16LE -t UTF-8)"
               : "is probably UTF-16 text (big-endian): convert it to UTF-8 first (iconv -f UTF-16BE -t UTF-8)";
}

static Bytes skip_space(Bytes text) {
    while (text.size && isspace(*text.data)) text.data++, text.size--;
    return text;
}

static bool starts_with_word(Bytes head, const char *word) {
    size_t size = strlen(word);
    return head.size >= size && !strncasecmp((const char *)head.data, word, size);
}

const char *misplaced_find(Bytes head) {
    if (starts_with_word(head, "version https://git-lfs.github.com/"))
        return "is a git-lfs pointer, not the file itself: run 'git lfs pull'";
    head = skip_space(head);
    if (starts_with_word(head, "<!doctype html") || starts_with_word(head, "<html"))
        return "is an HTML page, perhaps the error page of a failed download (--format text reads it as text)";
    return NULL;
}

// The number of complete lines in the head, and how many of them start like a JSON line.
static void count_lines(Bytes head, size_t *lines, size_t *json) {
    *lines = *json = 0;
    for (const uint8_t *end; head.size && (end = memchr(head.data, '\n', head.size)); ++*lines) {
        size_t size = (size_t)(end - head.data) + 1;
        *json += starts_with(head, "{\"", 2);
        head.data += size, head.size -= size;
    }
}

bool looks_like_json_lines(Bytes head) {
    size_t lines, json;
    count_lines(head, &lines, &json);
    return lines ? json > lines / 2 : starts_with(head, "{\"", 2);
}

// A comma of prose has a space after it.
static bool has_columns(Bytes text, uint8_t separator) {
    enum { LINES_LEAST = 4 };
    Bytes line;
    size_t lines = 0, columns = 0;
    while (bytes_next_line(&text, &line)) {
        size_t count = 0;
        for (size_t i = 0; i < line.size; i++)
            if (line.data[i] == separator && ++count && i + 1 < line.size && line.data[i + 1] == ' ') return false;
        if (!count || (lines++ && count != columns)) return false;
        columns = count;
    }
    return lines >= LINES_LEAST;
}

bool looks_like_table(Bytes head) {
    return has_columns(head, ',') || has_columns(head, '\t') || has_columns(head, ';');
}

const char *not_json_lines_find(Bytes head) {
    size_t lines, json;
    count_lines(head, &lines, &json);
    if (json > 1 && json > lines / 2)
        return "has mostly JSON lines, but does not start with one: use --format jsonl or --format text";
    head = skip_space(head);
    if (!head.size || (*head.data != '[' && *head.data != '{')) return NULL;
    bool array = *head.data == '[';
    Bytes inner = skip_space((Bytes){head.data + 1, head.size - 1});
    if (array && inner.size && (*inner.data == '{' || *inner.data == '"'))
        return "is a JSON array, not JSON lines: convert it with jq -c '.[]' (or use --format text)";
    if (!array && inner.size && *inner.data == '"')
        return "is a JSON object over several lines, not JSON lines: convert it with jq -c . (or use --format text)";
    return NULL;
}
