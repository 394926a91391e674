// Checkpoints: writing and finding them.
#include "trainer/checkpoint/checkpoint.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/saved_state.h"
#include "trainer/checkpoint/tokenizer_files.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char model_file[] = "model.safetensors", optimizer_file[] = "optimizer.safetensors";

// ---- writing

static size_t file_elements(const Tensor *tensor) { return (size_t)tensor->file_rows * (size_t)tensor->cols; }

// `offset`: of the tensor in the range, in elements.
static int write_pieces(Network *network, SafeWriter *writer, const Tensor *tensor, size_t range, size_t offset,
                        Dtype type) {
    size_t piece = network->plan->staging / sizeof(float), total = file_elements(tensor);
    for (size_t first = 0; first < total; first += piece) {
        size_t count = total - first < piece ? total - first : piece;
        network_read(network, range, type, offset + first, count, network->staging);
        if (safe_write(writer, network->staging, count) < 0) return -1;
    }
    return 0;
}

// (rows,cols) in the arena, (cols,rows) in the file: Hugging Face's Conv1D.
static int write_transposed(Network *network, SafeWriter *writer, const Tensor *tensor, size_t range, Dtype type) {
    size_t rows = (size_t)tensor->rows, cols = (size_t)tensor->cols;
    float *line = malloc(rows * sizeof *line);
    if (!line) return fail(EX_MEMORY, "no memory for a row of '%s'", tensor->name);
    network_read(network, range, type, tensor->offset, rows * cols, network->staging);
    int result = 0;
    for (size_t c = 0; c < cols && result == 0; c++) {
        for (size_t r = 0; r < rows; r++) line[r] = network->staging[r * cols + c];
        result = safe_write(writer, line, rows);
    }
    free(line);
    return result;
}

// A bias that the model does not have is written as zeros, because transformers' GPT-2 always has biases.
static int write_absent_bias(SafeWriter *writer, size_t count) {
    float *zeros = calloc(count, sizeof *zeros);
    if (!zeros) return fail(EX_MEMORY, "no memory for a bias");
    int result = safe_write(writer, zeros, count);
    free(zeros);
    return result;
}

void checkpoint_name_tensors(SafeWriter *writer, const Model *all) {
    for (int i = 0; i < all->count; i++) {
        const Tensor *tensor = &all->tensors[i];
        char name[SAFE_NAME_BYTES];
        bool turned = tensor_transposed(tensor);
        snprintf(name, sizeof name, "%s%s", tensor_prefix(tensor), tensor->name);
        uint64_t rows = (uint64_t)tensor->file_rows, cols = (uint64_t)tensor->cols;
        safe_name(writer, name, turned ? cols : rows, tensor->kind >= KIND_GAIN ? 0 : turned ? rows : cols);
    }
}

static int write_model(Network *network, const char *path, uint8_t hash[SAFE_HASH_BYTES]) {
    ModelShape whole = network->model->shape;
    Model all;
    SafeWriter writer;
    whole.bias = true;
    model_open(&all, &whole);
    int result = safe_create(&writer, path, DTYPE_FP32);
    if (result == 0) checkpoint_name_tensors(&writer, &all);
    for (int i = 0; i < all.count && result == 0; i++) {
        const Tensor *own = model_tensor(network->model, all.tensors[i].id, all.tensors[i].layer);
        size_t range = network->plan->master;
        Dtype type = network->ops->master_bytes ? DTYPE_FP32 : par_type(network->ops);
        if (!own)
            result = write_absent_bias(&writer, file_elements(&all.tensors[i]));
        else if (tensor_transposed(own))
            result = write_transposed(network, &writer, own, range, type);
        else
            result = write_pieces(network, &writer, own, range, own->offset, type);
    }
    model_close(&all);
    if (result == 0) result = safe_finish(&writer, hash);
    safe_abandon(&writer);
    return result;
}

