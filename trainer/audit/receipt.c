// Receipts of runs. The text is a function of the run and of the ends of its segments, so a check prints it again and
// compares the bytes.
#include "trainer/audit/receipt.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/machine/stop.h"
#include "common/utf8.h"
#include "trainer/audit/replay.h"
#include "trainer/checkpoint/checkpoint.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char root_format[] = "{\"root\": \"%s\"}\n", scratch[] = "scratch";
enum { ROOT_BYTES = sizeof root_format - 1 - 2 + 64, END_BYTES = 310 };

// ---- the text

static void print_object(Buffer *out, json_t *object) {
    char *text = json_dumps(object, 0);
    buffer_print(out, "%s\n", text ? text : "\\u"); // without UTF-8
    free(text);
    json_decref(object);
}

// `before`: the configuration of the process before, which is replaced.
static int print_process(Buffer *out, const Record *record, const RecordLine *line, json_t **before) {
    char version[256];
    uint64_t bits;
    Bytes text;
    const char *key;
    json_t *value, *changed = json_object();
    record_member(line, "config", &text);
    json_t *config = json_loadb((const char *)text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(config))
        fail(EX_DATA, "'%s': the configuration of step %" PRIu64 " is damaged", record->path, line->step);
    json_object_foreach(config, key, value)
        if (!json_equal(json_object_get(*before, key), value)) json_object_set(changed, key, value);
    json_object_foreach(*before, key, value)
        if (!json_object_get(config, key)) json_object_set_new(changed, key, json_null());
    json_decref(*before);
    *before = config;
    if (!record_number(line, "bits", &bits)) bits = 1;
    record_text(line, "version", version, sizeof version);
    print_object(out, json_pack("{s:I, s:s, s:I, s:o}", "step", (json_int_t)line->step, "version", version, "bits",
                                (json_int_t)bits, "config", changed));
    return json_is_object(config) ? 0 : -1;
}

// The lines of datasets, processes, roll-backs and cooldowns. A replay takes the last one of each kind before a step,
// so a line behind those of a later step is refused.
static int print_plan(Buffer *out, const Record *record, uint64_t steps) {
    RecordLine line;
    json_t *config = NULL;
    uint64_t at = 0;
    int found;
    for (Bytes rest = record->text; (found = record_next(record, &rest, &line)) > 0;) {
        if (line.kind == LINE_NOTE) continue;
        if (line.step < at || (line.kind == LINE_STEP && line.step == at)) {
            found = fail(EX_DATA, "'%s': a line of step %" PRIu64 " stands behind others of step %" PRIu64,
                         record->path, line.step, at);
            break;
        }
        at = line.step;
        if (line.step >= steps || line.kind < LINE_DATASET || line.kind == LINE_PASSED) continue;
        if (line.kind == LINE_PROCESS) {
            if ((found = print_process(out, record, &line, &config)) < 0) break;
        } else
            buffer_print(out, "%.*s\n", (int)line.text.size, (const char *)line.text.data);
    }
    json_decref(config);
    return found;
}

static int machine_size(const RunState *state) { return (int)strcspn(state->choices, "\n"); }

// The receipt of a run with this state in a checkpoint.
static int receipt_print(const Receipt *receipt, const Record *record, const RunState *state, Buffer *out) {
    const uint64_t steps = receipt->ends[receipt->segments - 1].step;
    char digits[4][65];
    uint8_t root[32];
    hex_encode(digits[0], state->vocab_fp, 32);
    print_object(out, json_pack("{s:i, s:I, s:s, s:s#, s:I, s:s}", "receipt", 1, "steps", (json_int_t)steps, "initial",
                                receipt->initial, "machine", state->choices, machine_size(state), "chain_rule",
                                (json_int_t)(state->chain_rule ? state->chain_rule : 1), "vocabulary", digits[0]));
    if (print_plan(out, record, steps) < 0) return -1;
    for (const ReceiptEnd *end = receipt->ends; end < receipt->ends + receipt->segments; end++) {
        hex_encode(digits[0], end->link, 32), hex_encode(digits[1], end->weights, 32);
        hex_encode(digits[2], end->state, 32), hex_encode(digits[3], end->lines, 32);
        buffer_print(out,
                     "{\"end\": %" PRIu64 ", \"link\": \"%s\", \"weights\": \"%s\", \"state\": \"%s\", "
                     "\"lines\": \"%s\"}\n",
                     end->step, digits[0], digits[1], digits[2], digits[3]);
    }
    sha256(out->data, out->size, root);
    hex_encode(digits[0], root, 32);
    buffer_print(out, root_format, digits[0]);
    if (!memmem(out->data, out->size, "\\u", 2) && utf8_valid((Bytes){out->data, out->size}) == out->size) return 0;
    return fail(EX_USAGE, "'%s' has a name with control characters or not in UTF-8, and a receipt has none",
                record->path);
}

