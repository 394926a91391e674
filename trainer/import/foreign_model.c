// Which reader a file has, the checks that all share, and writing the model.
#include "trainer/import/foreign_model.h"
#include "common/err.h"
#include "common/file/file.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/import/foreign_model_internal.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

int foreign_shape(ModelShape *shape, const ForeignSizes *sizes) {
    if (sizes->layers < 1 || sizes->layers > 1024 || sizes->heads < 1 || sizes->heads > 1024 || sizes->channels < 1 ||
        sizes->channels > 1 << 16 || sizes->channels % sizes->heads || sizes->block < 1 || sizes->block > 1 << 16 ||
        sizes->vocab < 1 || sizes->vocab > IDS_MAX)
        return fail(EX_DATA,
                    "it describes no usable model: %lld layers, %lld heads, width %lld, context %lld, %lld ids",
                    (long long)sizes->layers, (long long)sizes->heads, (long long)sizes->channels,
                    (long long)sizes->block, (long long)sizes->vocab);
    *shape = (ModelShape){.layers = (int)sizes->layers,
                          .heads = (int)sizes->heads,
                          .kv_heads = (int)sizes->heads,
                          .channels = (int)sizes->channels,
                          .block = (int)sizes->block,
                          .vocab = (int)sizes->vocab,
                          .padded_vocab = padded_vocab((int)sizes->vocab),
                          .end_of_text = GPT2_VOCAB - 1, // of another vocabulary its own: cmd_import_model.c
                          .gpt2_vocab = sizes->vocab == GPT2_VOCAB};
    return 0;
}

void foreign_begin(ForeignModel *foreign, const ModelShape *shape) {
    model_open(&foreign->model, shape);
    foreign->tensors = arena_push(&foreign->arena, (size_t)foreign->model.count * sizeof *foreign->tensors);
}

// ---- opening

// The first bytes of files. Without a reader: the kind of the file.
static const struct {
    uint32_t magic;
    const char *format;
    int (*open)(ForeignModel *foreign, Bytes file, bool exact_gelu);
    const char *is;
} formats[] = {
    {0x04034b50, "nanoGPT", nanogpt_open, NULL},
    {20240326, "llm.c", llmc_open, NULL},
    {20240327, NULL, NULL, "the debug state of llm.c: name the model, as gpt2_124M.bin"},
    {20240328, NULL, NULL, "the tokenizer of llm.c: name the model, as gpt2_124M.bin"},
    {20240520, NULL, NULL, "tokens of llm.c: `millrace import-tokens --format llmc` reads them"},
    {20240527, NULL, NULL, "the optimizer's state of llm.c: name the model, as model_N.bin"},
    {20240803, NULL, NULL, "a Llama 3 of llm.c, which is another architecture"},
    {0x0a8a0280, NULL, NULL, "of a torch.save before version 1.6: save it again with a later one"},
};

static int find_reader(ForeignModel *foreign, Bytes file, bool exact_gelu) {
    const uint32_t magic = file.size >= 4 ? get_u32(file.data) : 0;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (formats[i].magic != magic) continue;
        foreign->format = formats[i].format;
        return formats[i].open ? formats[i].open(foreign, file, exact_gelu) : fail(EX_DATA, "it is %s", formats[i].is);
    }
    return fail(EX_DATA, "it is neither a ckpt.pt of nanoGPT nor a model of llm.c%s",
                file.size > 8 && get_u64(file.data) < file.size && file.data[8] == '{'
                    ? ", but a safetensors file: --init_from=DIR reads the folder that has it and its config.json"
                    : "");
}

static size_t elements(const Tensor *tensor) { return (size_t)tensor->file_rows * (size_t)tensor->cols; }