static int write_optimizer(Network *network, const char *path, uint8_t hash[SAFE_HASH_BYTES]) {
    const Model *model = network->model;
    const MemoryPlan *plan = network->plan;
    const Optimizer *optimizer = plan->optimizer;
    SafeWriter writer;
    int result = safe_create(&writer, path, DTYPE_FP32);
    for (int s = 0; s < optimizer->state_count && result == 0; s++)
        for (int i = 0; i < model->count; i++) {
            const Tensor *tensor = &model->tensors[i];
            char name[SAFE_NAME_BYTES];
            if (!optimizer_has(&optimizer->states[s], tensor)) continue;
            snprintf(name, sizeof name, "%s.%s", optimizer->states[s].name, tensor->name);
            safe_name(&writer, name, (uint64_t)tensor->file_rows,
                      tensor->kind >= KIND_GAIN ? 0 : (uint64_t)tensor->cols);
        }
    for (int s = 0; s < optimizer->state_count && result == 0; s++)
        for (int i = 0; i < model->count && result == 0; i++) {
            const StateRange *state = &optimizer->states[s];
            const Tensor *tensor = &model->tensors[i];
            if (optimizer_has(state, tensor))
                result = write_pieces(network, &writer, tensor, plan->states[s], optimizer_offset(state, model, tensor),
                                      optimizer_dtype(state, network->ops));
        }
    if (result == 0) result = safe_finish(&writer, hash);
    safe_abandon(&writer);
    return result;
}

// Each checkpoint has the same tokenizer files: they are hard links to the newest one's before it.
static int write_vocabulary(const ModelShape *shape, const char *directory, const char *out_dir) {
    char newest[PATH_MAX_BYTES] = "";
    uint64_t step;
    checkpoint_any(out_dir, newest, &step);
    return tokenizer_files_write(directory, shape, out_dir, newest);
}

static int write_files(Network *network, const RunState *state, const Config *config, const char *directory) {
    char path[PATH_MAX_BYTES];
    CheckpointHashes hashes;
    if (write_model(network, path_join(path, directory, "%s", model_file), hashes.model) < 0) return -1;
    if (write_optimizer(network, path_join(path, directory, "%s", optimizer_file), hashes.optimizer) < 0) return -1;
    Buffer text = {0};
    model_config_print(&network->model->shape, DTYPE_FP32, &text);
    safe_hash(text.data, text.size, hashes.model_config);
    int result = file_write(path_join(path, directory, "config.json"), (Bytes){text.data, text.size});
    text.size = 0;
    run_state_print(state, config, &hashes, &text);
    if (result == 0) result = file_write(path_join(path, directory, "state.json"), (Bytes){text.data, text.size});
    buffer_close(&text);
    return result;
}

// ---- the directory of checkpoints

static bool checkpoint_step(const char *name, uint64_t *step) {
    char *end, again[32];
    if (strncmp(name, "ckpt-", 5)) return false;
    *step = strtoull(name + 5, &end, 10);
    snprintf(again, sizeof again, "ckpt-%08llu", (unsigned long long)*step);
    return !*end && !strcmp(name, again);
}

static int newest_first(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

enum { LIST_MAX = 4096 };

static int list_or_fail(const char *out_dir, uint64_t steps[LIST_MAX]) {
    DIR *directory = opendir(out_dir);
    int count = 0;
    if (!directory)
        return errno == ENOENT || errno == ENOTDIR ? 0 : fail_errno("cannot read the directory '%s'", out_dir);
    for (struct dirent *entry; count < LIST_MAX && (errno = 0, entry = readdir(directory));)
        if (checkpoint_step(entry->d_name, &steps[count])) count++;
    if (count < LIST_MAX && errno) count = fail_errno("cannot read the directory '%s'", out_dir);
    closedir(directory);
    if (count > 0) qsort(steps, (size_t)count, sizeof *steps, newest_first);
    return count;
}

// For callers that need no checkpoint.
static int list_steps(const char *out_dir, uint64_t steps[LIST_MAX]) {
    const int count = list_or_fail(out_dir, steps);
    if (count < 0) err_clear();
    return count < 0 ? 0 : count;
}

static const char *step_path(char path[PATH_MAX_BYTES], const char *out_dir, uint64_t step) {
    return path_join(path, out_dir, "ckpt-%08llu", (unsigned long long)step);
}

void checkpoint_path(char path[PATH_MAX_BYTES], const char *out_dir, uint64_t step) { step_path(path, out_dir, step); }

bool checkpoint_up_to(const char *out_dir, uint64_t most, uint64_t *step) {
    uint64_t steps[LIST_MAX];
    const int count = list_steps(out_dir, steps);
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX_BYTES], state[PATH_MAX_BYTES];
        path_join(state, step_path(path, out_dir, steps[i]), "state.json");
        if (steps[i] <= most && (access(state, F_OK) == 0 || errno != ENOENT)) return *step = steps[i], true;
    }
    return false;
}