static bool take_hash(const json_t *object, const char *key, uint8_t hash[32]) {
    const char *digits = json_string_value(json_object_get(object, key));
    return digits && hex_decode(hash, digits, 32) == 0;
}

static bool take_end(const json_t *line, ReceiptEnd *end, uint64_t before) {
    const json_int_t step = json_integer_value(json_object_get(line, "end"));
    end->step = (uint64_t)step;
    return step > 0 && end->step > before && take_hash(line, "link", end->link) &&
           take_hash(line, "weights", end->weights) && take_hash(line, "state", end->state) &&
           take_hash(line, "lines", end->lines);
}

static bool take_initial(const char *text, char initial[65]) {
    uint8_t hash[32];
    if (strcmp(text, scratch) && hex_decode(hash, text, 32) < 0) return false;
    strcpy(initial, text);
    return true;
}

int receipt_parse(Receipt *receipt, Bytes text) {
    char last[ROOT_BYTES + 1], digits[65];
    bool whole = true;
    *receipt = (Receipt){0};
    if (text.size <= ROOT_BYTES || text.size > RECEIPT_BYTES) return fail(EX_DATA, "not a receipt");
    text.size -= ROOT_BYTES;
    sha256(text.data, text.size, receipt->root);
    hex_encode(digits, receipt->root, 32);
    snprintf(last, sizeof last, root_format, digits);
    if (memcmp(text.data + text.size, last, ROOT_BYTES))
        return fail(EX_DATA, "its root is not that of its text: it was changed or cut short");
    for (Bytes line; whole && bytes_next_line(&text, &line);) {
        json_t *json = json_loadb((const char *)line.data, line.size, JSON_REJECT_DUPLICATES, NULL);
        const char *initial = json_string_value(json_object_get(json, "initial"));
        const unsigned i = receipt->segments;
        whole = json;
        if (initial) whole = take_initial(initial, receipt->initial);
        if (json_object_get(json, "end"))
            whole = i < SEGMENTS_MAX && take_end(json, &receipt->ends[i], i ? receipt->ends[i - 1].step : 0),
            receipt->segments++;
        json_decref(json);
    }
    if (whole && receipt->segments) return 0;
    return fail(EX_DATA, "a line is no JSON, or no end of a segment");
}

// ---- what the run has

static int add_file(Sha256 *sha, const char *directory, const char *name) {
    char path[PATH_MAX_BYTES];
    Bytes map;
    if (file_map(&map, path_join(path, directory, "%s", name)) < 0) return -1;
    sha256_add(sha, map.data, map.size);
    file_unmap(&map);
    return 0;
}

static int read_initial(const RunState *state, char initial[65]) {
    uint8_t hash[32];
    Sha256 sha;
    strcpy(initial, scratch);
    if (!*state->init_from) return 0;
    sha256_open(&sha);
    const int result = add_file(&sha, state->init_from, "model.safetensors");
    sha256_close(&sha, hash);
    hex_encode(initial, hash, 32);
    return result;
}

static int hash_lines(const Record *record, uint64_t from, uint64_t last, uint8_t hash[32]) {
    RecordLine line;
    Buffer text = {0};
    uint64_t step = from;
    bool begun = !from;
    int found;
    for (Bytes rest = record->text; (found = record_next(record, &rest, &line)) > 0;) {
        const bool plans = line.kind > LINE_SPIKE && line.kind < LINE_NOTE;
        if (line.step > last || (line.step == last && plans)) break;
        begun = begun || line.step > from || (line.step == from && plans);
        if (!begun || line.kind > LINE_PASSED) continue;
        if (line.kind == LINE_STEP && line.step > step + 1) break;
        if (line.kind == LINE_STEP) step = line.step;
        record_print_compared(&text, &line);
    }
    if (found >= 0 && step != last) found = fail(EX_NOINPUT, "'%s' lacks step %" PRIu64, record->path, step + 1);
    sha256(text.data, text.size, hash);
    buffer_close(&text);
    return found < 0 ? -1 : 0;
}

