// The table of input formats, the choice of a format for a stream, and the checks of source_options.h.
#include "shardtool/ingest/input_format.h"
#include "common/err.h"
#include "common/log.h"
#include "dataset/provenance.h"
#include "shardtool/ingest/codec.h"
#include "shardtool/ingest/foreign.h"
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <strings.h>

static const InputFormat formats[] = {
#define INPUT_FORMAT(...) INPUT_FORMAT_ROW(__VA_ARGS__),
#include "shardtool/ingest/input_formats.def"
#undef INPUT_FORMAT
};
enum { FORMAT_COUNT = sizeof formats / sizeof *formats };
_Static_assert((int)FORMAT_COUNT <= (int)INPUT_FORMATS_MAX, "inputs_read has an entry for each row");

static bool has_extension(const Stream *stream, const char *extensions) {
    const char *dot = strrchr(stream->base, '.');
    return dot && extension_is_one_of(extensions, dot + 1);
}

static int fail_no_format(const Stream *stream) {
    char titles[256] = "";
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        size_t used = strlen(titles);
        snprintf(titles + used, sizeof titles - used, "%s%s", i ? ", " : "", formats[i].title);
    }
    const bool is_ids = has_extension(stream, "bin"); // of nanoGPT, Megatron
    return fail(EX_DATA, "'%s' is binary and in none of the known formats (%s)%s", stream->name, titles,
                is_ids ? ": token ids, as in nanoGPT's train.bin, are read by 'millrace import-tokens --format nanogpt'"
                       : "");
}

// The format that the extension of the name promises, or NULL.
static const InputFormat *promised_format(const Stream *stream) {
    for (size_t i = 0; i < FORMAT_COUNT; i++)
        if (has_extension(stream, formats[i].extensions)) return &formats[i];
    return NULL;
}

static const InputFormat *forced_format(const SourceOptions *options) {
    const InputFormat *format = formats;
    for (unsigned left = options->format; left; format++)
        if (format->kind == INPUT_DOCUMENTS && --left == 0) return format;
    return NULL;
}

static const InputFormat *highest_bid(Bytes head, InputKind kind, int least) {
    const InputFormat *best = NULL;
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        int bid = formats[i].kind == kind ? formats[i].bid(head) : BID_NONE;
        if (bid >= least) best = &formats[i], least = bid + 1;
    }
    return best;
}

static int refuse(const Stream *stream, const char *is) { return fail(EX_DATA, "'%s' %s", stream->name, is); }

// JSON that is not JSON lines, and UTF-16. In both, a reader of lines would take single lines for documents.
static const char *not_lines_find(const SourceOptions *options, Bytes head) {
    const char *is = utf16_find(head);
    return is || jsonl_bid(head) || (options->turns && message_lines_find(head)) ? is : json_document_find(head);
}

// As text, a table would be one document with all its columns. By default pandas reads "NA" and "null" as nulls.
static const char *table_find(const Stream *stream, const SourceOptions *options, Bytes head) {
#define TABLE(separator)                                                                                               \
    "is a CSV or TSV table: pandas.read_csv(FILE, sep='" separator                                                     \
    "', keep_default_na=False).to_parquet('rows.parquet')"                                                             \
    " converts it (--format text reads it as one text with all its columns)"
    const char *column = options->text_column ? options->text_column : "text";
    Bytes line;
    if (!has_extension(stream, "csv tsv") && !is_table_header(head, column)) return NULL;
    if (!bytes_next_line(&head, &line)) line = head;
    if (memchr(line.data, '\t', line.size)) return TABLE("\\t");
    return !memchr(line.data, ',', line.size) && memchr(line.data, ';', line.size) ? TABLE(";") : TABLE(",");
}

static bool promises_text(const Stream *stream) {
    const InputFormat *promised = promised_format(stream);
    return stream->is_listed && promised && promised->bid == text_bid;
}

bool stream_is_compressed(const Stream *stream, Bytes head) {
    return !promises_text(stream) && compressed_bid(head) && !foreign_find(head);
}

// A tar without members is nothing but the two blocks of zeros that end every tar, and padding.
static bool is_empty_tar(Bytes head) {
    for (size_t i = 0; i < head.size; i++)
        if (head.data[i]) return false;
    return head.size >= 1024;
}