bool checkpoint_any(const char *out_dir, char path[PATH_MAX_BYTES], uint64_t *step) {
    uint64_t steps[LIST_MAX];
    if (!list_steps(out_dir, steps)) return false;
    step_path(path, out_dir, *step = steps[0]);
    return true;
}

// Removes the files of write_files, first the one without which it is not a checkpoint (checkpoint_up_to). A directory
// that holds other files is kept, and so is a link to one.
static void remove_checkpoint(const char *directory) {
    struct stat status;
    if (lstat(directory, &status) < 0 || !S_ISDIR(status.st_mode)) return;
    static const char *const files[] = {"state.json", model_file, optimizer_file, "config.json"};
    char path[PATH_MAX_BYTES];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) unlink(path_join(path, directory, "%s", files[i]));
    tokenizer_files_remove(directory);
    rmdir(directory);
}

void checkpoint_rotate(const char *out_dir, const RunState *state, const Config *config) {
    const uint64_t kept[] = {state->best_step, state->graded_step, schedule_cooldown(config, &state->cooldown)};
    uint64_t steps[LIST_MAX];
    char path[PATH_MAX_BYTES];
    int count = list_steps(out_dir, steps);
    for (int i = 2; i < count; i++)
        if (steps[i] != kept[0] && steps[i] != kept[1] && steps[i] != kept[2])
            remove_checkpoint(step_path(path, out_dir, steps[i]));
}

bool checkpoint_is_remnant(const char *out_dir, uint64_t step) {
    uint64_t steps[LIST_MAX], newest;
    char path[PATH_MAX_BYTES], state[PATH_MAX_BYTES];
    SavedState saved;
    const int count = list_steps(out_dir, steps);
    if (access(path_join(state, step_path(path, out_dir, step), "state.json"), F_OK) == 0 || count < 3 ||
        step >= steps[1] || !checkpoint_up_to(out_dir, UINT64_MAX, &newest))
        return false;
    const bool kept = saved_state_read(&saved, step_path(path, out_dir, newest)) < 0 || saved.state.best_step == step;
    err_clear(); // a damaged checkpoint is reported when it is read
    saved_state_close(&saved);
    return !kept;
}

uint64_t checkpoint_bytes(const Model *model, const Optimizer *optimizer) {
    enum { HEADERS_BYTES = 1 << 20, OTHER_ID_BYTES = 160 }; // of an id in the tokenizer files of other vocabularies
    const uint64_t ranges = 1 + (optimizer ? (uint64_t)optimizer->state_count : 0);
    return ranges * model->elements * sizeof(float) + HEADERS_BYTES +
           (model->shape.gpt2_vocab ? TOKENIZER_FILES_BYTES : (uint64_t)model->shape.vocab * OTHER_ID_BYTES);
}

int64_t checkpoint_space(const char *directory, char at[PATH_MAX_BYTES]) {
    struct statvfs disk;
    snprintf(at, PATH_MAX_BYTES, "%s", directory);
    while (statvfs(at, &disk) < 0) {
        char *slash = strrchr(at, '/');
        if (errno != ENOENT || !strcmp(at, ".") || !strcmp(at, "/")) return -1;
        if (slash)
            slash[slash == at] = 0;
        else
            strcpy(at, ".");
    }
    return (int64_t)(disk.f_bavail * disk.f_frsize);
}