// The end of a segment, from a checkpoint, every byte of which is checked. Its lines are not read.
static int read_end(ReceiptEnd *end, const char *run, RunState *state) {
    char path[PATH_MAX_BYTES];
    Sha256 weights, rest;
    if (checkpoint_of_step(run, end->step, path, state) < 0) return -1;
    memcpy(end->link, state->chain, 32);
    sha256_open(&weights), sha256_open(&rest);
    const bool read = add_file(&weights, path, "model.safetensors") == 0 &&
                      add_file(&rest, path, "optimizer.safetensors") == 0 && add_file(&rest, path, "state.json") == 0;
    sha256_close(&weights, end->weights), sha256_close(&rest, end->state);
    return read ? 0 : -1;
}

// ---- writing

static int same_machine(uint64_t step, const char *name, const char *before) {
    if (!*name || !*before || !strcmp(name, before)) return 0;
    return fail(EX_USAGE, "step %" PRIu64 " was computed on '%s', and earlier ones on '%s': a receipt has one machine",
                step, name, before);
}

// Whether this program, in one process, can compute the steps again.
static int check_processes(const Record *record, uint64_t steps) {
    static const char fixed[] = "\"reduce_order\": \"fixed\"";
    char before[CHOICES_BYTES] = "", name[CHOICES_BYTES];
    RecordLine line;
    int found;
    for (Bytes rest = record->text; (found = record_next(record, &rest, &line)) > 0;) {
        if (line.kind != LINE_PROCESS || line.step >= steps) continue;
        record_text(&line, "machine", name, sizeof name);
        if (replay_check_process(&line, !memmem(line.text.data, line.text.size, fixed, sizeof fixed - 1)) < 0 ||
            same_machine(line.step + 1, name, before) < 0)
            return -1;
        strcpy(before, name);
    }
    return found;
}

// Warns of each change within a segment behind which no replay goes on.
static int warn_of_changes(const Receipt *receipt, const Record *record) {
    const ReceiptEnd *end = receipt->ends;
    RecordLine line, before = {0}, process = {0};
    int found;
    for (Bytes rest = record->text; (found = record_next(record, &rest, &line)) > 0;) {
        if (line.kind == LINE_PROCESS) process = line;
        if (line.kind != LINE_STEP || process.text.data == before.text.data) continue;
        while (line.step > end->step)
            if (++end == receipt->ends + receipt->segments) return 0;
        const uint64_t from = end > receipt->ends ? end[-1].step : 0;
        if (line.step > from + 1 && replay_check_change(record, &before, &process) < 0) {
            log_warn("nobody can check segment %d, steps %" PRIu64 " to %" PRIu64
                     ": %s; keep the checkpoint of a step with such a change",
                     (int)(end - receipt->ends) + 1, from + 1, end->step, err_text());
            err_clear();
        }
        before = process;
    }
    return found;
}

// Of the checkpoints of the run `count`, at equal distances.
static int read_ends(Receipt *receipt, const Record *record, const char *run, const uint64_t *steps, size_t all,
                     unsigned count, RunState *state) {
    char machine[CHOICES_BYTES] = "";
    receipt->segments = count;
    for (unsigned i = 0; i < count; i++) {
        ReceiptEnd *end = &receipt->ends[i];
        end->step = steps[all - (i + 1) * all / count]; // the newest is first
        if (read_end(end, run, state) < 0 || hash_lines(record, i ? end[-1].step : 0, end->step, end->lines) < 0 ||
            replay_check_link(record, end->step, end->link) < 0)
            return -1;
        state->choices[machine_size(state)] = 0;
        if (same_machine(end->step, state->choices, machine) < 0) return -1;
        strcpy(machine, state->choices);
    }
    return read_initial(state, receipt->initial);
}

static int write_receipt(const char *path, const char *run, const Record *record, const uint64_t *steps, size_t all) {
    Receipt receipt;
    RunState state;
    Buffer text = {0};
    unsigned count = all < SEGMENTS_MAX ? (unsigned)all : SEGMENTS_MAX;
    int result = check_processes(record, *steps);
    while (result == 0) {
        text.size = 0;
        result = read_ends(&receipt, record, run, steps, all, count, &state);
        if (result == 0) result = receipt_print(&receipt, record, &state, &text);
        if (result < 0 || text.size <= RECEIPT_BYTES) break;
        const size_t fewer = (text.size - RECEIPT_BYTES) / END_BYTES + 1;
        if (fewer >= count) {
            result = fail(EX_USAGE, "a receipt has at most %d bytes: the settings or data of '%s' change too often",
                          (int)RECEIPT_BYTES, run);
            break;
        }
        count -= (unsigned)fewer;
    }
    if (result == 0) result = warn_of_changes(&receipt, record);
    if (result == 0) result = file_write(path, (Bytes){text.data, text.size});
    if (result == 0) printf("%" PRIu64 " steps in %u segment%s\n", receipt.ends[count - 1].step, count, PLURAL(count));
    buffer_close(&text);
    return result;
}