// A page of text may start with anything, with JSON or the magic number of a compressed file too. So a file in a folder
// or an archive whose name promises text is text. For others, the magic number decides, then the name, then the
// content.
static int choose_format(const Stream *stream, const SourceOptions *options, Bytes head, const InputFormat **format) {
    const InputFormat *promised = promised_format(stream), *forced = forced_format(options);
    const char *is;
    if (promises_text(stream)) {
        *format = forced ? forced : promised;
        is = forced ? NULL : utf16_find(head);
        return is ? refuse(stream, is) : 0;
    }
    is = foreign_find(head);
    if (!is && (*format = highest_bid(head, INPUT_CONTAINER, BID_MAGIC))) return 0;
    if (forced) {
        if (is && compressed_bid(head)) return refuse(stream, is); // a shard
        *format = forced;
        is = forced->bid == jsonl_bid ? not_lines_find(options, head) : NULL;
        return is ? refuse(stream, is) : 0;
    }
    if ((*format = highest_bid(head, INPUT_DOCUMENTS, BID_MAGIC))) return 0;
    if (is) return refuse(stream, is);
    if (stream->level == 0 && (is = misplaced_find(head))) return refuse(stream, is);
    if (promised && promised->bid == tar_bid && is_empty_tar(head)) {
        *format = promised;
        return 0;
    }
    if (promised && promised->kind == INPUT_CONTAINER) {
        if (!(*format = highest_bid(head, INPUT_DOCUMENTS, BID_CONTENT)))
            return fail(EX_DATA, "'%s' is named like %s, but is not in that format (--format text reads it as text)",
                        stream->name, promised->title);
        log_warn("'%s' is named like %s, but holds %s", stream->name, promised->title, (*format)->title);
        return 0;
    }
    if (promised && promised->bid != text_bid) {
        *format = promised;
        is = promised->bid == jsonl_bid ? not_lines_find(options, head) : NULL;
        return is ? refuse(stream, is) : 0;
    }
    if ((is = table_find(stream, options, head))) return refuse(stream, is);
    size_t lines;
    if (promised && !stream->is_listed && options->docs == DOCS_FILE && looks_like_json_lines(head, &lines) &&
        lines > 1)
        return refuse(stream,
                      "has JSON lines, but is named as text: --format jsonl reads its texts, --format text reads it "
                      "as one text with all its keys");
    if (has_extension(stream, "br"))
        return refuse(stream, "is named like a brotli file: decompress it first (brotli -d)");
    if (!promised && highest_bid(head, INPUT_DOCUMENTS, BID_CONTENT) == NULL && (is = not_json_lines_find(head)))
        return refuse(stream, is);
    *format = promised && text_bid(head) ? promised : highest_bid(head, INPUT_DOCUMENTS, 1);
    if (*format) return 0;
    return !has_extension(stream, "bin") && (is = utf16_find(head)) ? refuse(stream, is) : fail_no_format(stream);
}

// What --format text reads may be of a format that is not text.
static void warn_forced(const Stream *stream, SourceOptions *options, Bytes head) {
    const char *is = promises_text(stream) ? NULL : foreign_find(head);
    if (!is || options->records_warned) return;
    options->records_warned = true;
    log_warn("'%s' %s; --format text reads its bytes as they are", stream->name, is);
}

// As text, JSON lines are one document, with all their keys and quotes, and a table is one with all its columns.
static void warn_records(const Stream *stream, SourceOptions *options, Bytes head) {
    if (options->format) warn_forced(stream, options, head);
    if (options->format || options->records_warned) return;
    size_t lines;
    const bool json = looks_like_json_lines(head, &lines);
    if (!json && (options->docs != DOCS_FILE || !looks_like_table(head))) return;
    options->records_warned = true;
    if (json)
        log_warn("'%s' looks like JSON lines, but is named as text: --format jsonl reads its texts", stream->name);
    else
        log_warn(
            "'%s' looks like CSV or TSV, and is read as one text with all its columns: convert it to JSON lines or "
            "Parquet first (--format text reads it without this warning)",
            stream->name);
}

