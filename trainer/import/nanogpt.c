// nanoGPT's ckpt.pt: a zip archive of torch.save with data.pkl, a dict with "model" (the tensors) and "model_args" (the
// shape), and data/N, the numbers of the tensors.
#include "common/err.h"
#include "common/log.h"
#include "trainer/import/foreign_model_internal.h"
#include "trainer/import/pickle.h"
#include "trainer/import/stored_zip.h"
#include <stdio.h>

typedef struct {
    StoredZip zip;
    Bytes folder;               // of data.pkl, with the slash
    const PickleValue *tensors; // a dict
    const char *prefix;         // of every name in it
    Arena *arena;
} Checkpoint;

// The member FOLDER/NAME of the archive, or NULL.
static const ZipMember *find_member(const Checkpoint *checkpoint, const char *name, Bytes more) {
    Buffer path = {0};
    buffer_add(&path, checkpoint->folder.data, checkpoint->folder.size);
    buffer_add(&path, name, strlen(name));
    buffer_add(&path, more.data, more.size);
    const ZipMember *found = stored_zip_find(&checkpoint->zip, (Bytes){path.data, path.size});
    buffer_close(&path);
    return found;
}

// data.pkl in the only folder of the archive, which has the name of the file that torch.save wrote.
static const ZipMember *find_pickle(Checkpoint *checkpoint) {
    static const char name[] = "data.pkl";
    const size_t length = sizeof name - 1;
    enum { FOLDER_MAX = 256 };
    for (size_t i = 0; i < checkpoint->zip.count; i++) {
        const Bytes path = checkpoint->zip.members[i].name;
        if (path.size < length || path.size - length > FOLDER_MAX) continue;
        checkpoint->folder = (Bytes){path.data, path.size - length};
        if (!memcmp(path.data + path.size - length, name, length)) return &checkpoint->zip.members[i];
    }
    return NULL;
}

static int check_byte_order(const Checkpoint *checkpoint) {
    const ZipMember *order = find_member(checkpoint, "byteorder", (Bytes){(const uint8_t *)"", 0});
    if (!order || (order->data.size == 6 && !memcmp(order->data.data, "little", 6))) return 0;
    return fail(EX_DATA, "its numbers are not little-endian");
}

static int open_pickle(Checkpoint *checkpoint, Arena *arena, Bytes file, const PickleValue **root) {
    if (stored_zip_open(&checkpoint->zip, arena, file) < 0) return -1;
    const ZipMember *pickle = find_pickle(checkpoint);
    if (!pickle) return fail(EX_DATA, "the zip archive holds no data.pkl, which torch.save writes");
    if (zip_member_check(pickle) < 0 || check_byte_order(checkpoint) < 0) return -1;
    *root = pickle_read(arena, pickle->data);
    return *root ? 0 : -1;
}

// ---- shape

static int take_size(const PickleValue *arguments, const char *key, int64_t *size) {
    const PickleValue *found = pickle_find(arguments, key);
    if (!found || found->kind != PICKLE_INT) return fail(EX_DATA, "its model_args have no number '%s'", key);
    *size = found->integer;
    return 0;
}

static bool has_name(const PickleValue *dict, const char *part) {
    for (size_t i = 0; dict && dict->kind == PICKLE_DICT && i < dict->items.count; i += 2) {
        const PickleValue *name = dict->items.at[i];
        if (name->kind == PICKLE_TEXT && memmem(name->text.data, name->text.size, part, strlen(part))) return true;
    }
    return false;
}

// Refuses a checkpoint that is not nanoGPT's, with its kind: tensors alone, or of another program.
static int refuse_other(const PickleValue *root) {
    const PickleValue *model = pickle_find(root, "model"), *tensors = model ? model : root;
    const char *is = pickle_find(root, "pytorch-lightning_version") ? "a checkpoint of Lightning"
                     : has_name(tensors, "attn.c_q.weight") ? "a model of nanochat, which is another architecture"
                     : has_name(tensors, ".norm_1.weight")  ? "a model of litgpt, which has other names"
                     : has_name(tensors, "wte.weight")      ? "the state_dict of a model alone"
                                                            : NULL;
    return fail(EX_DATA, "it has no 'model' and 'model_args', as a checkpoint of nanoGPT has%s%s%s",
                is ? ": it is " : "", is ? is : "",
                is ? "; save {'model': state_dict, 'model_args': {...}} of a GPT-2 with nanoGPT's names" : "");
}

