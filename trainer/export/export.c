// Exporting a model, tensor by tensor from file to file.
#include "trainer/export/export.h"
#include "common/err.h"
#include "common/file/file.h"
#include "trainer/checkpoint/model_config.h"
#include "trainer/checkpoint/tokenizer_files.h"
#include "trainer/export/export_llama.h"
#include <math.h>

enum { PIECE = 64 << 10 };

int export_write(SafeWriter *writer, const char *name, const float *values, size_t count) {
    for (size_t i = 0; dtype_is_narrow(writer->type) && i < count; i++) {
        float stored = values[i];
        dtype_write(&stored, writer->type, &values[i], 1);
        if (isfinite(values[i]) && !isfinite(dtype_value(writer->type, &stored, 0)))
            return fail(EX_DATA, "'%s' has the value %g, which %s cannot hold: use bfloat16", name, (double)values[i],
                        dtype_name(writer->type));
    }
    return safe_write(writer, values, count);
}

static int copy_tensor(SafeWriter *writer, const SafeFile *file, const SafeTensor *tensor) {
    static float values[PIECE];
    if (safe_check(file, tensor) < 0) return -1;
    const size_t count = (size_t)(tensor->end - tensor->begin) / sizeof *values;
    for (size_t first = 0; first < count; first += PIECE) {
        const size_t n = count - first < PIECE ? count - first : PIECE;
        memcpy(values, file->data + tensor->begin + first * sizeof *values, n * sizeof *values);
        if (export_write(writer, tensor->name, values, n) < 0) return -1;
    }
    return 0;
}

static int copy_model(const char *from, const char *to, Dtype type) {
    SafeFile file;
    SafeWriter writer = {0};
    if (safe_open(&file, from) < 0) return -1;
    int result = safe_create(&writer, to, type);
    for (size_t i = 0; i < file.count && result == 0; i++) {
        const SafeTensor *tensor = &file.tensors[i];
        if (strcmp(tensor->dtype, "F32") || tensor->dims < 1 || tensor->dims > 2)
            result = fail(EX_DATA, "'%s': '%s' is not a matrix or vector of type F32, as checkpoints have them", from,
                          tensor->name);
        else
            safe_name(&writer, tensor->name, tensor->shape[0], tensor->dims == 2 ? tensor->shape[1] : 0);
    }
    for (size_t i = 0; i < file.count && result == 0; i++) result = copy_tensor(&writer, &file, &file.tensors[i]);
    if (result == 0) result = safe_finish(&writer, NULL);
    safe_abandon(&writer);
    safe_close(&file);
    return result;
}

int export_finish(const char *to, const ModelShape *shape, Dtype type) {
    char path[PATH_MAX_BYTES];
    Buffer text = {0};
    (model_is_gpt2(shape) ? model_config_print : llama_config_print)(shape, type, &text);
    int result = file_write(path_join(path, to, "config.json"), (Bytes){text.data, text.size});
    buffer_close(&text);
    return result < 0 ? -1 : tokenizer_files_write(to, shape, to, "");
}

int model_export(const char *from, const char *to, const ModelShape *shape, Dtype type) {
    char source[PATH_MAX_BYTES], path[PATH_MAX_BYTES];
    const bool gpt2 = model_is_gpt2(shape);
    if (!gpt2 && llama_check(shape) < 0) return -1;
    path_join(source, from, "model.safetensors"), path_join(path, to, "model.safetensors");
    int result = gpt2 ? copy_model(source, path, type) : llama_write(source, path, shape, type);
    return result < 0 ? -1 : export_finish(to, shape, type);
}