int checkpoint_check_space(const char *out_dir, uint64_t bytes) {
    char needed[16], available[16], at[PATH_MAX_BYTES];
    const int64_t space = checkpoint_space(out_dir, at);
    if (space < 0 || (uint64_t)space >= bytes) return 0; // the write will report an error
    return fail(EX_IO, "a checkpoint needs %s in '%s', and %s are free", human_bytes(needed, (double)bytes), out_dir,
                human_bytes(available, (double)space));
}

// For a step that is saved, maybe before its evaluation, which changes no tensor.
static int save_evaluation(const RunState *state, const Config *config, const char *directory) {
    char path[PATH_MAX_BYTES];
    SavedState saved;
    Buffer text = {0};
    if (!state->evaluated || access(path_join(path, directory, "state.json"), F_OK) < 0) return 0;
    int result = saved_state_read(&saved, directory);
    if (result == 0 && !saved.state.evaluated) {
        run_state_print(state, config, &saved.hashes, &text);
        result = file_write(path, (Bytes){text.data, text.size});
    }
    buffer_close(&text);
    saved_state_close(&saved);
    return result;
}

int checkpoint_save(Network *network, const RunState *state, const Config *config, const char *out_dir,
                    const Lock *lock) {
    char path[PATH_MAX_BYTES], temp[PATH_MAX_BYTES], name[64];
    if (access(step_path(path, out_dir, state->step), F_OK) == 0) return save_evaluation(state, config, path);
    snprintf(name, sizeof name, ".ckpt-%08llu.tmp.%d", (unsigned long long)state->step, (int)getpid());
    remove_checkpoint(path_join(temp, out_dir, "%s", name)); // of an attempt of ours that failed
    if (checkpoint_check_space(out_dir, checkpoint_bytes(network->model, network->plan->optimizer)) < 0)
        return fail_in("checkpoint of step %llu", (unsigned long long)state->step);
    int result = lock_check(lock, out_dir);
    if (result == 0 && mkdir(temp, 0777) < 0) result = fail_create(temp);
    if (result == 0) result = write_files(network, state, config, temp);
    if (result == 0) result = write_vocabulary(&network->model->shape, temp, out_dir);
    if (result == 0) result = dir_sync(temp);
    if (result == 0) result = lock_check(lock, out_dir);
    if (result == 0 && rename(temp, path) < 0) result = fail_errno("cannot rename '%s' to '%s'", temp, path);
    if (result < 0) {
        remove_checkpoint(temp);
        return fail_in("checkpoint of step %llu", (unsigned long long)state->step);
    }
    if (dir_sync(out_dir) < 0) return -1;
    checkpoint_rotate(out_dir, state, config);
    return 0;
}

// ---- finding

static int verify_file(const char *directory, const char *name, const uint8_t header_hash[SAFE_HASH_BYTES]) {
    char path[PATH_MAX_BYTES];
    SafeFile file;
    if (saved_file_check(path_join(path, directory, "%s", name)) < 0 || safe_open(&file, path) < 0) return -1;
    int result = memcmp(file.header_hash, header_hash, SAFE_HASH_BYTES)
                     ? fail(EX_DATA, "'%s': the header is damaged", path)
                     : safe_verify(&file, path);
    safe_close(&file);
    return result;
}

static int verify_model_config(const char *directory, const CheckpointHashes *hashes) {
    char path[PATH_MAX_BYTES];
    uint8_t hash[SAFE_HASH_BYTES];
    Buffer text = {0};
    if (!hashes->has_model_config) return 0;
    if (saved_file_check(path_join(path, directory, "config.json")) < 0 || file_read(&text, path, 1 << 20) < 0)
        return -1;
    safe_hash(text.data, text.size, hash);
    buffer_close(&text);
    return memcmp(hash, hashes->model_config, sizeof hash) ? fail(EX_DATA, "'%s' is damaged", path) : 0;
}

// Whether the pending error is damage: what was read is wrong, or there is no such file. After any other error the
// checkpoint may be whole.
static bool is_damage(void) { return err_code() == EX_DATA || err_code() == EX_NOINPUT; }