// A key that nanoGPT does not have, as a fork's, may change what the model computes. One that is off does not.
static void warn_other(const PickleValue *arguments) {
    static const char known[] = " n_layer n_head n_embd block_size vocab_size bias dropout ";
    for (size_t i = 0; arguments->kind == PICKLE_DICT && i < arguments->items.count; i += 2) {
        const PickleValue *key = arguments->items.at[i], *value = arguments->items.at[i + 1];
        char word[64];
        if (key->kind != PICKLE_TEXT || value->kind == PICKLE_NONE || (value->kind == PICKLE_BOOL && !value->integer))
            continue;
        snprintf(word, sizeof word, " %.*s ", key->text.size < 50 ? (int)key->text.size : 50,
                 (const char *)key->text.data);
        if (!strstr(known, word))
            log_warn("its model_args have '%.*s', which nanoGPT's do not: if it changes what the model computes, the "
                     "imported model computes something else",
                     (int)strlen(word) - 2, word + 1);
    }
}

static int take_shape(ModelShape *shape, int64_t *vocab, const PickleValue *root) {
    const PickleValue *arguments = pickle_find(root, "model_args"), *bias = pickle_find(arguments, "bias");
    ForeignSizes sizes;
    const PickleValue *tensors = pickle_find(root, "model");
    if (!arguments || !tensors || tensors->kind != PICKLE_DICT) return refuse_other(root);
    if (take_size(arguments, "n_layer", &sizes.layers) < 0 || take_size(arguments, "n_head", &sizes.heads) < 0 ||
        take_size(arguments, "n_embd", &sizes.channels) < 0 || take_size(arguments, "block_size", &sizes.block) < 0 ||
        take_size(arguments, "vocab_size", vocab) < 0)
        return -1;
    // nanoGPT pads GPT-2's vocabulary; the ids after it never occur in a text.
    sizes.vocab = *vocab == padded_vocab(GPT2_VOCAB) ? GPT2_VOCAB : *vocab;
    if (foreign_shape(shape, &sizes) < 0) return -1;
    warn_other(arguments);
    shape->bias = !bias || bias->kind != PICKLE_BOOL || bias->integer; // files without the key have biases
    return 0;
}

// ---- tensors

static PickleValue *find_tensor(const Checkpoint *checkpoint, const char *name) {
    char path[SAFE_NAME_BYTES];
    snprintf(path, sizeof path, "%s%s", checkpoint->prefix, name);
    PickleValue *found = pickle_find(checkpoint->tensors, path);
    return found && found->kind == PICKLE_TENSOR ? found : NULL;
}

// The numbers of a contiguous tensor, in their file of the archive.
static int take_data(ForeignTensor *to, const Checkpoint *checkpoint, const PickleValue *tensor, uint64_t count) {
    const PickleValue *storage = tensor->tensor.storage;
    const bool is_double = storage->storage.is_double;
    const uint64_t bytes = is_double ? sizeof(double) : dtype_bytes(storage->storage.type),
                   first = tensor->tensor.first;
    const ZipMember *member = find_member(checkpoint, "data/", storage->storage.key);
    if (!member) return fail(EX_DATA, "the file of its numbers is missing in the archive");
    if (zip_member_check(member) < 0) return -1;
    const uint64_t present = member->data.size / bytes;
    if (first > present || count > present - first)
        return fail(EX_DATA, "it has %llu numbers from number %llu on, in a file of %llu", (unsigned long long)count,
                    (unsigned long long)first, (unsigned long long)present);
    *to = (ForeignTensor){member->data.data + first * bytes, storage->storage.type};
    if (!is_double) return 0;
    float *rounded = arena_push(checkpoint->arena, count * sizeof *rounded);
    for (uint64_t i = 0; i < count; i++) {
        double number;
        memcpy(&number, to->data + i * bytes, sizeof number);
        rounded[i] = (float)number;
    }
    to->data = (const uint8_t *)rounded;
    return 0;
}

