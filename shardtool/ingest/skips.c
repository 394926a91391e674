// Counts and lists the skipped inputs: one JSON object per line, {"input", "line", "error"}.
#include "shardtool/ingest/skips.h"
#include "common/err.h"
#include "common/json_write.h"
#include "common/log.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SHARE_FROM_SKIPS = 1000, // a run ends early above the share once so many were skipped
    LIST_BYTES_MAX = 1 << 30
};

int skips_parse_limit(Skips *skips, const char *text) {
    char *end;
    double number = strtod(text, &end);
    bool share = *end == '%';
    if (end == text || end[share] || !isfinite(number) || number < 0 || (share && number > 100) ||
        (!share && (number >= 0x1p63 || number != floor(number))))
        return fail(EX_USAGE, "--max-bad '%s' is neither a number nor a percentage such as 0.1%%", text);
    skips->max = share ? 0 : (uint64_t)number;
    skips->max_share = share ? number / 100 : 0;
    return 0;
}

static uint64_t bad_count(const Skips *skips) { return skips->count - skips->nulls; }

static bool is_above_share(const Skips *skips) {
    return (double)bad_count(skips) > skips->max_share * (double)(skips->documents + bad_count(skips));
}

static bool is_allowed(const Skips *skips) {
    if (skips->max_share > 0) return bad_count(skips) < SHARE_FROM_SKIPS || !is_above_share(skips);
    return bad_count(skips) < skips->max;
}

bool skips_any_allowed(const Skips *skips) { return skips->max_share > 0 || skips->max; }

static int open_list(Skips *skips) {
    if (skips->file.temp[0]) return 0;
    Buffer lines = {0};
    int status = newfile_open(&skips->file, skips->path);
    if (status == 0 && skips->base) status = file_read(&lines, skips->base, LIST_BYTES_MAX);
    if (status == 0 && lines.size) status = newfile_write(&skips->file, lines.data, lines.size);
    buffer_close(&lines);
    return status;
}

static int list(Skips *skips, const char *name, const char *unit, uint64_t number) {
    if (!skips->path) return 0;
    Buffer line = {0};
    buffer_print(&line, "{\"input\":");
    json_add_string(&line, name);
    if (unit) buffer_print(&line, ",\"%s\":%" PRIu64, unit, number);
    buffer_print(&line, ",\"error\":");
    json_add_string(&line, err_text());
    buffer_print(&line, "}\n");
    err_clear();
    int status = open_list(skips);
    if (status == 0) status = newfile_write(&skips->file, line.data, line.size);
    buffer_close(&line);
    return status;
}

static int skip(Skips *skips, const char *name, const char *unit, uint64_t number) {
    if (!skips->count++) snprintf(skips->first, sizeof skips->first, "%s", err_text());
    int status = list(skips, name, unit, number);
    if (status == 0) err_clear();
    return status;
}

int skips_add(Skips *skips, const char *name, const char *unit, uint64_t number) {
    int code = err_code();
    if ((code != EX_DATA && code != EX_NOINPUT && code != EX_PERMISSION) || skips->over) return -1;
    skips->over = !is_allowed(skips);
    if (skips->over)
        return skips->max ? fail_in("more than --max-bad %" PRIu64 " bad lines, rows, members and files", skips->max)
                          : -1;
    return skip(skips, name, unit, number);
}

int skips_add_null(Skips *skips, const char *name, const char *unit, uint64_t number) {
    fail(EX_DATA, "'%s' %s %" PRIu64 ": its text is null", name, unit, number);
    skips->nulls++;
    return skip(skips, name, unit, number);
}

void skips_print(const Skips *skips, Buffer *text) {
    const uint64_t bad = bad_count(skips), nulls = skips->nulls;
    if (bad) buffer_print(text, "%" PRIu64 " bad input%s%s", bad, PLURAL(bad), nulls ? " and " : "");
    if (nulls) buffer_print(text, "%" PRIu64 " null text%s", nulls, PLURAL(nulls));
    buffer_print(text, ", the first: %s", skips->first);
    buffer_add(text, "", 1);
}

int skips_finish(Skips *skips) {
    if (skips->max_share > 0 && bad_count(skips) && is_above_share(skips))
        return fail(EX_DATA,
                    "%" PRIu64 " bad lines, rows, members and files beside %" PRIu64
                    " documents, more than --max-bad %g%%; the first: %s",
                    bad_count(skips), skips->documents, 100 * skips->max_share, skips->first);
    if (skips->base && open_list(skips) < 0) return -1;
    return skips->file.temp[0] ? newfile_commit(&skips->file) : 0;
}

void skips_abandon(Skips *skips) { newfile_abandon(&skips->file); }
