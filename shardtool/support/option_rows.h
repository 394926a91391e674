// Option rows that several commands share, and the variables of the input options.
#pragma once

#include "common/cli/cli.h"
#include "dataset/split.h"
#include "shardtool/ingest/input_format.h"
#include "shardtool/ingest/source.h"
#include "tokenizer/tokenizer.h"

#define DOCS_WORDS         "file|lines|paragraphs" // SourceDocs
#define INVALID_UTF8_WORDS "replace|fail|bytes"    // InvalidUtf8
#define SPLIT_WORDS        "train|val"             // SPLIT_TRAIN, SPLIT_VAL

// The options of every command that reads documents.
extern SourceOptions source_options;
extern InputFilter input_filter;
extern const char input_format_words[];
extern const char *input_max_bad;
// clang-format off
// How files by URL are read.
#define REMOTE_ROWS \
    {OPT_SIZE, "retries", &input_filter.remote.retries, "N", "repeat a failed request for a URL up to N times"}, \
    {OPT_SIZE, "timeout", &input_filter.remote.timeout_s, "S", \
     "repeat a request for a URL after S seconds without a byte"}, \
    {OPT_STRING, "s3-endpoint", &input_filter.remote.s3_endpoint, "URL", \
     "the server of s3:// URLs, as of MinIO; else AWS_ENDPOINT_URL or the server of AWS"}, \
    {OPT_FLAG, "allow-http", &input_filter.remote.allow_http, NULL, "read http:// URLs of other machines, unprotected"}
#define INPUT_ROWS \
    {OPT_STRING, "files-from", &input_filter.files_from, "FILE", \
     "read further INPUT names from FILE, one per line or NUL-separated"}, \
    {OPT_LIST, "include", &input_filter.include, "GLOB", "read only the files in folders and archives that match"}, \
    {OPT_LIST, "exclude", &input_filter.exclude, "GLOB", "leave out the files in folders and archives that match"}, \
    {OPT_WORD, "format", &source_options.format, input_format_words, \
     "format of all inputs, inside archives and compressed files too"}, \
    {OPT_WORD, "docs", &source_options.docs, DOCS_WORDS, "unit of one document in plain text"}, \
    {OPT_STRING, "text-field", &source_options.text_field, "KEY", \
     "key of the text in a JSON line; a.b is that key, or key b of object a"}, \
    {OPT_STRING, "text-column", &source_options.text_column, "NAME", \
     "column of the text in a Parquet file; a.b is column b of struct a"}, \
    {OPT_LIST, "where", &source_options.where, "COND", \
     "read only Parquet rows and JSON lines with 'NAME OP VALUE and ...', OP one of = != < <= > >=; all of several"}, \
    {OPT_STRING, "max-bad", &input_max_bad, "N|P%", "skip up to N bad lines, rows, members and files, each counted as one, or P percent of them and the documents; 100% for all"}, \
    {OPT_SIZE, "max-depth", &source_options.max_depth, "N", "levels of archives and compressed files to open"}, \
    {OPT_SIZE, "max-ratio", &source_options.max_ratio, "N", \
     "refuse inputs that expand more than N times, 0 = no limit"}, \
    REMOTE_ROWS
// Of INPUT_ROWS, those that do nothing but for documents of inputs.
#define INPUT_NAMES "files-from include exclude format docs text-field text-column where max-bad max-depth max-ratio"
// clang-format on

int jobs_check(uint64_t threads);        // the value of -j; 2 when it is too large
int input_check(void);                   // parses the input options; 2 when one is malformed
int input_set_threads(uint64_t threads); // the value of -j, checked
// Appends the input options that determine the documents: ";docs=file;field=text" and more, as one item each.
void input_print_params(Buffer *line);
// A value of them after `before`: control characters and the separators %, & and ; as %XX.
void input_print_param(Buffer *line, const char *before, const char *value);
// Opens the INPUTs, calls `take` to read all documents, and reports the skipped inputs.
int input_read(int count, char **arguments, int (*take)(Source *source));
// Before a command writes the one file `path`: removes the files that killed runs left beside it, .NAME.tmp.PID. 73
// when it exists already, unless `force`, the value of ROW_OVERWRITE.
int overwrite_check(const char *path, bool force);
void log_skips(void);        // warns with the number of skipped inputs and the first of them, if any
int fail_no_documents(void); // 66, with the number of skips
// Warns about `replaced` places that were not UTF-8, if any, in `text_bytes` bytes of text. `where` follows their
// number.
void log_replaced(uint64_t replaced, uint64_t text_bytes, const char *where);

#define ROW_INVALID_UTF8(variable)                                                                                     \
    { OPT_WORD, "invalid-utf8", variable, INVALID_UTF8_WORDS, "bytes that are not UTF-8: U+FFFD, an error, or kept" }
#define ROW_MAX_WORD(variable)                                                                                         \
    { OPT_SIZE, "max-word", variable, "SIZE", "refuse a word (letters, spaces or signs in a row) longer than SIZE" }
#define ROW_JOBS(variable)                                                                                             \
    { OPT_SIZE, "j,jobs", variable, "N", "worker threads, 0 = one per core" }
#define ROW_SPLIT(variable)                                                                                            \
    { OPT_WORD, "split", variable, SPLIT_WORDS, "read this split of a dataset, and not the other" }
#define ROW_OVERWRITE(variable)                                                                                        \
    { OPT_FLAG, "force", variable, NULL, "overwrite an existing file" }
#define ROW_REPLACE(variable)                                                                                          \
    { OPT_FLAG, "force", variable, NULL, "replace a finished dataset" }
#define ROW_END                                                                                                        \
    { OPT_END, NULL, NULL, NULL, NULL }
