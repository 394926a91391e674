// Magic numbers of formats that are not read, and content that a data file should not hold.
#include "shardtool/ingest/foreign.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/hash.h"
#include "dataset/manifest.h"
#include "dataset/shard.h"
#include <ctype.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const struct {
    const char *magic;
    unsigned size;
    const char *is;
} foreign[] = {
#define MAGIC(text) text, sizeof text - 1
    {MAGIC("PAR1"), "is a Parquet file"},
    {MAGIC("PARE"), "is an encrypted Parquet file"},
    {MAGIC("ARROW1\0\0"),
     "is an Arrow or Feather file: pandas.read_feather(FILE).to_parquet('rows.parquet') converts it"},
    {MAGIC("FEA1"), "is a Feather file: pandas.read_feather(FILE).to_parquet('rows.parquet') converts it"},
    {MAGIC("\xFF\xFF\xFF\xFF"), "is an Arrow stream, as datasets.save_to_disk writes: "
                                "load_from_disk(FOLDER).to_parquet('rows.parquet') converts it"},
    {MAGIC("Obj\1"), "is an Avro file: polars.read_avro(FILE).write_parquet('rows.parquet') converts it"},
    {MAGIC("VTXF"), "is a Vortex file: write its table as Parquet with the package vortex-data, by vortex.open(FILE)"},
    {MAGIC("\x83\xAF\x70\xD1\x0D\x88\x4A\x3F"),
     "is a Riegeli or ArrayRecord file: write the text of its records as JSON lines with the package array_record"},
    {MAGIC("\x88\xD8\x34\1"), "holds token ids of llm.c: 'millrace import-tokens --format llmc' reads them"},
    {MAGIC("\xA1\xD9\x34\1"), "holds token ids of llm.c: 'millrace import-tokens --format llmc' reads them"},
    {MAGIC("Rar!\x1A\7"), "is a RAR archive: unpack it first"},
    {MAGIC("7z\xBC\xAF\x27\x1C"), "is a 7-Zip archive: unpack it first"},
    {MAGIC("\4\"M\x18"), "is an LZ4 file: decompress it first"},
    {MAGIC("\2!L\x18"), "is an LZ4 file: decompress it first"},
    {MAGIC("\xFF\6\0\0sNaPpY"), "is a Snappy file: decompress it first"},
    {MAGIC("\x89LZO\0\r\n\x1A\n"), "is an lzop file: decompress it first"},
    {MAGIC("]\0\0"), "is an LZMA file: decompress it first"},
    {MAGIC("LZIP"), "is an lzip file: decompress it first"},
    {MAGIC("\x1F\x9D"), "is a compress (.Z) file: decompress it first"},
    {MAGIC("%PDF-"), "is a PDF document: extract its text first"},
    {MAGIC("WARC/"),
     "is a WARC archive: write its text as JSON lines with warcio, from HTML with trafilatura or resiliparse"},
    {MAGIC("SQLite format 3\0"), "is an SQLite database"},
    {MAGIC("\x89HDF\r\n\x1A\n"), "is an HDF5 file"},
    {MAGIC("\x93NUMPY"), "is a NumPy array: 'millrace import-tokens --format npy' reads token ids"},
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

// The plain text of web pages, in records like the records of the pages.
static bool is_wet(Bytes head) {
    static const char type[] = "\r\nWARC-Type: conversion\r\n";
    return starts_with(head, "WARC/", 5) && memmem(head.data, head.size, type, sizeof type - 1);
}

// A record has its length, and a checksum of that, before its bytes.
static bool is_tfrecord(Bytes head) {
    if (head.size < 12) return false;
    const uint32_t crc = crc32c(0, head.data, 8);
    return get_u32(head.data + 8) == (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

// After the three bytes of the magic number a compressed file has the size of a chunk, whose third byte is small. Any
// other file has the first field of an index.
static bool is_orc(Bytes head) {
    return starts_with(head, "ORC", 3) && head.size > 5 && (head.data[3] == '\n' || head.data[5] < 9);
}

const char *foreign_find(Bytes head) {
    if (head.size >= 12 && !memcmp(head.data + 8, "DUCK", 4))
        return "is a DuckDB database: duckdb.connect(FILE).sql('from TABLE').write_parquet('rows.parquet') converts it";
    if (is_tfrecord(head))
        return "is a TFRecord file: write the text of its records as JSON lines with tf.data.TFRecordDataset, or with "
               "the package tfrecord";
    if (is_orc(head)) return "is an ORC file: pandas.read_orc(FILE).to_parquet('rows.parquet') converts it";
    if (is_wet(head))
        return "is a WET archive: write the text of its records as JSON lines with warcio (ArchiveIterator)";
    if (is_shard(head)) return "is a shard already: use cat, decode or merge";
    if (starts_with(head, DATASET_BEGIN, sizeof DATASET_BEGIN - 1))
        return "is the manifest of a dataset: cat, decode and merge read the dataset";
    if (is_office_document(head)) return "is an office document or a program in a zip file: extract its text first";
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        if (starts_with(head, foreign[i].magic, foreign[i].size)) return foreign[i].is;
    return NULL;
}

// A byte order mark begins no text in UTF-8. In UTF-16, every second byte is below 9 in nearly all scripts except East
// Asian ones, and hardly any other byte.
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

bool looks_like_json_lines(Bytes head, size_t *lines) {
    size_t json;
    count_lines(head, lines, &json);
    return *lines ? json > *lines / 2 : starts_with(head, "{\"", 2);
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

// Takes a name of a column and the separator after it, if there is one. A name is a word, maybe in quotes.
static bool take_column(Bytes *line, char *separator, Bytes *name) {
    const uint8_t *at = line->data, *end = at + line->size;
    const bool quoted = at < end && *at == '"';
    at += quoted;
    *name = (Bytes){at, 0};
    while (at < end && (isalnum(*at) || *at == '_' || *at == '.' || *at == '-')) at++;
    name->size = (size_t)(at - name->data);
    if (!name->size || (quoted && (at == end || *at++ != '"'))) return false;
    if (at < end && *at == '\r') at++;
    if (at < end && !*separator && strchr(",;\t", *at)) *separator = (char)*at;
    if (at < end && *at++ != (uint8_t)*separator) return false;
    *line = (Bytes){at, (size_t)(end - at)};
    return true;
}

bool is_table_header(Bytes head, const char *column) {
    Bytes line, name;
    bool found = false;
    char separator = 0;
    size_t count = 0;
    if (!memchr(head.data, '\n', head.size) || !bytes_next_line(&head, &line) || !head.size) return false;
    for (; line.size; count++) {
        if (!take_column(&line, &separator, &name)) return false;
        found |= name.size == strlen(column) && !strncasecmp((const char *)name.data, column, name.size);
    }
    return found && count > 1;
}

const char *not_json_lines_find(Bytes head) {
    size_t lines, json;
    count_lines(head, &lines, &json);
    if (json > 1 && json > lines / 2 && *skip_space(head).data != '[')
        return "has mostly JSON lines, but does not start with one: use --format jsonl or --format text";
    return json_document_find(head);
}

// Whether it begins with an object whose first key is "role".
static bool is_message(Bytes text) {
    static const char role[] = "\"role\"";
    if (!text.size || *text.data != '{') return false;
    text = skip_space((Bytes){text.data + 1, text.size - 1});
    return text.size >= sizeof role - 1 && !memcmp(text.data, role, sizeof role - 1);
}

bool message_lines_find(Bytes head) {
    Bytes line;
    head = skip_space(head);
    if (!head.size || *head.data != '[' || !is_message(skip_space((Bytes){head.data + 1, head.size - 1}))) return false;
    return !bytes_next_line(&head, &line) || bytes_trimmed(line).data[bytes_trimmed(line).size - 1] == ']';
}

const char *json_document_find(Bytes head) {
    head = skip_space(head);
    if (!head.size || (*head.data != '[' && *head.data != '{')) return NULL;
    bool array = *head.data == '[';
    Bytes inner = skip_space((Bytes){head.data + 1, head.size - 1});
    if (array && is_message(inner))
        return "has a conversation that is an array of messages: tokenize --turns reads one in each line of a .jsonl "
               "file (jq -c . makes lines)";
    if (array && inner.size && (*inner.data == '{' || *inner.data == '"'))
        return "is a JSON array, not JSON lines: convert it with jq -c '.[]'";
    if (!array && inner.size && *inner.data == '"')
        return "is a JSON object over several lines, not JSON lines: convert it with jq -c .";
    return NULL;
}

// Whether a folder has these files: `beside` may be NULL.
static bool has_files(const char *const *names, size_t count, const char *file, const char *beside) {
    bool has_file = false, has_beside = !beside;
    for (size_t i = 0; i < count; i++) {
        has_file |= !strcmp(names[i], file);
        has_beside |= beside && !strcmp(names[i], beside);
    }
    return has_file && has_beside;
}

// 1 when the first bytes of a file have a word, 0 when not, -1 after fail().
static int begins_with_word(const char *folder, const char *file, const char *word) {
    char path[PATH_MAX_BYTES], head[512] = "";
    const int fd = file_open(path_join(path, folder, "%s", file));
    const ssize_t got = fd < 0 ? -1 : fd_read(fd, head, sizeof head - 1, path);
    if (fd >= 0) close(fd);
    return got < 0 ? -1 : strstr(head, word) != NULL;
}

int foreign_folder_refuse(const char *folder, const char *const *names, size_t count) {
    static const struct {
        const char *file, *beside, *word, *is; // word: in the first bytes of the file, or NULL
    } folders[] = {
        {"dataset_dict.json", NULL, NULL,
         "a dataset of save_to_disk: load_from_disk(FOLDER)['train'].to_parquet('rows.parquet') converts a split of "
         "it"},
        {"state.json", "dataset_info.json", NULL,
         "a dataset of save_to_disk: load_from_disk(FOLDER).to_parquet('rows.parquet') converts it"},
        {"_versions/", "data/", NULL,
         "a Lance dataset: pyarrow.parquet.write_table(lance.dataset(FOLDER).to_table(), 'rows.parquet') converts it"},
        {"index.json", NULL, "\"mds\"",
         "a dataset of MosaicML's streaming: write the samples of StreamingDataset(local=FOLDER, "
         "batch_size=1) as JSON lines"},
        {"index.json", NULL, "\"chunks\"",
         "a dataset of litdata: write the samples of StreamingDataset(FOLDER) as JSON lines"},
    };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (!has_files(names, count, folders[i].file, folders[i].beside)) continue;
        const int is_it = folders[i].word ? begins_with_word(folder, folders[i].file, folders[i].word) : 1;
        if (is_it < 0) return -1;
        if (is_it) return fail(EX_DATA, "'%s' is %s", folder, folders[i].is);
    }
    return 0;
}
