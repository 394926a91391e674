// A replay of steps: the results that the engine computes again are compared with the record.
#include "trainer/audit/replay.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/machine/stop.h"
#include "dataset/dataset.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/engine/engine_data.h"
#include "trainer/engine/steps.h"
#include "trainer/setup/vocabulary.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    Engine engine;
    Record record;
    DatasetUse dataset;          // of the first step
    uint64_t from;               // the checkpoint that it begins with; 0: the initial weights
    Bytes rest;                  // lines that are not compared yet
    char machine[CHOICES_BYTES]; // what computed the present step
    bool segment;                // of a receipt
    bool differs, bad;           // bad: an error is pending since a line was compared
    uint64_t last;               // the last step that is replayed
    uint64_t compared;           // the last step of a checkpoint that was compared
    uint64_t awaited;            // or that was not saved before the step's evaluation or the samples that were passed
    unsigned checkpoints;
    int path_count; // datasets that the user names
    char **paths;
} Replay;

static const char *text_of(Bytes text, char out[96]) {
    snprintf(out, 96, "%.*s", (int)(text.size < 90 ? text.size : 90), (const char *)text.data);
    return text.size ? out : "missing";
}

// ---- the lines of the record that no replay writes

// Without keys that no run writes, such as `loader`, which would send the data of a stranger.
static json_t *config_of(const Record *record, const RecordLine *line) {
    Bytes text;
    const char *name;
    json_t *value;
    record_member(line, "config", &text);
    json_t *config = json_loadb((const char *)text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
    run_state_upgrade(config);
    bool whole = json_is_object(config);
    json_object_foreach(config, name, value) {
        const int key = config_find_key(name);
        whole = whole && key < KEY_COUNT && config_class(key) != CLASS_PLACE && json_is_string(value);
    }
    if (whole) return config;
    json_decref(config);
    fail(EX_DATA, "'%s': the configuration of step %" PRIu64 " is damaged, or has a key that no run writes",
         record->path, line->step);
    return NULL;
}

// Whether a run writes the present value of a key as this text.
static bool is_written(const Config *config, int key, const char *text) {
    char now[256];
    config_value(config, key, now, sizeof now);
    return !strcmp(now, text);
}

// Whether the configuration has every key of the record, as a run writes it.
static int check_config(const Record *record, const ConfigReader *reader, json_t *keys) {
    const Config *config = &reader->config;
    const char *name;
    json_t *value;
    json_object_foreach(keys, name, value) {
        const int key = config_find_key(name);
        if (is_written(config, key, json_string_value(value))) continue;
        if (strcmp(reader->origin[key], record->path))
            return fail(EX_USAGE, "%s: the run has %s=%.80s: a replay takes it from the record", reader->origin[key],
                        name, json_string_value(value));
        return fail(EX_DATA, "'%s': its configuration has %s=%.80s, which this replay has not", record->path, name,
                    json_string_value(value));
    }
    int result = 0;
    json_t *own = run_state_config(config);
    json_object_foreach(own, name, value) {
        const char *origin = reader->origin[config_find_key(name)];
        if (json_object_get(keys, name) || !config_is_set(reader, config_find_key(name)) || result < 0) continue;
        result = fail(EX_USAGE, "%s: the run has no %s: a replay takes it from the record", origin, name);
    }
    json_decref(own);
    return result;
}

// The run continues with other values of some keys. -1 (2) if a key of the memory plan changes.
static int change_config(Config *config, const Record *record, const RecordLine *line) {
    json_t *keys = config_of(record, line);
    if (!keys) return -1;
    run_state_add_defaults(keys);
    int result = 0;
    for (int key = 0; key < KEY_COUNT && result == 0; key++) {
        const char *name = config_key(key), *then = json_string_value(json_object_get(keys, name));
        char now[256];
        config_value(config, key, now, sizeof now);
        if (config_class(key) == CLASS_PLACE || (then && !strcmp(now, then))) continue;
        if (!then)
            result =
                fail(EX_DATA, "'%s': the configuration of step %" PRIu64 " has no %s", record->path, line->step, name);
        else if ((!config_may_change(key) || config_has_role(key, ROLE_PLAN)) && !config_is_idle(config, key))
            result =
                fail(EX_USAGE, "after step %" PRIu64 " the run has %s=%s, before it %s", line->step, name, then, now);
        else if (!config_parse(config, key, then) || !is_written(config, key, then))
            result = fail(EX_DATA, "'%s': %s cannot be %s", record->path, name, then);
    }
    json_decref(keys);
    return result;
}

// Whether one process adds the gradients as the run's processes did.
static int check_order(const RecordLine *process, bool fast) {
    uint64_t world;
    if (!record_number(process, "world", &world) || world < 2 || !fast) return 0;
    return fail(EX_USAGE,
                "a run with reduce_order=fast and %" PRIu64
                " processes cannot be recomputed bit for bit by one process: "
                "use reduce_order=fixed where a replay is wanted",
                world);
}

// Whether this program computes the bits of a process of the run.
static int check_bits(const RecordLine *process) {
    uint64_t bits;
    char program[64] = "";
    if (!record_number(process, "bits", &bits)) bits = 1;
    record_text(process, "version", program, sizeof program);
    if (bits == BITS) return 0;
    return fail(
        EX_USAGE,
        "the steps after step %" PRIu64 " were computed by version %" PRIu64
        " of the arithmetic, and this program has version %d: replay them with the program of the run, millrace "
        "%s",
        process->step, bits, BITS, program);
}

// What computed the steps after this line. Earlier versions did not write it. A receipt names that of the checkpoints.
static void take_machine(Replay *replay, const RecordLine *process) {
    char name[sizeof replay->machine];
    if (!replay->segment && record_text(process, "machine", name, sizeof name)) strcpy(replay->machine, name);
}

int replay_check_process(const RecordLine *process, bool fast) {
    return check_bits(process) < 0 ? -1 : check_order(process, fast);
}

int replay_check_change(const Record *record, const RecordLine *before, const RecordLine *process) {
    ConfigReader reader;
    SavedState keys = {.config = config_of(record, before)};
    config_open(&reader);
    if (keys.config) saved_state_fill(&keys, &reader, record->path);
    const int result = keys.config ? change_config(&reader.config, record, process) : -1;
    saved_state_close(&keys);
    config_close(&reader);
    return result;
}

// A replay has one plan, so it ends where a key of the plan changes. The steps before can be replayed, and in another
// replay the steps after the oldest later checkpoint.
static int fail_changed(const Replay *replay, uint64_t step) {
    uint64_t oldest = replay->record.last_step, found;
    char later[80] = "; the later steps cannot be replayed: no checkpoint is left";
    Error error;
    err_take(&error);
    for (uint64_t most = oldest - 1;
         most && checkpoint_up_to(replay->engine.config.out_dir, most, &found) && found >= step;)
        oldest = found, most = found - 1;
    if (oldest < replay->record.last_step)
        snprintf(later, sizeof later, ", and those from %" PRIu64 " on, apart", oldest + 1);
    return fail(EX_USAGE, "%s: replay the steps up to it%s", error.text, later);
}

static int change_process(Replay *replay, const RecordLine *line) {
    Config *config = &replay->engine.config;
    if (check_bits(line) < 0) return -1;
    if (change_config(config, &replay->record, line) < 0)
        return err_code() == EX_USAGE ? fail_changed(replay, line->step) : -1;
    if (check_order(line, config->reduce_order == REDUCE_FAST) < 0) return -1;
    take_machine(replay, line);
    return 0;
}

static int roll_back(Replay *replay, const RecordLine *line) {
    RunState *state = &replay->engine.state;
    uint64_t nonfinite, from, to;
    if (!record_number(line, "nonfinite", &nonfinite) || !record_number(line, "skip_from", &from) ||
        !record_number(line, "skip_to", &to))
        return fail(EX_DATA, "'%s': the roll-back to step %" PRIu64 " is damaged", replay->record.path, line->step);
    loss_scaler_init(&state->scaler, dtype_is_narrow(replay->engine.backend->act_type));
    state->rolled_back = true, state->nonfinite = nonfinite, state->nonfinite_streak = 0;
    state->skip_from = from, state->skip_to = to;
    return 0;
}

static int cool_down(Replay *replay, const RecordLine *line) {
    Cooldown *cooldown = &replay->engine.state.cooldown;
    char done[32];
    Bytes text;
    cooldown->from = line->step;
    if (!record_number(line, "cooldown_begun", &cooldown->begun) ||
        !record_number(line, "cooldown_steps", &cooldown->steps) || schedule_ends_uncooled(cooldown) ||
        !record_member(line, "cooldown_done", &text) || text.size >= sizeof done)
        return fail(EX_DATA, "'%s': the cooldown of step %" PRIu64 " is damaged", replay->record.path, line->step);
    snprintf(done, sizeof done, "%.*s", (int)text.size, (const char *)text.data);
    cooldown->done = strtod(done, NULL);
    cooldown->at_once = record_member(line, "at_once", &text) && *text.data == 't'; // true
    return 0;
}

// Whether the run began again where the process of `step` began, of which no step was kept. rest: the lines after it.
static bool is_replaced(const Replay *replay, Bytes rest, uint64_t step) {
    RecordLine line;
    while (record_next(&replay->record, &rest, &line) > 0 && line.kind > LINE_PASSED)
        if (line.kind == LINE_PROCESS) return line.step == step;
    return false;
}

// Takes the lines up to the next one that is compared: 1 with that line, which stays in the rest, 0 at the end of the
// steps that are replayed.
static int next_compared(Replay *replay, RecordLine *line) {
    for (Bytes rest = replay->rest;;) {
        const int found = record_next(&replay->record, &rest, line);
        if (found > 0 && line->step > replay->last && replay->last < replay->record.last_step) return 0;
        if (found <= 0 || line->kind <= LINE_PASSED) return found;
        if (line->step > replay->engine.state.step)
            return fail(EX_NOINPUT, "'%s' lacks step %" PRIu64, replay->record.path, replay->engine.state.step + 1);
        if (line->step < replay->engine.state.step)
            return fail(EX_DATA, "'%s': a line of step %" PRIu64 " stands behind step %" PRIu64, replay->record.path,
                        line->step, replay->engine.state.step);
        if (line->kind == LINE_PROCESS && replay->engine.feed && !is_replaced(replay, rest, line->step) &&
            change_process(replay, line) < 0) {
            if (line->step < replay->last || err_code() != EX_USAGE) return -1;
            err_clear();
            return 0; // of steps that are not replayed
        }
        if (line->kind == LINE_ROLLED_BACK && roll_back(replay, line) < 0) return -1;
        if (line->kind == LINE_COOLDOWN && cool_down(replay, line) < 0) return -1;
        replay->rest = rest;
    }
}

// ---- comparing

static void say_difference(Replay *replay, const RecordLine *given, const LineDifference *difference) {
    char recorded[96], computed[96];
    replay->differs = true;
    fail(EX_NO, "step %" PRIu64 ": %.*s is %s in '%s', and %s when it is computed again", given->step,
         (int)difference->key.size, (const char *)difference->key.data, text_of(difference->recorded, recorded),
         replay->record.path, text_of(difference->given, computed));
}

static void compare_line(Replay *replay, Bytes text) {
    RecordLine given, recorded;
    LineDifference difference;
    if (record_parse(&given, text) < 0)
        die(EX_BUG, "a line that no record has: %.*s", (int)text.size, (const char *)text.data);
    const int found = next_compared(replay, &recorded);
    replay->bad = found < 0;
    if (found < 0) return;
    if (!found || recorded.step != given.step || recorded.kind != given.kind) {
        char line[96] = "", computed[96];
        replay->differs = true;
        fail(EX_NO, "step %" PRIu64 ": '%s' has %s, where the run has %s", given.step, replay->record.path,
             found ? text_of(recorded.text, line) : "no more line", text_of(given.text, computed));
        return;
    }
    if (!record_same(&recorded, &given, &difference)) return say_difference(replay, &given, &difference);
    replay->rest.size -= (size_t)(recorded.text.data + recorded.text.size + 1 - replay->rest.data);
    replay->rest.data = recorded.text.data + recorded.text.size + 1;
}

// Engine.record
static void compare(void *self, Bytes members) {
    Replay *replay = self;
    Buffer line = {0};
    if (replay->differs || replay->bad) return;
    record_print_line(&line, replay->engine.state.step, members);
    compare_line(replay, (Bytes){line.data, line.size});
    buffer_close(&line);
}

// Compares the checkpoint of the present step, if the run has kept it and saved it at this point of the step.
static int compare_checkpoint(Replay *replay, bool at_end) {
    Engine *engine = &replay->engine;
    SavedState saved;
    char path[PATH_MAX_BYTES];
    const uint64_t step = engine->state.step;
    const char *which;
    if (replay->awaited > replay->compared && (step > replay->awaited || at_end))
        return fail(EX_NO, "step %" PRIu64 ": its checkpoint in '%s' is of no state that was computed again",
                    replay->awaited, engine->config.out_dir);
    checkpoint_path(path, engine->config.out_dir, step);
    if (step == replay->compared || step == replay->from || access(path, F_OK) < 0 ||
        checkpoint_is_remnant(engine->config.out_dir, step))
        return 0;
    if (saved_state_read(&saved, path) < 0) return -1;
    const uint64_t consumed = saved.state.datasets[saved.state.dataset].consumed;
    const bool skipped = engine_skip_due(engine) && consumed == engine->state.skip_to;
    const bool now = saved.state.evaluated == engine->state.evaluated && !skipped;
    saved_state_close(&saved);
    if (!now) return replay->awaited = step, 0;
    replay->compared = step, replay->checkpoints++;
    if (engine->backend->in_host_memory) strcpy(engine->state.choices, replay->machine); // a name: other bits differ
    const int same = checkpoint_compare(engine_whole(engine), &engine->state, &engine->config, path, &which);
    if (same) return same < 0 ? -1 : 0;
    return fail(EX_NO, "step %" PRIu64 ": %s in '%s' is not that of the state that was computed again", step, which,
                path);
}

// ---- opening

// Leaves the lines after the first step that is replayed, or from the first line on.
static int skip_lines(Replay *replay, uint64_t from, bool evaluated) {
    RecordLine line;
    Bytes rest = replay->rest = replay->record.text;
    int found = 1;
    bool behind = !from;
    while (!behind && (found = record_next(&replay->record, &rest, &line)) > 0) {
        behind = line.kind == LINE_STEP && line.step == from;
        replay->rest = rest;
    }
    while (from && found > 0 && (found = record_next(&replay->record, &rest, &line)) > 0 && line.step == from) {
        if (line.kind != LINE_NOTE && line.kind != LINE_SPIKE && !(line.kind == LINE_EVALUATION && evaluated)) break;
        replay->rest = rest;
    }
    return found < 0 ? -1 : 0;
}

// The dataset of the next step.
static int take_dataset(Replay *replay, const RecordLine *line) {
    DatasetUse *use = &replay->dataset;
    char digits[65] = "";
    if (record_text(line, "dataset", use->name, sizeof use->name) &&
        record_text(line, "fingerprint", digits, sizeof digits) && hex_decode(use->fingerprint, digits, 32) == 0)
        return 0;
    return fail(EX_DATA, "'%s': the dataset of step %" PRIu64 " is damaged", replay->record.path, line->step);
}

static bool is_dataset(const char *path, const uint8_t fingerprint[32]) {
    Dataset dataset;
    const bool found = dataset_open_manifest(&dataset, path) == 0 && !memcmp(dataset.fingerprint, fingerprint, 32);
    dataset_close(&dataset);
    err_clear(); // another dataset may be the one
    return found;
}

// Finds the dataset of the next step among those that the user names and those of the run. If none has its fingerprint,
// `path` is the first of them, with which the run is refused. False: no dataset is named.
static bool find_dataset(const Replay *replay, char path[PATH_MAX_BYTES]) {
    char first[PATH_MAX_BYTES] = "";
    RecordLine line;
    for (int i = 0; i < replay->path_count; i++) {
        snprintf(path, PATH_MAX_BYTES, "%s", replay->paths[i]);
        if (is_dataset(path, replay->dataset.fingerprint)) return true;
        if (!*first) strcpy(first, path);
    }
    for (Bytes rest = replay->record.text; record_next(&replay->record, &rest, &line) > 0;) {
        if (line.kind != LINE_PROCESS || !record_text(&line, "data", path, PATH_MAX_BYTES)) continue;
        if (replay->segment && strstr(path, "://")) continue; // of a stranger
        if (is_dataset(path, replay->dataset.fingerprint)) {
            if (replay->path_count)
                log_warn("none of the datasets named is '%s' of these steps: taking '%s', where the run read it",
                         replay->dataset.name, path);
            return true;
        }
        if (!*first) strcpy(first, path);
    }
    strcpy(path, first);
    return *first;
}

// The values of the run, if the user has set no others.
static int take_config(ConfigReader *reader, const char *directory, const Replay *replay, const RecordStep *step,
                       const RunState *saved) {
    Config *config = &reader->config;
    char text[PATH_MAX_BYTES];
    SavedState keys = {.config = config_of(&replay->record, &step->process)};
    if (!keys.config) return -1;
    saved_state_fill(&keys, reader, replay->record.path);
    const int checked = check_config(&replay->record, reader, keys.config);
    saved_state_close(&keys);
    if (checked < 0) return -1;
    config->out_dir = directory;
    config->checkpoint_interval = (AutoInt){false, 0};
    config->tensorboard_log = config->eval_only = false;
    const char *from = *saved->init_from ? arena_copy_string(&reader->strings, saved->init_from) : "scratch";
    if (config_is_set(reader, KEY_init_from) && strcmp(config->init_from, from) != 0)
        return fail(EX_USAGE, "init_from is '%s', and the run began from '%s': put its model there", config->init_from,
                    from);
    config->init_from = from;
    if (!config_is_set(reader, KEY_loader) && find_dataset(replay, text)) {
        if (!dataset_is(text))
            return fail(EX_NOINPUT,
                        "'%s' is not a dataset directory: name that of the run's dataset '%s' after the run's, or "
                        "serve it and give --loader",
                        text, replay->dataset.name);
        config->dataset = arena_copy_string(&reader->strings, text);
    } else if (!config_is_set(reader, KEY_loader) && replay->segment)
        return fail(EX_NOINPUT, "name the dataset '%s' after the run, or give --loader of a loader of your own",
                    replay->dataset.name);
    else if (!config_is_set(reader, KEY_loader) && record_text(&step->process, "loader", text, sizeof text))
        config->loader = arena_copy_string(&reader->strings, text);
    return vocabulary_resolve(reader, NULL);
}

// Compares the stored bytes of the shards with their hashes: the loader checks only the frames it reads. Those of the
// dataset that it verified last are not read again.
static int verify_dataset(const Config *config) {
    static char verified[PATH_MAX_BYTES];
    char path[PATH_MAX_BYTES];
    Dataset dataset;
    if (*config->loader || !loader_process_dataset(path, config) || !strcmp(path, verified)) return 0;
    if (dataset_open(&dataset, path) < 0) return -1;
    int result = 0;
    ShardCursor *cursor = shard_cursor_open();
    for (int split = 0; split < SPLIT_COUNT; split++)
        for (uint64_t i = 0; i < dataset.shard_count[split] && result == 0; i++) {
            ShardFile shard;
            result = shard_file_open(&shard, dataset.shards[split][i].path);
            if (result == 0) result = shard_verify(&shard, cursor, true);
            shard_file_close(&shard);
        }
    shard_cursor_close(cursor);
    dataset_close(&dataset);
    if (result == 0) strcpy(verified, path);
    return result;
}

// `state` is the state of the checkpoint that it begins with; if it begins with the initial weights, of the newest,
// or of the end of the segment, which has their name.
static int find_start(Replay *replay, ReplayResult *result, const char *directory, RunState *state) {
    uint64_t step = replay->record.last_step;
    if (!result->last) result->last = step;
    if (!result->first) result->first = 1;
    replay->last = result->last;
    if (!step || result->last > step)
        return fail(EX_NOINPUT, "'%s' has no step %" PRIu64 ": its last is %" PRIu64, replay->record.path,
                    step ? result->last : 1, step);
    char path[PATH_MAX_BYTES];
    uint64_t newest;
    if (!result->segment && checkpoint_any(directory, path, &newest) && newest > step)
        return fail(EX_DATA,
                    "'%s' ends with step %" PRIu64 ", and there is a checkpoint of step %" PRIu64
                    ": its end is missing",
                    replay->record.path, step, newest);
    if (result->first == 1 || !checkpoint_up_to(directory, result->first - 1, &result->from)) result->from = 0;
    const uint64_t most = result->from ? result->from : result->segment ? result->last : UINT64_MAX;
    if (!checkpoint_up_to(directory, most, &step)) return 0;
    SavedState saved;
    checkpoint_path(path, directory, step);
    if (saved_state_read(&saved, path) < 0) return -1;
    *state = saved.state;
    saved_state_close(&saved);
    return 0;
}

int replay_check_link(const Record *record, uint64_t at, const uint8_t checkpoint[32]) {
    RecordStep step;
    Bytes link;
    char hex[65];
    if (record_find(record, at, &step) < 0) return -1;
    hex_encode(hex, checkpoint, 32);
    if (record_member(&step.own, "chain", &link) && link.size == 64 && !memcmp(link.data, hex, 64)) return 0;
    return fail(EX_NO, "step %" PRIu64 ": the checkpoint has the link %.16s, '%s' another", at, hex, record->path);
}

// Whether this machine is that of the run. -1 (2) if not: a pending difference proves nothing then.
static int check_machine(const Replay *replay) {
    static char here[CHOICES_BYTES];
    Error found;
    replay->engine.backend->choices_get(here, sizeof here);
    here[strcspn(here, "\n")] = 0;
    if (!*replay->machine || !strcmp(here, replay->machine)) return 0;
    err_take(&found);
    return fail(EX_USAGE, "the run was computed on '%s', and this is '%s': %s it on such a machine%s%s",
                replay->machine, here, replay->segment ? "check" : "replay",
                found.code ? ". Its bits differ here: " : "", found.text);
}

// Checks that the loader serves the dataset of the next step.
static int use_dataset(Replay *replay) {
    Engine *engine = &replay->engine;
    const FeedDataset *dataset = feed_dataset(engine->feed);
    char hex[65], other[65];
    if (!memcmp(replay->dataset.fingerprint, dataset->fingerprint, 32)) return engine_data_update(engine, false);
    hex_encode(hex, replay->dataset.fingerprint, 32), hex_encode(other, dataset->fingerprint, 32);
    return fail(EX_NOINPUT,
                "step %" PRIu64
                " used the dataset '%s' (%.16s), and '%s' is another (%.16s): name its directory after the "
                "run's, or serve it and give --loader",
                engine->state.step + 1, replay->dataset.name, hex, dataset->name, other);
}

// The state of the checkpoint, or before the first step; choices of the backend and rule of the chain are then of `of`.
static int begin(Replay *replay, const RunState *of) {
    Engine *engine = &replay->engine;
    RunState *state = &engine->state;
    if (!replay->from) {
        snprintf(state->choices, sizeof state->choices, "%s", of->choices);
        state->chain_rule = of->chain_rule;
    }
    const int found =
        replay->from ? checkpoint_of_step(engine->config.out_dir, replay->from, engine->begins_with, state) : 0;
    return found < 0 ? -1 : engine_take_state(engine, found);
}

static int open_replay(Replay *replay, ReplayResult *result, const char *directory, ConfigReader *reader) {
    Engine *engine = &replay->engine;
    RecordStep step;
    RunState state;
    run_state_init(&state);
    if (record_open(&replay->record, directory) < 0 || find_start(replay, result, directory, &state) < 0 ||
        record_find(&replay->record, result->from + 1, &step) < 0 || take_dataset(replay, &step.dataset) < 0 ||
        take_config(reader, directory, replay, &step, &state) < 0 || verify_dataset(&reader->config) < 0 ||
        (result->from && replay_check_link(&replay->record, result->from, state.chain) < 0) ||
        skip_lines(replay, result->from, state.evaluated) < 0)
        return -1;
    if (replay_check_process(&step.process, reader->config.reduce_order == REDUCE_FAST) < 0) return -1;
    replay->from = result->from;
    snprintf(replay->machine, sizeof replay->machine, "%.*s", (int)strcspn(state.choices, "\n"), state.choices);
    take_machine(replay, &step.process);
    engine->record = compare, engine->record_self = replay, engine->recorded = &replay->dataset;
    if (stop_on_signals() < 0 || engine_open(engine, &reader->config, false, false) < 0 || begin(replay, &state) < 0 ||
        engine_connect(engine) < 0 || (result->segment && check_machine(replay) < 0) ||
        engine_open_weights(engine, true) < 0 || feed_attach(engine->feed) < 0 || use_dataset(replay) < 0)
        return -1;
    return 0;
}

// ---- the loop

// No result may follow the last step.
static int check_end(Replay *replay) {
    RecordLine line;
    const int found = next_compared(replay, &line);
    if (found <= 0) return found;
    if (line.kind > LINE_SPIKE && replay->last < replay->record.last_step) return 0; // of the next step
    char text[96];
    return fail(EX_NO, "step %" PRIu64 ": '%s' has one more line, %s", line.step, replay->record.path,
                text_of(line.text, text));
}

// The run continues with another dataset.
static int change_dataset(Replay *replay, const RecordLine *line) {
    static char path[PATH_MAX_BYTES];
    Engine *engine = &replay->engine;
    const bool served = *engine->config.loader;
    if (take_dataset(replay, line) < 0) return -1;
    batch_stream_cancel(&engine->stream);
    feed_close(engine->feed);
    engine->feed = NULL;
    if (!served) {
        find_dataset(replay, path);
        engine->config.dataset = path;
        loader_process_close(&engine->loader_process);
        if (verify_dataset(&engine->config) < 0 ||
            loader_process_open(&engine->loader_process, &engine->config, LOADER_CACHE_LEAST) < 0)
            return -1;
    }
    if (engine_data_open(engine) < 0 || feed_attach(engine->feed) < 0) return -1;
    if (served && !feed_same_samples(engine->feed, replay->dataset.fingerprint))
        return fail(EX_USAGE,
                    "after step %" PRIu64 " the loader had another dataset: replay the steps up to it, and those "
                    "from %" PRIu64 " on, apart",
                    line->step, line->step + 1);
    return use_dataset(replay);
}

// An evaluation or a step, as in the training loop. `ends`: the record has an evaluation here, as of a time that ended
// the run before its cooldown, of which the record has nothing else. Its losses are compared like the others.
static int replay_round(Replay *replay, bool ends) {
    Engine *engine = &replay->engine;
    Evaluation evaluations[SPLIT_COUNT];
    ComputedStep step;
    if (stop_requested) return fail(EX_AGAIN, "stopped at step %" PRIu64, engine->state.step);
    const bool evaluates = ends || engine_evaluation_due(engine);
    if (!evaluates && engine->state.step >= engine_end(engine))
        return fail(EX_DATA, "'%s' goes on behind its last step, %" PRIu64, replay->record.path, engine->state.step);
    const uint64_t same = feed_same_samples(engine->feed, replay->dataset.fingerprint);
    if (!evaluates && engine_use(engine)->consumed + engine_sequences(engine) > same)
        return fail(EX_NOINPUT,
                    "step %" PRIu64 ": the loader's schedule has weights from sample %" PRIu64
                    " on that the run did not have: serve it without them",
                    engine->state.step + 1, same);
    const FeedResult found = evaluates ? engine_evaluate(engine, evaluations) : engine_step(engine, &step);
    if (found == FEED_CHANGED) return use_dataset(replay);
    if (found == FEED_ERROR) return -1;
    if (found == FEED_BATCH && evaluates) engine_take_evaluation(engine, evaluations);
    if (found == FEED_BATCH && !evaluates) engine_record_step(engine, &step);
    return 0;
}

static int replay_steps(Replay *replay, const ReplayResult *result) {
    Engine *engine = &replay->engine;
    Progress progress;
    progress_start(&progress, "replaying", "steps", result->last - result->from);
    int status = 0;
    while (status == 0 && !replay->differs && !replay->bad) {
        RecordLine line = {0};
        progress_update(&progress, engine->state.step - result->from);
        int found = 0;
        if ((status = compare_checkpoint(replay, false)) < 0 || (found = next_compared(replay, &line)) < 0) break;
        if (line.kind == LINE_PASSED && engine_skip_due(engine)) {
            engine_skip_samples(engine);
            continue;
        }
        if (line.kind == LINE_DATASET && engine->state.step < result->last) {
            status = change_dataset(replay, &line);
            continue;
        }
        const bool evaluation = found && line.kind == LINE_EVALUATION && line.step == engine->state.step;
        if (engine->state.step >= result->last && (engine->state.evaluated || !evaluation)) break;
        status = replay_round(replay, evaluation && !engine->state.evaluated);
    }
    progress_finish(&progress);
    if (err_code() || status < 0 || compare_checkpoint(replay, true) < 0) return -1;
    return check_end(replay);
}

int replay(ReplayResult *result, const char *directory, ConfigReader *reader, int path_count, char **paths) {
    static Replay replay;
    replay = (Replay){.path_count = path_count, .paths = paths, .segment = result->segment};
    int status = open_replay(&replay, result, directory, reader);
    if (status == 0) status = err_code() ? -1 : replay_steps(&replay, result);
    if (err_code() == EX_NO && replay.engine.backend) check_machine(&replay);
    memcpy(result->link, replay.engine.state.chain, sizeof result->link);
    result->rule = replay.engine.state.chain_rule;
    result->checkpoints = replay.checkpoints, result->compared = replay.compared;
    engine_close(&replay.engine);
    record_close(&replay.record);
    return status;
}
