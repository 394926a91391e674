// The variables that the shared option rows set.
#include "shardtool/support/option_rows.h"
#include "common/err.h"
#include "common/log.h"
#include "shardtool/where/where.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SourceOptions source_options = {.text_field = "text", .text_column = "text", .max_depth = 3, .max_ratio = 1000};

// The documents rows of the table: containers are always detected.
#define WORD_INPUT_CONTAINER(name) ""
#define WORD_INPUT_DOCUMENTS(name) "|" #name
const char input_format_words[] = "auto"
#define INPUT_FORMAT(name, title, extensions, kind, needs_seek) WORD_##kind(name)
#include "shardtool/ingest/input_formats.def"
#undef INPUT_FORMAT
    ;

InputFilter input_filter = {.remote = {.retries = 8, .timeout_s = 30}};
const char *input_max_bad = "0";

void log_skips(void) {
    Buffer text = {0};
    if (source_options.about > 1)
        log_warn("left out %" PRIu64 " files named README.md, LICENSE or dataset_infos.json", source_options.about);
    if (!source_options.skips.count) return;
    skips_print(&source_options.skips, &text);
    log_warn("skipped %s", (const char *)text.data);
    buffer_close(&text);
}

int fail_no_documents(void) {
    Buffer text = {0};
    if (source_options.left_out && !source_options.skips.count)
        return fail(EX_NOINPUT, "none of the %" PRIu64 " documents meets --where '%s'%s", source_options.left_out,
                    source_options.where.items[0], source_options.where.count > 1 ? " and the other conditions" : "");
    if (!source_options.skips.count) return fail(EX_NOINPUT, "the inputs contain no documents");
    skips_print(&source_options.skips, &text);
    fail(EX_NOINPUT, "the inputs contain no documents; skipped %s", (const char *)text.data);
    buffer_close(&text);
    return -1;
}

int jobs_check(uint64_t threads) {
    return threads <= 1024 ? 0 : fail(EX_USAGE, "-j %" PRIu64 " is above the limit of 1024", threads);
}

int input_set_threads(uint64_t threads) {
    if (jobs_check(threads) < 0) return -1;
    source_options.threads = (unsigned)threads;
    return 0;
}

int input_read(int count, char **arguments, int (*take)(Source *source)) {
    Inputs inputs;
    if (input_check() < 0 || inputs_open(&inputs, count, arguments, &input_filter) < 0) return -1;
    Source *source = source_open(&inputs, &source_options);
    int status = take(source);
    if (status == 0) status = skips_finish(&source_options.skips);
    if (status == 0) log_skips();
    source_close(source);
    inputs_close(&inputs);
    return status;
}

int overwrite_check(const char *path, bool force) {
    char directory[PATH_MAX_BYTES];
    if (!force && access(path, F_OK) == 0) return fail(EX_CREATE, "'%s' exists; --force overwrites it", path);
    const char *name = path_split(path, directory);
    dir_sweep(directory, name);
    return 0;
}

void log_replaced(uint64_t replaced, uint64_t text_bytes, const char *where) {
    if (!replaced) return;
    log_warn("replaced invalid UTF-8 by U+FFFD in %" PRIu64 " place%s%s%s", replaced, PLURAL(replaced), where,
             replaced > text_bytes / 100
                 ? ", more than 1 % of the text: if it is in another encoding, convert it with iconv first"
                 : "");
}

int input_check(void) {
    if (skips_parse_limit(&source_options.skips, input_max_bad) < 0) return -1;
    WhereList conditions;
    return where_parse(&conditions, &source_options.where);
}

void input_print_param(Buffer *line, const char *before, const char *value) {
    buffer_print(line, "%s", before);
    for (const char *at = value; *at; at++) {
        const unsigned char c = (unsigned char)*at;
        buffer_print(line, c < ' ' || c == 0x7f || strchr("%&;", c) ? "%%%02X" : "%c", c);
    }
}

void input_print_params(Buffer *line) {
    char docs[16], format[16];
    word_print(DOCS_WORDS, source_options.docs, docs, sizeof docs);
    word_print(input_format_words, source_options.format, format, sizeof format);
    buffer_print(line, ";docs=%s", docs);
    input_print_param(line, ";field=", source_options.text_field);
    // Only if they are not the default, so that datasets made before these options existed keep their fingerprint.
    if (strcmp(format, "auto") != 0) buffer_print(line, ";format=%s", format);
    if (strcmp(source_options.text_column, "text") != 0)
        input_print_param(line, ";column=", source_options.text_column);
    for (size_t i = 0; i < source_options.where.count; i++)
        input_print_param(line, i ? "&" : ";where=", source_options.where.items[i]);
    for (size_t i = 0; i < source_options.keep.count; i++)
        input_print_param(line, i ? "&" : ";keep=", source_options.keep.items[i]);
}