static int fail_unreadable(const char *path) {
    return fail_in("cannot read '%s' now; the same command continues when it can be read", path);
}

// Reads the state of a checkpoint and checks its files, without the optimizer's unless it is `whole`.
static int verify(const char *directory, SavedState *saved, bool whole) {
    int result = saved_state_read(saved, directory);
    if (result == 0) result = verify_file(directory, model_file, saved->hashes.model);
    if (result == 0 && whole) result = verify_file(directory, optimizer_file, saved->hashes.optimizer);
    if (result == 0) result = verify_model_config(directory, &saved->hashes);
    return result;
}

int checkpoint_verify_model(const char *directory) {
    char path[PATH_MAX_BYTES];
    SavedState saved = {0};
    if (access(path_join(path, directory, "state.json"), F_OK) < 0 && errno == ENOENT) return 0;
    int result = verify(directory, &saved, false);
    saved_state_close(&saved);
    return result;
}

int checkpoint_resolve_auto(const char *out_dir, Config *config) {
    char directory[PATH_MAX_BYTES];
    uint64_t step;
    SavedState saved;
    if (!checkpoint_any(out_dir, directory, &step)) return 0;
    const int result = saved_state_read(&saved, directory);
    if (result == 0) saved_state_resolve_auto(&saved, config);
    saved_state_close(&saved);
    if (result < 0 && !is_damage()) return fail_unreadable(directory);
    err_clear(); // a damaged checkpoint is reported when it is loaded
    return 0;
}

static void set_aside(const char *path) {
    char aside[PATH_MAX_BYTES];
    snprintf(aside, sizeof aside, "%.*s.damaged", PATH_MAX_BYTES - 16, path);
    if (rename(path, aside) < 0)
        log_warn("cannot rename '%s': %s", path, strerror(errno));
    else
        log_warn("renamed the damaged checkpoint to '%s'", aside);
}

// Returns 1 with path and saved, 0 when there is no checkpoint, or -1. `rename_damaged` also renames the damaged ones
// that are newer than the one found. If all are damaged they keep their names, so that the next call fails as well.
static int find_whole(const char *out_dir, bool rename_damaged, char path[PATH_MAX_BYTES], SavedState *saved) {
    uint64_t steps[LIST_MAX];
    int count = list_or_fail(out_dir, steps);
    if (count < 0) return fail_unreadable(out_dir);
    for (int i = 0; i < count; i++) {
        *saved = (SavedState){0};
        if (verify(step_path(path, out_dir, steps[i]), saved, true) == 0) {
            for (int newer = 0; newer < i && rename_damaged; newer++) set_aside(step_path(path, out_dir, steps[newer]));
            step_path(path, out_dir, steps[i]);
            return 1;
        }
        saved_state_close(saved);
        if (!is_damage()) return fail_unreadable(path);
        log_warn("A CHECKPOINT IS DAMAGED: %s; %s", err_text(),
                 i + 1 < count ? "trying the previous checkpoint" : "there is no earlier checkpoint");
        err_clear();
    }
    if (!count) return 0;
    return fail(EX_DATA, "no undamaged checkpoint in '%s' (%d damaged); train --fresh starts a new run", out_dir,
                count);
}

static int find(const char *out_dir, const Config *config, bool rename, char path[PATH_MAX_BYTES], RunState *state) {
    SavedState saved;
    int found = find_whole(out_dir, rename, path, &saved);
    if (found <= 0) return found;
    *state = saved.state;
    int result = config ? saved_state_compare(&saved, config, path) : 0;
    saved_state_close(&saved);
    return result < 0 ? -1 : 1;
}

int checkpoint_find(const char *out_dir, const Config *config, char path[PATH_MAX_BYTES], RunState *state) {
    return find(out_dir, config, true, path, state);
}

int checkpoint_newest(const char *out_dir, const Config *config, char path[PATH_MAX_BYTES], RunState *state) {
    return find(out_dir, config, false, path, state);
}