// A tensor of `rows` x `cols`; cols 0: a vector.
static int take_tensor(ForeignTensor *to, const Checkpoint *checkpoint, const char *name, int64_t rows, int64_t cols) {
    PickleValue *found = find_tensor(checkpoint, name);
    if (!found) return fail(EX_DATA, "there is no tensor '%s'", name);
    const PickleItems *shape = &found->tensor.shape->items, *strides = &found->tensor.strides->items;
    const bool matrix = cols > 0;
    if (shape->count != 1u + matrix || shape->at[0]->integer != rows || (matrix && shape->at[1]->integer != cols))
        return fail(EX_DATA, "'%s' has another shape than the model's %lld x %lld", name, (long long)rows,
                    (long long)(matrix ? cols : 1));
    if (strides->at[matrix]->integer != 1 || (matrix && strides->at[0]->integer != cols))
        return fail(EX_DATA, "'%s' is not contiguous: save it after .contiguous()", name);
    found->tensor.used = true;
    if (take_data(to, checkpoint, found, (uint64_t)rows * (uint64_t)(matrix ? cols : 1)) < 0)
        return fail_in("'%s'", name);
    return 0;
}

static int take_tensors(ForeignModel *foreign, const Checkpoint *checkpoint, int64_t vocab) {
    const Model *model = &foreign->model;
    for (int i = 0; i < model->count; i++) {
        const Tensor *tensor = &model->tensors[i];
        const int64_t rows = tensor->id == PARAM_WTE || tensor->id == PARAM_HEAD ? vocab : tensor->rows;
        char name[SAFE_NAME_BYTES];
        snprintf(name, sizeof name, "%s%s", tensor_prefix(tensor), tensor->name);
        if (take_tensor(&foreign->tensors[i], checkpoint, name, rows, tensor->kind >= KIND_GAIN ? 0 : tensor->cols) < 0)
            return -1;
    }
    return 0;
}

static bool is_mask(Bytes name) { // the causal mask, a buffer of older files
    static const char end[] = ".attn.bias";
    return name.size >= sizeof end - 1 && !memcmp(name.data + name.size - (sizeof end - 1), end, sizeof end - 1);
}

static int check_left_over(const Checkpoint *checkpoint) {
    const PickleItems *items = &checkpoint->tensors->items;
    for (size_t i = 0; i < items->count; i += 2) {
        const PickleValue *name = items->at[i], *value = items->at[i + 1];
        if (name->kind != PICKLE_TEXT) return fail(EX_DATA, "the name of a tensor is not text");
        if ((value->kind == PICKLE_TENSOR && value->tensor.used) || is_mask(name->text)) continue;
        return fail(EX_DATA, "'%.*s' is not a tensor of the model that its model_args describe",
                    name->text.size < 100 ? (int)name->text.size : 100, (const char *)name->text.data);
    }
    return 0;
}

// Whether lm_head has other weights than the embedding. Marks it as used if it has the same.
static int find_head(const Checkpoint *checkpoint, ModelShape *shape, int64_t vocab) {
    static const char head_name[] = "lm_head.weight", embedding_name[] = "transformer.wte.weight";
    ForeignTensor head, embedding;
    if (!find_tensor(checkpoint, head_name)) return 0;
    if (take_tensor(&head, checkpoint, head_name, vocab, shape->channels) < 0 ||
        take_tensor(&embedding, checkpoint, embedding_name, vocab, shape->channels) < 0)
        return -1;
    const size_t bytes = (size_t)vocab * (size_t)shape->channels * dtype_bytes(head.type);
    shape->untied =
        head.type != embedding.type || (head.data != embedding.data && memcmp(head.data, embedding.data, bytes));
    return 0;
}

int nanogpt_open(ForeignModel *foreign, Bytes file, bool exact_gelu) {
    // of a model that torch.compile has wrapped, DistributedDataParallel, or both
    static const char *const prefixes[] = {"_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module.", ""};
    Checkpoint checkpoint = {.arena = &foreign->arena};
    const PickleValue *root = NULL;
    ModelShape shape;
    int64_t vocab = 0;
    if (open_pickle(&checkpoint, &foreign->arena, file, &root) < 0 || take_shape(&shape, &vocab, root) < 0) return -1;
    checkpoint.tensors = pickle_find(root, "model");
    shape.activation = exact_gelu ? ACTIVATION_GELU : ACTIVATION_GELU_TANH;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        checkpoint.prefix = prefixes[i];
        if (find_tensor(&checkpoint, "transformer.wte.weight")) break;
    }
    if (find_head(&checkpoint, &shape, vocab) < 0) return -1;
    foreign_begin(foreign, &shape);
    return take_tensors(foreign, &checkpoint, vocab) < 0 ? -1 : check_left_over(&checkpoint);
}