static int check_finite(const ForeignModel *foreign) {
    uint64_t bad = 0;
    const char *first = "";
    for (int i = 0; i < foreign->model.count; i++) {
        const ForeignTensor *tensor = &foreign->tensors[i];
        for (size_t k = 0; k < elements(&foreign->model.tensors[i]); k++)
            if (!isfinite(dtype_value(tensor->type, tensor->data, k)) && !bad++) first = foreign->model.tensors[i].name;
    }
    if (!bad) return 0;
    return fail(EX_DATA, "%llu of its numbers %s not finite, the first in '%s'", (unsigned long long)bad,
                bad == 1 ? "is" : "are", first);
}

int foreign_open_bytes(ForeignModel *foreign, Bytes bytes, bool exact_gelu) {
    *foreign = (ForeignModel){0};
    if (find_reader(foreign, bytes, exact_gelu) == 0 && check_finite(foreign) == 0) return 0;
    foreign_close(foreign);
    return -1;
}

// A folder of torch.distributed.checkpoint has .metadata, one that transformers saved has config.json.
static int refuse_folder(const char *path) {
    char file[PATH_MAX_BYTES];
    if (!access(path_join(file, path, "config.json"), F_OK))
        return fail(EX_DATA, "'%s' is the folder of a model: --init_from=%s reads it as it is", path, path);
    if (access(path_join(file, path, ".metadata"), F_OK)) return 0;
    return fail(EX_DATA,
                "'%s' is a folder of torch.distributed.checkpoint: torch.distributed.checkpoint.format_utils."
                "dcp_to_torch_save('%s', 'ckpt.pt') makes a file of it",
                path, path);
}

int foreign_open(ForeignModel *foreign, const char *path, bool exact_gelu) {
    Bytes map;
    *foreign = (ForeignModel){0};
    if (refuse_folder(path) < 0) return -1;
    if (file_map(&map, path) < 0) return -1;
    if (foreign_open_bytes(foreign, map, exact_gelu) < 0) {
        file_unmap(&map);
        return fail_in("'%s'", path);
    }
    foreign->map = map;
    return 0;
}

void foreign_close(ForeignModel *foreign) {
    model_close(&foreign->model);
    arena_close(&foreign->arena);
    file_unmap(&foreign->map);
    *foreign = (ForeignModel){0};
}

// ---- writing

// One row of the file at a time; a vector is one row. Zeros are written for a bias that the model does not have,
// because transformers' GPT-2 always has biases, and for the rows after the first `present`.
static int write_tensor(SafeWriter *writer, const Tensor *tensor, const ForeignTensor *from, size_t present) {
    const bool turned = tensor_transposed(tensor) || tensor->cols == 1;
    const size_t rows = (size_t)tensor->file_rows, cols = (size_t)tensor->cols;
    const size_t lines = turned ? cols : rows, length = turned ? rows : cols;
    float *line = allocate_zeroed(length, sizeof *line);
    int result = 0;
    for (size_t n = 0; n < lines && result == 0; n++) {
        for (size_t i = 0; from && i < length; i++)
            line[i] =
                turned || n < present ? dtype_value(from->type, from->data, turned ? i * cols + n : n * cols + i) : 0;
        result = safe_write(writer, line, length);
    }
    free(line);
    return result;
}

int foreign_write(const ForeignModel *foreign, const char *path, const ModelShape *shape) {
    ModelShape whole = *shape;
    Model all;
    SafeWriter writer;
    whole.bias = true;
    int result = safe_create(&writer, path, DTYPE_FP32);
    if (result < 0) return -1;
    model_open(&all, &whole);
    checkpoint_name_tensors(&writer, &all);
    for (int i = 0; i < all.count && result == 0; i++) {
        const Tensor *own = model_tensor(&foreign->model, all.tensors[i].id, all.tensors[i].layer);
        const ForeignTensor *from = own ? &foreign->tensors[own - foreign->model.tensors] : NULL;
        result = write_tensor(&writer, &all.tensors[i], from, own ? (size_t)own->file_rows : 0);
    }
    model_close(&all);
    if (result == 0) result = safe_finish(&writer, NULL);
    safe_abandon(&writer);
    return result;
}
