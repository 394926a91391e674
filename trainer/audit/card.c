// The card of an exported model.
#include "trainer/audit/card.h"
#include "common/cli/version.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "dataset/lineage.h"
#include "dataset/provenance_reader.h"
#include "loader/protocol/mixture.h"
#include "trainer/audit/record.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/records/history.h"
#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILES_MAX = 64, VERSIONS_MAX = 16, BASES_MAX = 8, INPUTS_MAX = 100 };

// A name as code: one that would end it, or a line, is changed.
static void add_code(Buffer *out, Bytes name) {
    char text[256];
    snprintf(text, sizeof text, "%.*s", (int)(name.size < 250 ? name.size : 250), (const char *)name.data);
    text_printable(text);
    for (char *at = text; *at; at++)
        if (*at == '`') *at = '\'';
    buffer_print(out, "`%s`", text);
}
static void add_word(Buffer *out, const char *word) { add_code(out, (Bytes){(const uint8_t *)word, strlen(word)}); }

// The last part of a path, for a checkpoint with its run's: the folders around it are names of users.
static void add_model_name(Buffer *out, const char *path) {
    size_t end = strlen(path), begin;
    while (end > 1 && path[end - 1] == '/') end--;
    for (begin = end; begin && path[begin - 1] != '/';) begin--;
    if (begin && !strncmp(path + begin, "ckpt-", 5))
        for (begin--; begin && path[begin - 1] != '/';) begin--;
    add_code(out, (Bytes){(const uint8_t *)path + begin, end - begin});
}

static const char *value_of(const SavedState *saved, const char *key) {
    const char *text = json_string_value(json_object_get(saved->config, key));
    return text ? text : "";
}

// The versions that have computed the run, by the lines of its processes up to the step.
static void add_versions(const Record *record, uint64_t step, Buffer *out) {
    RecordLine line;
    Bytes seen[VERSIONS_MAX], text;
    int count = 0;
    buffer_print(out, "- versions of millrace that trained it:");
    for (Bytes rest = record->text; record_next(record, &rest, &line) > 0 && line.step <= step;) {
        if (line.kind != LINE_PROCESS || !record_member(&line, "version", &text)) continue;
        int i = 0;
        while (i < count && (seen[i].size != text.size || memcmp(seen[i].data, text.data, text.size))) i++;
        if (i < count || count == VERSIONS_MAX) continue;
        seen[count++] = text;
        buffer_print(out, count > 1 ? ", " : " ");
        add_code(out, text);
    }
    if (!count) buffer_print(out, " not known");
    err_clear(); // of a damaged line
    buffer_print(out, "\n- exported by: `%s%s%s`\n", version, *version_commit ? " " : "", version_commit);
}

static void add_shares(const json_t *sources, Buffer *out) {
    const json_t *source;
    size_t i;
    json_array_foreach(sources, i, source) {
        const char *name = json_string_value(json_object_get(source, "name"));
        const json_t *tokens = json_object_get(source, "tokens"); // read as one split
        if (i) buffer_print(out, ", ");
        add_word(out, name ? name : "");
        if (tokens)
            buffer_print(out, " (%.0f tokens)", json_number_value(tokens));
        else
            buffer_print(out, " (%.2f %%)",
                         100 * json_number_value(json_object_get(source, "weight")) / (double)MIXTURE_SUM);
    }
}

// The datasets of a mixture with their shares, by the lines of the run that name it. `end`: the sample after its last.
static void add_sources(const Record *record, const char *fingerprint, uint64_t end, Buffer *out) {
    RecordLine line;
    Bytes text;
    char hex[65];
    bool first = true;
    uint64_t last = 0;
    for (Bytes rest = record->text; record_next(record, &rest, &line) > 0;) {
        uint64_t from = 0;
        if (line.kind != LINE_DATASET || !record_text(&line, "fingerprint", hex, sizeof hex) ||
            strcmp(hex, fingerprint) || !record_member(&line, "sources", &text))
            continue;
        record_number(&line, "weights_from", &from);
        if (!first && (from <= last || from >= end))
            continue; // written again by a roll-back to the start, or not reached
        json_t *sources = json_loadb((const char *)text.data, text.size, 0, NULL);
        const bool joined = json_object_get(json_array_get(sources, 0), "tokens");
        buffer_print(out, first ? joined ? "; one split of " : "; a mixture of " : ", then ");
        add_shares(sources, out);
        if (from) buffer_print(out, " from sample %" PRIu64 " on", from);
        json_decref(sources);
        first = false, last = from;
    }
    err_clear(); // of a damaged line
}

// Finds a dataset where the run read it: its path. False if it is not there.
static bool find_dataset(const Record *record, const uint8_t fingerprint[32], char path[PATH_MAX_BYTES]) {
    RecordLine line;
    bool found = false;
    for (Bytes rest = record->text; !found && record_next(record, &rest, &line) > 0;) {
        Dataset dataset;
        if (line.kind != LINE_PROCESS || !record_text(&line, "data", path, PATH_MAX_BYTES) || strstr(path, "://") ||
            dataset_open_manifest(&dataset, path) < 0)
            continue;
        found = !memcmp(dataset.fingerprint, fingerprint, 32);
        dataset_close(&dataset);
    }
    err_clear();
    return found;
}