// The checkpoint of one step.
static int find_step(const char *out_dir, uint64_t step, char path[PATH_MAX_BYTES], SavedState *saved) {
    *saved = (SavedState){0};
    if (access(step_path(path, out_dir, step), F_OK) < 0 && errno == ENOENT)
        return fail(EX_NOINPUT, "there is no checkpoint of step %llu in '%s'", (unsigned long long)step, out_dir);
    if (verify(path, saved, true) == 0) return 1;
    return is_damage() ? -1 : fail_unreadable(path);
}

int checkpoint_of_step(const char *out_dir, uint64_t step, char path[PATH_MAX_BYTES], RunState *state) {
    SavedState saved;
    const int found = find_step(out_dir, step, path, &saved);
    *state = saved.state;
    saved_state_close(&saved);
    return found;
}

int checkpoint_compare(Network *network, const RunState *state, const Config *config, const char *path,
                       const char **which) {
    CheckpointHashes hashes;
    SavedState saved = {0};
    Buffer text = {0}, kept = {0};
    char file[PATH_MAX_BYTES];
    *which = NULL;
    int result = verify(path, &saved, true);
    if (result == 0) result = write_model(network, NULL, hashes.model);
    if (result == 0) result = write_optimizer(network, NULL, hashes.optimizer);
    model_config_print(&network->model->shape, DTYPE_FP32, &text);
    safe_hash(text.data, text.size, hashes.model_config);
    text.size = 0;
    run_state_print(state, config, &hashes, &text);
    if (result == 0) result = file_read(&kept, path_join(file, path, "state.json"), 16 << 20);
    if (result == 0 && memcmp(hashes.model, saved.hashes.model, sizeof hashes.model)) *which = model_file;
    if (result == 0 && !*which && memcmp(hashes.optimizer, saved.hashes.optimizer, sizeof hashes.optimizer))
        *which = optimizer_file;
    if (result == 0 && !*which && !run_state_same((Bytes){kept.data, kept.size}, (Bytes){text.data, text.size}))
        *which = "state.json";
    if (result == 0 && !*which) result = tokenizer_files_compare(path, &network->model->shape, config->out_dir, which);
    saved_state_close(&saved);
    buffer_close(&text), buffer_close(&kept);
    return result < 0 ? -1 : !*which;
}

// The newest checkpoint. An older one in its place is used only by a caller that names its step.
static int find_newest(const char *out_dir, char path[PATH_MAX_BYTES], SavedState *saved) {
    char newest[PATH_MAX_BYTES];
    uint64_t step = 0;
    checkpoint_any(out_dir, newest, &step);
    const int found = find_whole(out_dir, false, path, saved);
    if (found <= 0 || saved->state.step >= step) return found; // a run may save a later one meanwhile
    step = saved->state.step;
    saved_state_close(saved);
    return fail(EX_DATA, "'%s' is damaged: --ckpt=%llu takes '%s'", newest, (unsigned long long)step, path);
}

int checkpoint_select(const char *out_dir, const char *which, char path[PATH_MAX_BYTES], Config *settings) {
    SavedState saved = {0};
    char *end;
    uint64_t step = strtoull(which, &end, 10);
    bool best = !strcmp(which, "best"), is_step = *which && !*end;
    if (*which && !best && !is_step && strcmp(which, "newest"))
        return fail(EX_USAGE, "--ckpt is '%s', not newest, best, graded or the number of a step", which);
    int found = is_step ? find_step(out_dir, step, path, &saved) : find_newest(out_dir, path, &saved);
    if (found > 0) saved_state_settings(&saved, settings);
    step = saved.state.best_step; // 0: no step was better than the initial weights, which are not saved
    if (found > 0 && !*which) best = !settings->always_save_checkpoint && step;
    if (found > 0 && best && step != saved.state.step) {
        const bool has_best = isfinite(saved.state.best_loss);
        saved_state_close(&saved);
        found = step ? find_step(out_dir, step, path, &saved)
                     : fail(EX_NOINPUT,
                            has_best ? "the lowest loss of the run in '%s' is that before its first step, of which "
                                       "there is no checkpoint"
                                     : "the run in '%s' has no finite validation loss",
                            out_dir);
    }
    saved_state_close(&saved);
    return found;
}