int receipt_write(const char *path, const char *run) {
    Record record;
    uint64_t *steps = NULL, step = UINT64_MAX;
    size_t all = 0;
    if (access(path, F_OK) == 0) return fail(EX_CREATE, "'%s' exists: remove it, or choose another name", path);
    int result = record_open(&record, run);
    for (; result == 0 && checkpoint_up_to(run, step, &step) && step; step--)
        if (!checkpoint_is_remnant(run, step)) steps = array_grow(steps, all, sizeof *steps), steps[all++] = step;
    if (result == 0 && !all)
        result = fail(EX_NOINPUT, "'%s' has no checkpoint: a receipt is of the steps between checkpoints", run);
    if (result == 0) result = write_receipt(path, run, &record, steps, all);
    record_close(&record);
    free(steps);
    return result;
}

// ---- checking

typedef struct {
    Receipt receipt;
    Buffer text;
    Record record;
    const char *directory;
    int path_count;
    char **paths;
} ReceiptCheck;

// Every byte of the receipt is what this run has.
static int compare_text(const ReceiptCheck *check, const RunState *state) {
    Buffer own = {0};
    const Bytes given = {check->text.data, check->text.size};
    int result = receipt_print(&check->receipt, &check->record, state, &own), number = 0;
    Bytes left = given, right = {own.data, own.size}, a, b = {0};
    while (result == 0 && bytes_next_line(&left, &a)) {
        number++;
        if (bytes_next_line(&right, &b) && a.size == b.size && !memcmp(a.data, b.data, a.size)) continue;
        size_t lines[2] = {0, 0};
        for (size_t i = 0; i < given.size; i++) lines[0] += given.data[i] == '\n';
        for (size_t i = 0; i < own.size; i++) lines[1] += own.data[i] == '\n';
        if (lines[1] < lines[0])
            result = fail(EX_NOINPUT, "'%s' lacks a line of the receipt: %.*s", check->record.path,
                          (int)(a.size < 80 ? a.size : 80), (const char *)a.data);
        else
            result = fail(EX_DATA, "line %d of the receipt is not that of the run, %.*s", number,
                          (int)(b.size < 200 ? b.size : 200), (const char *)b.data);
    }
    buffer_close(&own);
    return result;
}

// The files of an end of the receipt. `state` is that of its checkpoint.
static int compare_end(const ReceiptCheck *check, const ReceiptEnd *end, RunState *state) {
    ReceiptEnd here = {.step = end->step};
    if (read_end(&here, check->directory, state) < 0) return -1;
    const char *which = memcmp(here.weights, end->weights, 32) ? "model.safetensors"
                        : memcmp(here.state, end->state, 32)   ? "optimizer.safetensors or state.json"
                        : memcmp(here.link, end->link, 32)     ? "the link"
                                                               : NULL;
    return which ? fail(EX_NO, "step %" PRIu64 ": %s of the checkpoint is not that of the receipt", end->step, which)
                 : 0;
}

static int compare_initial(const ReceiptCheck *check, const RunState *state, bool begins) {
    const char *claimed = check->receipt.initial;
    char initial[65];
    if (begins && read_initial(state, initial) < 0) return -1;
    if (begins ? !strcmp(initial, claimed) : !*state->init_from == !strcmp(claimed, scratch)) return 0;
    return fail(EX_NO, "the run began from '%s', which is not the initial model of the receipt",
                *state->init_from ? state->init_from : scratch);
}

static int check_segment(const ReceiptCheck *check, const ReceiptEnd *end, uint64_t from) {
    RunState state;
    uint8_t lines[32];
    if ((from && compare_end(check, end - 1, &state) < 0) || compare_end(check, end, &state) < 0 ||
        compare_initial(check, &state, !from) < 0 || compare_text(check, &state) < 0 ||
        hash_lines(&check->record, from, end->step, lines) < 0)
        return -1;
    if (memcmp(lines, end->lines, 32))
        return fail(EX_NO, "a line of '%s' is not that of the receipt", check->record.path);
    ReplayResult result = {.first = from + 1, .last = end->step, .segment = true};
    ConfigReader reader;
    int status = config_read(&reader, 0, NULL);
    if (status == 0) status = replay(&result, check->directory, &reader, check->path_count, check->paths);
    config_close(&reader);
    if (status < 0) return -1;
    if (result.from == from && result.compared == end->step && !memcmp(result.link, end->link, 32)) return 0;
    return fail(EX_NO, "step %" PRIu64 ": the computed state is not that of the checkpoint", end->step);
}