static void add_history(const char *path, Buffer *out) {
    Dataset dataset;
    if (dataset_open_manifest(&dataset, path) < 0) return;
    if (dataset.history) {
        buffer_print(out, "\n  ```text\n  ");
        lineage_print(&dataset, "  ", out);
        buffer_print(out, "  ```\n");
    }
    dataset_close(&dataset);
}

static int add_inputs(const char *path, Buffer *out) {
    InputCounts counts;
    if (input_counts_read(&counts, path, INPUTS_MAX) < 0) return fail_in("--sources");
    if (!counts.count) buffer_print(out, "  - the documents and tokens of each input: not known\n");
    for (size_t i = 0; i < counts.count; i++) {
        const InputCount *input = &counts.inputs[i];
        buffer_print(out, "  - ");
        add_word(out, input->name ? input->name : "not known");
        buffer_print(out, ": documents: %" PRIu64 ", tokens: %" PRIu64 " (%.1f %%)\n", input->documents, input->tokens,
                     100 * input->share);
    }
    input_counts_close(&counts);
    return 0;
}

static int add_datasets(const SavedState *saved, const Record *record, bool inputs, Buffer *out) {
    char path[PATH_MAX_BYTES];
    const RunState *state = &saved->state;
    const uint64_t block = strtoull(value_of(saved, "block_size"), NULL, 10);
    char hex[65], count[16];
    for (int i = 0; i < state->dataset_count; i++) {
        const DatasetUse *use = &state->datasets[i];
        const uint64_t own = run_state_own_samples(state, i);
        hex_encode(hex, use->fingerprint, 32);
        buffer_print(out, "- ");
        add_word(out, use->name);
        buffer_print(out, ", fingerprint `%s`: %" PRIu64 " samples, %s tokens", hex, own,
                     human_count(count, (double)own * (double)block));
        add_sources(record, hex, use->consumed, out);
        buffer_print(out, "\n");
        const bool found = find_dataset(record, use->fingerprint, path);
        if (found) add_history(path, out);
        if (inputs && !found) buffer_print(out, "  - its inputs: not known, as it is not where the run read it\n");
        if (inputs && found && add_inputs(path, out) < 0) return -1;
    }
    for (int i = 0; i < state->change_count; i++) {
        hex_encode(hex, state->changes[i].new, 32);
        buffer_print(out, "- from step %" PRIu64 " on: the dataset `%.16s`\n", state->changes[i].step + 1, hex);
    }
    return 0;
}

static int add_data(const SavedState *saved, const Record *record, bool inputs, Buffer *out) {
    char hex[65];
    buffer_print(out, "\n## Data\n\n");
    if (add_datasets(saved, record, inputs, out) < 0) return -1;
    hex_encode(hex, saved->state.vocab_fp, 32);
    buffer_print(out, "- vocabulary: `%s`\n- order of the samples: `%s`, seed %s, %s tokens each\n", hex,
                 value_of(saved, "sampling"), value_of(saved, "seed"), value_of(saved, "block_size"));
    return 0;
}

// A model that is not a checkpoint of a run of millrace: only its weights are known.
static void add_foreign_base(const char *path, Buffer *out) {
    char file[PATH_MAX_BYTES], hex[65];
    uint8_t hash[32];
    Bytes map;
    buffer_print(out, "- its data is not known");
    if (file_map(&map, path_join(file, path, "model.safetensors")) == 0) {
        sha256(map.data, map.size, hash);
        file_unmap(&map);
        hex_encode(hex, hash, 32);
        buffer_print(out, "; model.safetensors has the SHA-256 `%s`", hex);
    }
    err_clear();
    buffer_print(out, "\n");
}

// The model that the run began with and its data, then the model that this one began with, and so on.
static int add_bases(const RunState *state, const char *out_dir, bool inputs, Buffer *out) {
    char path[PATH_MAX_BYTES], run[PATH_MAX_BYTES], hex[65];
    SavedState saved = {0};
    bool known = true;
    int result = 0;
    for (int i = 0; i < BASES_MAX && known && result == 0 && *state->init_from; i++) {
        SavedState base = {0};
        Record record = {0};
        model_path(path, state->init_from, out_dir);
        for (size_t end = strlen(path); end > 1 && path[end - 1] == '/';) path[--end] = '\0';
        buffer_print(out, "\n## Base: ");
        add_model_name(out, path);
        buffer_print(out, "\n\n");
        known = saved_state_read(&base, path) == 0;
        err_clear();
        path_split(path, run);
        if (known && record_open(&record, run) < 0) record_close(&record), err_clear();
        if (known) {
            result = add_datasets(&base, &record, inputs, out);
            hex_encode(hex, base.state.chain, 32);
            buffer_print(out, "- link of step %" PRIu64 " in the chain of its run: `%s`\n", base.state.step, hex);
        } else
            add_foreign_base(path, out);
        record_close(&record);
        saved_state_close(&saved);
        saved = base, state = &saved.state, out_dir = run;
    }
    saved_state_close(&saved);
    return result;
}