// An empty file holds no documents, but a file of a format that has an index holds at least the index.
static int check_empty(const Stream *stream) {
    const InputFormat *promised = promised_format(stream);
    if (!promised || !promised->needs_seek || promised->kind == INPUT_CONTAINER) return 0;
    return fail(EX_DATA, "'%s' is empty, but is named like %s", stream->name, promised->title);
}

int reader_open(FormatReader **reader, Stream *stream, SourceOptions *options) {
    *reader = NULL;
    Bytes head;
    const InputFormat *format = NULL;
    if (stream_peek(stream, &head) < 0) return -1;
    if (!head.size) return check_empty(stream);
    if (choose_format(stream, options, head, &format) < 0) return -1;
    if (options->turns && format->kind == INPUT_DOCUMENTS && format->bid == text_bid)
        return fail(EX_DATA, "'%s' is %s: --turns reads JSON lines and Parquet", stream->name, format->title);
    if (format->bid == text_bid) warn_records(stream, options, head);
    SpooledStream *spooled = NULL;
    if (format->needs_seek && !stream->read_at) {
        if (!(spooled = stream_spool(stream))) return -1;
        stream = &spooled->stream;
    }
    *reader = format->open(stream, options);
    if (!*reader) return spooled_close(spooled), -1;
    (*reader)->format = format, (*reader)->spooled = spooled;
    if (format->kind == INPUT_DOCUMENTS) options->inputs_read[format - formats]++;
    return 0;
}

const char *input_format_name(unsigned row) { return row < FORMAT_COUNT ? formats[row].name : NULL; }

int reader_next(FormatReader *reader, Part *part) {
    int status = reader->format->next(reader, part);
    if (status > 0) reader->in_document = !part->last, reader->has_returned = true;
    return status;
}

int reader_skip(FormatReader *reader, const Stream *stream, SourceOptions *options, Part *part) {
    if (reader && reader->has_returned && skips_any_allowed(&options->skips) && !options->skips.over)
        fail_in("the rest of '%s' is not read", stream->name);
    if (skips_add(&options->skips, stream->name, NULL, 0) < 0) return -1;
    if (!reader || !reader->in_document) return 0;
    *part = (Part){.last = true};
    return 1;
}

void reader_close(FormatReader *reader) {
    if (!reader) return;
    SpooledStream *spooled = reader->spooled;
    reader->format->close(reader);
    spooled_close(spooled);
}

int keep_add(SourceOptions *options, size_t number, const char *is, Bytes value, Buffer *row,
             char why[KEEP_WHY_BYTES]) {
    const char *key = options->keep.items[number];
    if (is || value.size > PROVENANCE_VALUE_MAX) {
        const int size = snprintf(why, KEEP_WHY_BYTES, "--keep '%.200s': its value is ", key);
        if (is)
            snprintf(why + size, KEEP_WHY_BYTES - (size_t)size,
                     "%s, and not a text, a number, true or false: write it as a text, or leave this --keep out", is);
        else
            snprintf(why + size, KEEP_WHY_BYTES - (size_t)size, "%zu bytes long, more than %d", value.size,
                     PROVENANCE_VALUE_MAX);
        return -1;
    }
    options->keep_found |= 1u << number;
    provenance_add(row, key, value);
    return 0;
}

int level_check(const Stream *stream, const SourceOptions *options) {
    if (stream->level <= options->max_depth) return 0;
    return fail(EX_DATA, "'%s': containers nested more than %" PRIu64 " deep (--max-depth)", stream->name,
                options->max_depth);
}

int ratio_check(const char *name, const SourceOptions *options, uint64_t in_bytes, uint64_t out_bytes) {
    enum { RATIO_FROM_BYTES = 16 << 20 }; // a small input of zeros is harmless
    if (!options->max_ratio || out_bytes < RATIO_FROM_BYTES || out_bytes / options->max_ratio <= in_bytes) return 0;
    return fail(EX_DATA,
                "'%s': expands to more than %" PRIu64 " times its size, like a decompression bomb (--max-ratio)", name,
                options->max_ratio);
}

int refuse_conditions(const Stream *stream, const SourceOptions *options) {
    if (!options->where.count) return 0;
    return fail(
        EX_DATA,
        "'%s' has neither columns nor keys, so --where '%s' cannot choose its documents: it is for Parquet and JSON "
        "lines",
        stream->name, options->where.items[0]);
}
