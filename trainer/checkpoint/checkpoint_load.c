// Reading the tensors of a model directory, a checkpoint or one made by others, into the network.
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include "common/machine/pool.h"
#include "common/sizes.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/checkpoint/saved_state.h"
#include <fnmatch.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// The safetensors files of a directory: one, or the shards that an index lists.
typedef struct {
    SafeFile *files;
    char (*paths)[PATH_MAX_BYTES];
    size_t count;
} TensorFiles;

static void files_close(TensorFiles *files) {
    for (size_t i = 0; i < files->count; i++) safe_close(&files->files[i]);
    free(files->files);
    free(files->paths);
    *files = (TensorFiles){0};
}

static int files_add(TensorFiles *files, const char *directory, const char *name) {
    char path[PATH_MAX_BYTES];
    path_join(path, directory, "%s", name);
    for (size_t i = 0; i < files->count; i++)
        if (!strcmp(files->paths[i], path)) return 0;
    files->files = array_grow(files->files, files->count, sizeof *files->files);
    files->paths = array_grow(files->paths, files->count, sizeof *files->paths);
    memcpy(files->paths[files->count], path, sizeof path);
    if (safe_open(&files->files[files->count], path) < 0) return -1;
    files->count++;
    return 0;
}

// The shards of an index: {"weight_map": {TENSOR: FILE}}.
static int open_index(TensorFiles *files, const char *directory, const char *path) {
    Buffer text = {0};
    if (file_read(&text, path, 16 << 20) < 0) return -1;
    json_t *root = json_loadb((const char *)text.data, text.size, 0, NULL), *file;
    json_t *map = json_object_get(root, "weight_map");
    const char *tensor;
    int result = json_object_size(map) ? 0 : fail(EX_DATA, "'%s' has no weight_map", path);
    json_object_foreach(map, tensor, file) {
        const char *name = json_string_value(file);
        if (result == 0 && (!name || strchr(name, '/') || strlen(name) > NAME_MAX))
            result = fail(EX_DATA, "'%s': '%s' is not in a file of the directory", path, tensor);
        if (result == 0) result = files_add(files, directory, name);
    }
    json_decref(root);
    buffer_close(&text);
    return result;
}

static int files_open(TensorFiles *files, const char *directory) {
    static const char single[] = "model.safetensors", index[] = "model.safetensors.index.json";
    char path[PATH_MAX_BYTES];
    *files = (TensorFiles){0};
    if (access(path_join(path, directory, "%s", single), F_OK) == 0) return files_add(files, directory, single);
    if (access(path_join(path, directory, "%s", index), F_OK) == 0) return open_index(files, directory, path);
    return fail(EX_NOINPUT, "there is no %s in '%s'", single, directory);
}

static SafeTensor *find_tensor(const TensorFiles *files, const char *name, const SafeFile **file) {
    for (size_t i = 0; i < files->count; i++) {
        SafeTensor *found = safe_find(*file = &files->files[i], name);
        if (found) return found;
    }
    return NULL;
}

// ---- one tensor

#define FILE_NAME(NAME, name, number, word, file, ...) " " file

// The destination of a tensor: ranges of the plan and their types.
typedef struct {
    size_t offset; // of the tensor in each range, in elements
    const size_t *ranges;
    const Dtype *types;
    int range_count;
} Destination;

// A tensor to be loaded.
typedef struct {
    const Network *network;
    const TensorFiles *files;
    const char *prefix;
    const Tensor *tensor;
    bool transposed;
    unsigned added; // of the rows of embedding and head, the last that the file lacks
    Destination to;
    size_t piece; // the elements of the staging buffer that a thread has
} Loading;

static void write_values(const Loading *loading, size_t first, size_t count, const float *values) {
    const Destination *to = &loading->to;
    for (int i = 0; i < to->range_count; i++)
        network_write(loading->network, to->ranges[i], to->types[i], to->offset + first, count, values);
}

// Fills the rows that the file lacks with the mean of its `old` rows. With zeros, or numbers around it, their logits
// would lie far above the logits of the other ids, which training has moved down together.
static void add_mean_rows(const Loading *loading, Dtype type, const uint8_t *data, size_t old, float *values) {
    const size_t cols = (size_t)loading->tensor->cols;
    double *sums = allocate_zeroed(cols, sizeof *sums);
    for (size_t i = 0; i < old * cols; i++) sums[i % cols] += (double)dtype_value(type, data, i);
    for (size_t c = 0; c < cols; c++) values[c] = (float)(sums[c] / (double)old);
    for (size_t row = old; row < old + loading->added; row++) write_values(loading, row * cols, cols, values);
    free(sums);
}

