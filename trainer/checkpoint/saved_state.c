// The configuration of a run as in its checkpoint, against the present one.
#include "trainer/checkpoint/saved_state.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int saved_file_check(const char *path) {
    struct stat st;
    if (stat(path, &st) < 0) return fail_errno("cannot open '%s'", path);
    // rclone's mounts show the files of a renamed folder as empty for some seconds
    return st.st_size || !S_ISREG(st.st_mode)
               ? 0
               : fail(EX_IO, "'%s' reads as empty, which no save leaves; if it stays so, move its folder away", path);
}

int saved_state_read(SavedState *saved, const char *directory) {
    char path[PATH_MAX_BYTES];
    Buffer text = {0};
    *saved = (SavedState){0};
    int result = saved_file_check(path_join(path, directory, "state.json"));
    if (result == 0) result = file_read(&text, path, 16 << 20);
    if (result == 0 && (result = saved_state_parse(saved, (Bytes){text.data, text.size})) < 0) fail_in("'%s'", path);
    buffer_close(&text);
    return result;
}

// 0 is the vocabulary of GPT-2; another vocabulary can have as many ids.
static const char *value_text(int key, const char *value) {
    if (key != KEY_vocab_size) return value;
    return !strcmp(value, "0") ? "GPT-2's 50257" : !strcmp(value, "50257") ? "50257 of another vocabulary" : value;
}

// Versions before 0.2.0 had one order of sums, and no key for it.
static const char *saved_text(const SavedState *saved, int key) {
    const char *text = json_string_value(json_object_get(saved->config, config_key(key)));
    return text || key != KEY_reduce_order ? text : config_word(key, REDUCE_FAST);
}

typedef struct {
    char now[256], was[256];
} Difference;

// Sets a key to its value in the checkpoint. False: there is none, or none that is read now, which `was` receives.
static bool take_saved(const SavedState *saved, int key, Config *config, char *was, size_t size) {
    const char *text = saved_text(saved, key);
    if (!text && !config_omits_default(key)) return false;
    if (text)
        snprintf(was, size, "%s", text);
    else
        config_default(key, was, size);
    return config_parse(config, key, text ? text : was);
}

// Whether the checkpoint has another value of a key. Older spellings of a word have the same value. A part of a word is
// compared with it, so that the words can be typed.
static bool differs(const SavedState *saved, const Config *config, int key, Difference *found) {
    char of_part[sizeof found->was];
    const int part = config_part(key);
    Config earlier = *config;
    if (config_class(key) == CLASS_PLACE || config_is_part(key)) return false;
    *found->was = 0;
    if (part != KEY_COUNT) (void)take_saved(saved, part, &earlier, of_part, sizeof of_part);
    if (take_saved(saved, key, &earlier, found->was, sizeof found->was))
        config_text(&earlier, key, found->was, sizeof found->was);
    config_text(config, key, found->now, sizeof found->now);
    return *found->was && strcmp(found->was, found->now);
}

bool saved_state_is_of(const SavedState *saved, const Config *config) {
    Difference found;
    for (int key = 0; key < KEY_COUNT; key++) {
        const KeyClass class = config_class(key);
        if ((class == CLASS_MODEL || class == CLASS_OPTION) && differs(saved, config, key, &found)) return false;
    }
    return true;
}

// Lists the different keys of one kind: a resumed run may change them, or they make another run. Returns their number.
static int list_differences(const SavedState *saved, const Config *config, bool may_change, Buffer *out) {
    Difference found;
    int count = 0;
    for (int key = 0; key < KEY_COUNT; key++) {
        if (config_may_change(key) != may_change || !differs(saved, config, key, &found)) continue;
        buffer_print(out, "%s%s is %s, was %s", count++ ? "; " : "", config_key(key), value_text(key, found.now),
                     value_text(key, found.was));
    }
    return count;
}

static void log_changes(const SavedState *saved, const Config *config) {
    Difference found;
    for (int key = 0; key < KEY_COUNT; key++)
        if (config_may_change(key) && differs(saved, config, key, &found))
            log_line("%s is now %s, was %s until step %llu", config_key(key), found.now, found.was,
                     (unsigned long long)saved->state.step);
}