typedef struct {
    uint8_t hash[32];
    unsigned number;
} DrawnSegment;

static int by_hash(const void *a, const void *b) { return memcmp(a, b, 32); }
static int by_number(const void *a, const void *b) {
    return (int)((const DrawnSegment *)a)->number - (int)((const DrawnSegment *)b)->number;
}

static void draw(const Receipt *receipt, unsigned count, uint64_t seed, DrawnSegment drawn[SEGMENTS_MAX]) {
    char root[65], text[160];
    hex_encode(root, receipt->root, 32);
    for (unsigned i = 0; i < receipt->segments; i++) {
        drawn[i].number = i + 1;
        sha256(text, (size_t)snprintf(text, sizeof text, "draw %s %" PRIu64 " %u", root, seed, i + 1), drawn[i].hash);
    }
    qsort(drawn, receipt->segments, sizeof *drawn, by_hash);
    qsort(drawn, count, sizeof *drawn, by_number);
}

// The chance that `count` of `all` segments hold none of the forged ones.
static void print_chances(unsigned all, unsigned count) {
    printf("chance to miss forged segments:");
    for (unsigned forged = 1; forged <= all; forged *= 2) {
        double chance = 1;
        for (unsigned i = 0; i < count; i++) chance *= i + forged < all ? (double)(all - forged - i) / (all - i) : 0;
        printf("%s %u of %u: %.4g", forged > 1 ? "," : "", forged, all, chance);
    }
    printf("\nnot computed: grades by items, samples and times\n");
}

static int check_segments(const ReceiptCheck *check, unsigned count, uint64_t seed) {
    const Receipt *receipt = &check->receipt;
    DrawnSegment drawn[SEGMENTS_MAX];
    unsigned refused = 0, unknown = 0;
    int code = 0;
    draw(receipt, count, seed, drawn);
    for (unsigned i = 0; i < count && !stop_requested; i++) {
        const ReceiptEnd *end = &receipt->ends[drawn[i].number - 1];
        const uint64_t from = drawn[i].number > 1 ? end[-1].step : 0;
        const int status = check_segment(check, end, from);
        if (stop_requested) break;
        const bool differs = err_code() == EX_NO || err_code() == EX_DATA;
        printf("segment %u of %u, steps %" PRIu64 " to %" PRIu64 ": %s%s%s\n", drawn[i].number, receipt->segments,
               from + 1, end->step,
               status == 0 ? "accepted"
               : differs   ? "refused"
                           : "not checked",
               status == 0 ? "" : ": ", status == 0 ? "" : err_text());
        if (status == 0) continue;
        refused += differs, unknown += !differs;
        code = code ? code : err_code();
        err_clear();
    }
    if (stop_requested) return fail(EX_AGAIN, "stopped before all segments were checked");
    if (refused) return fail(EX_DATA, "%u of %u segments are refused", refused, count);
    if (count > unknown) print_chances(receipt->segments, count - unknown);
    return unknown ? fail(code, "%u of %u segments could not be checked here", unknown, count) : 0;
}

int receipt_check(const char *path, const char *directory, uint64_t count, uint64_t seed, int path_count,
                  char **paths) {
    ReceiptCheck check = {.directory = directory, .path_count = path_count, .paths = paths};
    const Receipt *receipt = &check.receipt;
    int result = file_read(&check.text, path, RECEIPT_BYTES);
    if (result == 0 && (result = receipt_parse(&check.receipt, (Bytes){check.text.data, check.text.size})) < 0)
        fail_in("'%s'", path);
    if (result == 0 && count > receipt->segments)
        result = fail(EX_USAGE, "--segments is %" PRIu64 ", and the receipt has %u", count, receipt->segments);
    if (result == 0) result = record_open(&check.record, directory);
    if (result == 0) result = check_segments(&check, count ? (unsigned)count : receipt->segments, seed);
    record_close(&check.record);
    buffer_close(&check.text);
    return result;
}