// Rows [first, first + count) of a matrix of which the file has the columns, (cols,rows).
static void read_turned(float *values, Dtype type, const uint8_t *data, size_t rows, size_t cols, size_t first,
                        size_t count) {
    enum { TILE = 16 }; // a cache line of floats
    float tile[TILE][TILE];
    for (size_t at = 0; at < count; at += TILE)
        for (size_t col = 0; col < cols; col += TILE) {
            const size_t n = count - at < TILE ? count - at : TILE, across = cols - col < TILE ? cols - col : TILE;
            for (size_t c = 0; c < across; c++)
                dtype_read(tile[c], type, data + ((col + c) * rows + first + at) * dtype_bytes(type), n);
            for (size_t r = 0; r < n; r++)
                for (size_t c = 0; c < across; c++) values[(at + r) * cols + col + c] = tile[c][r];
        }
}

static int load_tensor(void *job, unsigned worker) {
    const Loading *loading = job;
    const Tensor *tensor = loading->tensor;
    const bool transposed = loading->transposed;
    float *values = loading->network->staging + worker * loading->piece;
    char name[SAFE_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", loading->prefix, tensor->name);
    const SafeFile *file;
    SafeTensor *found = find_tensor(loading->files, name, &file);
    const uint64_t rows = (uint64_t)tensor->file_rows - loading->added, cols = (uint64_t)tensor->cols;
    Dtype type;
    if (!found) return fail(EX_DATA, "there is no tensor '%s'", name);
    if (!dtype_parse_file_name(found->dtype, &type))
        return fail(EX_DATA, "'%s' is of type %s, and these are read:" DTYPES(FILE_NAME, ), name, found->dtype);
    // The first rows are loaded of the positions, and of an embedding that other tools padded as it is padded here.
    bool vector = tensor->kind >= KIND_GAIN, cropped = tensor->id == PARAM_WPE;
    const uint64_t padded = loading->added ? (uint64_t)padded_vocab((int)rows) : (uint64_t)tensor->rows;
    bool fits = vector ? found->dims == 1 && found->shape[0] == rows
                       : found->dims == 2 && found->shape[!transposed] == cols &&
                             (cropped ? found->shape[0] >= rows
                                      : found->shape[transposed] == rows || (!transposed && found->shape[0] == padded));
    if (!fits)
        return fail(EX_DATA, "'%s' has another shape than the model's %llu x %llu", name, (unsigned long long)rows,
                    (unsigned long long)cols);
    if (safe_check(file, found) < 0) return -1;
    found->used = true;
    const uint8_t *data = file->data + found->begin;
    const size_t most = transposed ? loading->piece / cols : loading->piece; // rows or elements at a time
    const size_t total = transposed ? rows : (size_t)(rows * cols), each = transposed ? cols : 1;
    for (size_t first = 0; first < total; first += most) {
        const size_t n = total - first < most ? total - first : most;
        if (transposed)
            read_turned(values, type, data, rows, cols, first, n);
        else
            dtype_read(values, type, data + first * dtype_bytes(type), n);
        write_values(loading, first * each, n * each, values);
    }
    if (loading->added) add_mean_rows(loading, type, data, (size_t)rows, values);
    return 0;
}

// In host memory by all threads, each with a part of the staging buffer.
static int load_tensors(Network *network, Loading *jobs, size_t count) {
    enum { PIECE = 1 << 16 }; // fits the cache of a core
    const bool together = network->ops->in_host_memory;
    const size_t staging = network->plan->staging / sizeof(float);
    size_t piece = together ? PIECE : staging;
    Network shared = *network;
    int result = 0;
    for (size_t i = 0; i < count; i++) piece = size_larger(piece, (size_t)jobs[i].tensor->cols);
    for (size_t i = 0; i < count; i++) jobs[i].network = together ? &shared : network, jobs[i].piece = piece;
    if (!together) {
        for (size_t i = 0; i < count && result == 0; i++) result = load_tensor(&jobs[i], 0);
        return result;
    }
    collective_settle(network->collective);
    shared.collective = &collective_none; // nothing is left to be settled by a thread
    const size_t parts = staging / piece, cores = pool_cores();
    return pool_run((unsigned)(parts < cores ? parts : cores), load_tensor, jobs, sizeof *jobs, (unsigned)count);
}

// ---- the model

static bool is_zero(const SafeFile *file, const SafeTensor *tensor) {
    for (uint64_t i = tensor->begin; i < tensor->end; i++)
        if (file->data[i]) return false;
    return true;
}

// Whether a tensor that the model does not have can be left out: the causal mask of older files, a copy of the
// embedding, or zero biases, which this trainer writes for models without biases.
static bool can_be_left_out(const TensorFiles *files, const SafeFile *file, const SafeTensor *tensor, bool bias) {
    if (fnmatch("*.attn.bias", tensor->name, 0) == 0 || fnmatch("*.attn.masked_bias", tensor->name, 0) == 0)
        return true;
    if (fnmatch("*.bias", tensor->name, 0) == 0) return !bias && is_zero(file, tensor);
    if (strcmp(tensor->name, "lm_head.weight")) return false;
    const SafeFile *other;
    const SafeTensor *wte = find_tensor(files, "transformer.wte.weight", &other);
    uint64_t bytes = tensor->end - tensor->begin;
    return wte && wte->end - wte->begin == bytes &&
           !memcmp(other->data + wte->begin, file->data + tensor->begin, bytes);
}

static int check_left_out(const TensorFiles *files, bool bias) {
    enum { NAMED_MAX = 4 };
    Buffer names = {0};
    int count = 0;
    bool has_head = false;
    for (size_t i = 0; i < files->count; i++)
        for (size_t k = 0; k < files->files[i].count; k++) {
            const SafeTensor *tensor = &files->files[i].tensors[k];
            if (tensor->used || can_be_left_out(files, &files->files[i], tensor, bias)) continue;
            has_head |= !strcmp(tensor->name, "lm_head.weight");
            if (count++ < NAMED_MAX) buffer_print(&names, "%s'%s'", names.size ? ", " : "", tensor->name);
        }
    if (count > NAMED_MAX) buffer_print(&names, " and %d more", count - NAMED_MAX);
    int result = count
                     ? fail(EX_DATA, "not part of the model that config.json describes: %s%s", (const char *)names.data,
                            has_head ? "; a head of its own needs \"tie_word_embeddings\": false there" : "")
                     : 0;
    buffer_close(&names);
    return result;
}

// The tensors of optimizer.safetensors with the averaged weights.
static const char average_prefix[] = "ema.";

static int open_average(TensorFiles *files, const char *directory) {
    SavedState saved = {0};
    *files = (TensorFiles){0};
    if (saved_state_read(&saved, directory) < 0) return -1;
    const uint64_t updates = saved.state.updates;
    saved_state_close(&saved);
    if (files_add(files, directory, "optimizer.safetensors") < 0) return -1;
    for (size_t i = 0; updates && i < files->files->count; i++)
        if (!strncmp(files->files->tensors[i].name, average_prefix, sizeof average_prefix - 1)) return 0;
    return fail(EX_USAGE, "there are no averaged weights: the run has no --ema, or no update yet");
}

static int load_model(Network *network, const char *directory, unsigned added, bool average) {
    const MemoryPlan *plan = network->plan;
    const Model *model = network->model;
    const size_t ranges[] = {plan->params, plan->master};
    const Dtype types[] = {par_type(network->ops), DTYPE_FP32};
    const int range_count = plan->master == plan->params ? 1 : 2;
    TensorFiles files;
    const SafeFile *file;
    Loading *jobs = allocate_zeroed((size_t)model->count, sizeof *jobs);
    int result = (average ? open_average : files_open)(&files, directory);
    // Files of GPT2LMHeadModel have the prefix, GPT2Model's do not.
    const bool prefixed = result == 0 && find_tensor(&files, "transformer.wte.weight", &file);
    for (int i = 0; i < model->count; i++) {
        const Tensor *tensor = &model->tensors[i];
        jobs[i] = (Loading){.files = &files,
                            .prefix = average    ? average_prefix
                                      : prefixed ? tensor_prefix(tensor)
                                                 : "",
                            .tensor = tensor,
                            .transposed = !average && tensor_transposed(tensor),
                            .added = tensor->id == PARAM_WTE || tensor->id == PARAM_HEAD ? added : 0,
                            .to = {tensor->offset, ranges, types, range_count}};
    }
    if (result == 0) result = load_tensors(network, jobs, (size_t)model->count);
    if (result == 0 && !average) result = check_left_out(&files, network->model->shape.bias);
    if (result < 0) fail_in("'%s'", directory);
    files_close(&files);
    free(jobs);
    return result;
}

static int load_optimizer(Network *network, const char *directory) {
    const Model *model = network->model;
    const Optimizer *optimizer = network->plan->optimizer;
    const size_t states = (size_t)optimizer->state_count;
    Loading *jobs = allocate_zeroed(states * (size_t)model->count, sizeof *jobs);
    TensorFiles files = {0};
    Dtype types[OPTIMIZER_STATES];
    char prefixes[OPTIMIZER_STATES][32];
    size_t count = 0;
    int result = files_add(&files, directory, "optimizer.safetensors");
    for (size_t s = 0; s < states; s++) {
        const StateRange *state = &optimizer->states[s];
        types[s] = optimizer_dtype(state, network->ops); // the file has floats, which hold it exactly
        snprintf(prefixes[s], sizeof prefixes[s], "%s.", state->name);
        for (int i = 0; i < model->count; i++) {
            const Tensor *tensor = &model->tensors[i];
            if (!optimizer_has(state, tensor)) continue;
            jobs[count++] =
                (Loading){.files = &files,
                          .prefix = prefixes[s],
                          .tensor = tensor,
                          .to = {optimizer_offset(state, model, tensor), &network->plan->states[s], &types[s], 1}};
        }
    }
    if (result == 0) result = load_tensors(network, jobs, count);
    if (result < 0) fail_in("'%s'", directory);
    files_close(&files);
    free(jobs);
    return result;
}

static int load(Network *network, const char *path, bool optimizer, unsigned added, bool average) {
    if (load_model(network, path, added, average) < 0) return -1;
    if (optimizer && load_optimizer(network, path) < 0) return -1;
    if (!optimizer) network_reset_optimizer(network);
    network_pack(network);
    return 0;
}

int checkpoint_load(Network *network, const char *path, bool optimizer) {
    return load(network, path, optimizer, 0, false);
}

int checkpoint_load_average(Network *network, const char *path) { return load(network, path, false, 0, true); }

int checkpoint_load_model(Network *network, const char *path, unsigned added) {
    if (added)
        log_line(
            "the model in '%s' has no ids for %u markers of conversations: their embeddings begin as the mean of its "
            "others",
            path, added);
    return load(network, path, false, added, false);
}

// Writes a tensor of model.safetensors: its average, or, of a bias that the model lacks, its own values, which are 0.
static int write_average(SafeWriter *writer, const SafeTensor *tensor, const SafeFile *model,
                         const SafeFile *averages) {
    static const char whole_model[] = "transformer.";
    const size_t prefix = strncmp(tensor->name, whole_model, sizeof whole_model - 1) ? 0 : sizeof whole_model - 1;
    char name[SAFE_NAME_BYTES + sizeof average_prefix];
    snprintf(name, sizeof name, "%s%s", average_prefix, tensor->name + prefix);
    const SafeTensor *found = safe_find(averages, name);
    const SafeFile *file = found ? averages : model;
    if (!found) found = tensor;
    if (safe_check(file, found) < 0) return -1;
    const size_t count = (size_t)(tensor->end - tensor->begin) / sizeof(float);
    const size_t rows = (size_t)tensor->shape[0], cols = count / rows;
    if (strcmp(found->dtype, "F32") || found->end - found->begin != tensor->end - tensor->begin)
        return fail(EX_DATA, "'%s' has another type or shape than '%s'", found->name, tensor->name);
    const bool turned = fnmatch("*.c_*.weight", tensor->name, 0) == 0 && found != tensor; // Hugging Face's Conv1D
    float *values = allocate_zeroed(cols, sizeof *values);
    int result = 0;
    for (size_t r = 0; r < rows && result == 0; r++) {
        for (size_t c = 0; c < cols; c++)
            memcpy(&values[c], file->data + found->begin + (turned ? c * rows + r : r * cols + c) * sizeof *values,
                   sizeof *values);
        result = safe_write(writer, values, cols);
    }
    free(values);
    return result;
}

int checkpoint_write_average(const char *path, const char *to) {
    TensorFiles model = {0}, averages;
    SafeWriter writer = {0};
    int result = open_average(&averages, path);
    if (result == 0) result = files_open(&model, path);
    if (result == 0) result = safe_create(&writer, to, DTYPE_FP32);
    for (size_t i = 0; result == 0 && i < model.files->count; i++) {
        const SafeTensor *tensor = &model.files->tensors[i];
        safe_name(&writer, tensor->name, tensor->shape[0], tensor->dims == 2 ? tensor->shape[1] : 0);
    }
    for (size_t i = 0; result == 0 && i < model.files->count; i++)
        result = write_average(&writer, &model.files->tensors[i], model.files, averages.files);
    if (result == 0) result = safe_finish(&writer, NULL);
    if (result < 0) fail_in("'%s'", path);
    safe_abandon(&writer);
    files_close(&model), files_close(&averages);
    return result;
}