// Another model comes first: with another max_iters the run would still be refused.
int saved_state_compare(const SavedState *saved, const Config *config, const char *path) {
    Buffer other = {0}, changes = {0};
    const unsigned long long step = saved->state.step, last = (unsigned long long)config->max_iters;
    const bool complete = step >= last && !config->eval_only;
    Difference vocabulary;
    int result = 0;
    const int others = list_differences(saved, config, false, &other);
    list_differences(saved, config, true, &changes);
    if (others) // of another vocabulary alone, or of a configuration that was not given
        result = fail(others == 1 && differs(saved, config, KEY_vocab_size, &vocabulary) ? EX_PROTOCOL : EX_USAGE,
                      "the checkpoint '%s' is of another run: %s (another out_dir, or train --fresh, starts a new one)",
                      path, (const char *)other.data);
    else if (complete && step > last)
        result = fail(EX_USAGE, "nothing to do: step %llu of the run in '%s' is beyond max_iters %llu", step,
                      config->out_dir, last);
    else if (complete && changes.size)
        result = fail(EX_USAGE,
                      "the run in '%s' is complete (step %llu of %llu), nothing was trained: %s (raise max_iters to go "
                      "on; another out_dir, or train --fresh, starts a new run)",
                      config->out_dir, step, last, (const char *)changes.data);
    else
        log_changes(saved, config);
    buffer_close(&other), buffer_close(&changes);
    return result;
}

static int64_t saved_int(const SavedState *saved, int key) {
    const char *text = json_string_value(json_object_get(saved->config, config_key(key)));
    return text ? strtoll(text, NULL, 10) : 0;
}

static void saved_value(const SavedState *saved, int key, Config *config) {
    const char *text = saved_text(saved, key);
    if (text) config_parse(config, key, text);
}

void saved_state_settings(const SavedState *saved, Config *config) {
    for (int key = 0; key < KEY_COUNT; key++)
        if (config_has_role(key, ROLE_EVAL)) saved_value(saved, key, config);
}

void saved_state_fill(const SavedState *saved, ConfigReader *reader, const char *origin) {
    for (int key = 0; key < KEY_COUNT; key++) {
        const char *text = saved_text(saved, key);
        if (config_is_set(reader, key) || !text) continue;
        config_parse(&reader->config, key, arena_copy_string(&reader->strings, text)); // which outlives `saved`
        snprintf(reader->origin[key], sizeof reader->origin[key], "%s", origin);
    }
}

void saved_state_resolve_auto(const SavedState *saved, Config *config) {
    int64_t rows = saved_int(saved, KEY_batch_size), micros = saved_int(saved, KEY_gradient_accumulation_steps);
    int64_t asked = config->batch_size.value;
    const bool order_is_auto = config->reduce_order == REDUCE_AUTO;
    if (config->recompute == RECOMPUTE_AUTO) saved_value(saved, KEY_recompute_layers, config);
    for (int key = 0; key < KEY_COUNT; key++)
        if (config_has_role(key, ROLE_CHOSEN) && config_is_default(config, key)) saved_value(saved, key, config);
    if (order_is_auto) {
        if (!json_object_get(saved->config, config_key(KEY_reduce_order)) && config->gradient_accumulation_steps > 1)
            log_line(
                "reduce_order = fast: the run in '%s' began with a version that had no other order; its bits depend "
                "on the number of processes (--reduce_order=fixed changes them from here on)",
                config->out_dir);
        if (config->reduce_order == REDUCE_FIXED && config_spans_machines(config))
            log_line("reduce_order = fixed, as in '%s': the network between machines carries the gradients of each "
                     "micro-batch (--reduce_order=fast once a step, with other bits)",
                     config->out_dir);
    }
    if (!config->batch_size.is_auto || rows * micros != asked * config->gradient_accumulation_steps) return;
    config->eval_tokens = config_eval_tokens(config);
    config->batch_size = (AutoInt){false, rows}, config->gradient_accumulation_steps = micros;
}