static void add_losses(const RunState *state, const History *history, Buffer *out) {
    if (isfinite(state->last_loss)) buffer_print(out, "- validation loss: %.4f\n", state->last_loss);
    if (isfinite(state->best_loss))
        buffer_print(out, "- lowest validation loss of the run: %.4f at step %" PRIu64 "\n", state->best_loss,
                     state->best_step);
    if (history->rule_count < 2) return;
    buffer_print(out, "- ");
    history_add_rules(history, out);
    buffer_print(out, "\n");
}

// Every key, with all values that it had.
static void add_keys(const SavedState *saved, const History *history, Buffer *out) {
    if (history->key_count && history->keys[0].step)
        buffer_print(out, "\nThe values in the steps up to %" PRIu64 " are not recorded.\n", history->keys[0].step);
    buffer_print(out, "\n```\n");
    for (int key = 0; key < KEY_COUNT; key++) {
        const char *name = config_key(key);
        if (!json_object_get(saved->config, name) && !history_changed(history, name)) continue;
        buffer_print(out, "%s = ", name);
        history_add(history, name, value_of(saved, name), out);
        buffer_print(out, "\n");
    }
    buffer_print(out, "```\n");
}

static void add_training(const SavedState *saved, const char *run, const Record *record, Buffer *out) {
    const RunState *state = &saved->state;
    History history;
    char count[16];
    history_read(&history, run, state->step);
    buffer_print(out, "\n## Training\n\n- from: ");
    add_model_name(out, *state->init_from ? state->init_from : "scratch");
    buffer_print(out, "\n- steps: %" PRIu64 ", of which %" PRIu64 " changed the weights; tokens: %s (%" PRIu64 ")\n",
                 state->step, state->updates, human_count(count, (double)state->tokens), state->tokens);
    add_losses(state, &history, out);
    add_versions(record, state->step, out);
    add_keys(saved, &history, out);
    history_close(&history);
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

// The SHA-256 of every file, as sha256sum prints it.
static int add_files(const char *directory, Buffer *out) {
    static char names[FILES_MAX][256];
    int count = 0, result = 0;
    DIR *dir = opendir(directory);
    if (!dir) return fail_errno("cannot open '%s'", directory);
    for (struct dirent *entry; (entry = readdir(dir)) && count < FILES_MAX;)
        if (*entry->d_name != '.') snprintf(names[count++], sizeof *names, "%s", entry->d_name);
    closedir(dir);
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 0; i < count && result == 0; i++) {
        char path[PATH_MAX_BYTES], hex[65];
        uint8_t hash[32];
        Bytes map;
        if ((result = file_map(&map, path_join(path, directory, "%s", names[i]))) < 0) break;
        sha256(map.data, map.size, hash);
        file_unmap(&map);
        hex_encode(hex, hash, 32);
        buffer_print(out, "%s  %s\n", hex, names[i]);
    }
    return result;
}

static int add_hashes(const SavedState *saved, const char *exported, Buffer *out) {
    char hex[65];
    hex_encode(hex, saved->state.chain, 32);
    buffer_print(
        out,
        "\n## Hashes\n\nThe link of step %" PRIu64 " in the chain of the run commits to the data, losses, norms and "
        "weights of all steps; `millrace replay RUN` computes it again, and `millrace which RUN --steps=N` names "
        "the data of a step:\n\n```\n%s\n```\n\nThe files (`sha256sum -c`):\n\n```\n",
        saved->state.step, hex);
    if (add_files(exported, out) < 0) return -1;
    buffer_print(out, "```\n");
    return 0;
}

int card_write(const char *exported, const char *checkpoint, const char *name, uint64_t parameters, bool inputs) {
    char path[PATH_MAX_BYTES], run[PATH_MAX_BYTES], count[16];
    SavedState saved = {0};
    Record record = {0};
    Buffer text = {0};
    if (access(path_join(path, checkpoint, "state.json"), F_OK) < 0)
        return fail(EX_NOINPUT, "'%s' is not a checkpoint of a run: --card needs one", checkpoint);
    if (saved_state_read(&saved, checkpoint) < 0) return -1;
    path_split(checkpoint, run);
    if (record_open(&record, run) < 0)
        record_close(&record), err_clear(); // without a record the card names the values as unknown
    buffer_print(&text, "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- millrace\n---\n\n# ");
    add_word(&text, name);
    buffer_print(&text, "\n\nA language model of %s parameters, trained by millrace.\n",
                 human_count(count, (double)parameters));
    int result = add_data(&saved, &record, inputs, &text);
    if (result == 0) result = add_bases(&saved.state, run, inputs, &text);
    if (result == 0) add_training(&saved, run, &record, &text);
    if (result == 0) result = add_hashes(&saved, exported, &text);
    if (result == 0) result = file_write(path_join(path, exported, "README.md"), (Bytes){text.data, text.size});
    saved_state_close(&saved);
    record_close(&record);
    buffer_close(&text);
    return result;
}
