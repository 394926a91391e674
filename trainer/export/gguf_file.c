// Writing GGUF files.
#include "trainer/export/gguf_file.h"
#include "common/err.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { VERSION = 3, ALIGNMENT = 32, PIECE = 4096 };
enum { VALUE_U32 = 4, VALUE_I32 = 5, VALUE_F32 = 6, VALUE_BOOL = 7, VALUE_TEXT = 8, VALUE_ARRAY = 9 };

static const struct {
    uint32_t number, file_type; // of a tensor, and of a file whose matrices have it
    uint64_t values, bytes;     // of a block
} types[GGUF_TYPES] = {
    [DTYPE_FP32] = {0, 0, 1, 4},
    [DTYPE_FP16] = {1, 1, 1, 2},
    [DTYPE_BF16] = {30, 32, 1, 2},
    [GGUF_Q8_0] = {8, 7, GGUF_Q8_0_VALUES, 2 + GGUF_Q8_0_VALUES},
};

const char *gguf_type_name(GgufType type) { return type == GGUF_Q8_0 ? "q8_0" : dtype_name((Dtype)type); }

// ---- pairs

static void add_u32(Buffer *out, uint32_t number) { buffer_add(out, &number, sizeof number); }
static void add_u64(Buffer *out, uint64_t number) { buffer_add(out, &number, sizeof number); }
static void add_string(Buffer *out, Bytes text) {
    add_u64(out, text.size);
    buffer_add(out, text.data, text.size);
}

static void add_key(GgufFile *gguf, const char *key, uint32_t type) {
    add_string(&gguf->pairs, bytes_of_text(key));
    add_u32(&gguf->pairs, type);
    gguf->pair_count++;
}

void gguf_add_number(GgufFile *gguf, const char *key, uint32_t number) {
    add_key(gguf, key, VALUE_U32);
    add_u32(&gguf->pairs, number);
}

void gguf_add_real(GgufFile *gguf, const char *key, float number) {
    add_key(gguf, key, VALUE_F32);
    buffer_add(&gguf->pairs, &number, sizeof number);
}

void gguf_add_flag(GgufFile *gguf, const char *key, bool flag) {
    add_key(gguf, key, VALUE_BOOL);
    buffer_add(&gguf->pairs, &(uint8_t){flag}, 1);
}

void gguf_add_text(GgufFile *gguf, const char *key, Bytes text) {
    add_key(gguf, key, VALUE_TEXT);
    add_string(&gguf->pairs, text);
}

void gguf_add_type(GgufFile *gguf, GgufType type) {
    gguf_add_number(gguf, "general.file_type", types[type].file_type);
    gguf_add_number(gguf, "general.quantization_version", 2);
}

static void add_array(GgufFile *gguf, const char *key, uint32_t type, uint64_t count) {
    add_key(gguf, key, VALUE_ARRAY);
    add_u32(&gguf->pairs, type);
    add_u64(&gguf->pairs, count);
}

void gguf_add_texts(GgufFile *gguf, const char *key, uint64_t count) { add_array(gguf, key, VALUE_TEXT, count); }
void gguf_add_numbers(GgufFile *gguf, const char *key, uint64_t count) { add_array(gguf, key, VALUE_I32, count); }
void gguf_item_text(GgufFile *gguf, Bytes text) { add_string(&gguf->pairs, text); }
void gguf_item_number(GgufFile *gguf, int32_t number) { buffer_add(&gguf->pairs, &number, sizeof number); }

// ---- tensors

static uint64_t aligned(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

void gguf_name(GgufFile *gguf, const char *name, GgufType type, uint64_t rows, uint64_t cols) {
    gguf->tensors = array_grow(gguf->tensors, gguf->count, sizeof *gguf->tensors);
    const GgufTensor *last = gguf->count ? &gguf->tensors[gguf->count - 1] : NULL;
    GgufTensor *tensor = &gguf->tensors[gguf->count++];
    *tensor = (GgufTensor){.type = type, .rows = rows, .cols = cols};
    tensor->offset = last ? aligned(last->offset + last->bytes) : 0;
    tensor->bytes = rows * (cols ? cols : 1) / types[type].values * types[type].bytes;
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
}

static int pad(GgufFile *gguf, uint64_t bytes) {
    static const char zeros[ALIGNMENT];
    return newfile_write(&gguf->file, zeros, aligned(bytes) - bytes);
}

int gguf_open(GgufFile *gguf, const char *path) {
    Buffer head = {0};
    buffer_print(&head, "GGUF");
    add_u32(&head, VERSION);
    add_u64(&head, gguf->count);
    add_u64(&head, gguf->pair_count);
    buffer_add(&head, gguf->pairs.data, gguf->pairs.size);
    for (size_t i = 0; i < gguf->count; i++) {
        const GgufTensor *tensor = &gguf->tensors[i];
        add_string(&head, bytes_of_text(tensor->name));
        add_u32(&head, tensor->cols ? 2 : 1);
        if (tensor->cols) add_u64(&head, tensor->cols);
        add_u64(&head, tensor->rows);
        add_u32(&head, types[tensor->type].number);
        add_u64(&head, tensor->offset);
    }
    int result = newfile_open(&gguf->file, path);
    if (result == 0) result = newfile_write(&gguf->file, head.data, head.size);
    if (result == 0) result = pad(gguf, head.size);
    buffer_close(&head);
    return result;
}

// ---- numbers

// The scale of a block is its largest magnitude / 127. False, with the place of the number, if the file cannot hold it.
static bool convert_q8_0(uint8_t *to, const float *values, size_t count, size_t *bad) {
    for (size_t first = 0; first < count; first += GGUF_Q8_0_VALUES, to += types[GGUF_Q8_0].bytes) {
        size_t most = first;
        for (*bad = first; *bad < first + GGUF_Q8_0_VALUES; ++*bad) {
            if (!isfinite(values[*bad])) return false;
            if (fabsf(values[*bad]) > fabsf(values[most])) most = *bad;
        }
        *bad = most;
        const float scale = fabsf(values[most]) / 127, inverse = scale > 0x1p-128f ? 1 / scale : 0;
        if (!isfinite(fp16_value(fp16_of(scale)))) return false;
        put_u16(to, fp16_of(scale));
        for (size_t i = 0; i < GGUF_Q8_0_VALUES; i++) to[2 + i] = (uint8_t)(int8_t)roundf(values[first + i] * inverse);
    }
    return true;
}

static bool convert(uint8_t *to, GgufType type, const float *values, size_t count, size_t *bad) {
    if (type == GGUF_Q8_0) return convert_q8_0(to, values, count, bad);
    dtype_write(to, (Dtype)type, values, count);
    for (*bad = 0; *bad < count; ++*bad)
        if (isfinite(values[*bad]) && !isfinite(dtype_value((Dtype)type, to, *bad))) return false;
    return true;
}

int gguf_write(GgufFile *gguf, const float *values, size_t count) {
    const GgufTensor *tensor = &gguf->tensors[gguf->at];
    for (size_t first = 0; first < count; first += PIECE) {
        const size_t n = count - first < PIECE ? count - first : PIECE;
        const uint64_t bytes = n / types[tensor->type].values * types[tensor->type].bytes;
        uint8_t converted[PIECE * sizeof *values];
        size_t bad;
        if (!convert(converted, tensor->type, values + first, n, &bad))
            return fail(EX_DATA, "'%s' has the value %g, which %s cannot hold: use bfloat16", tensor->name,
                        (double)values[first + bad], gguf_type_name(tensor->type));
        if (newfile_write(&gguf->file, converted, bytes) < 0) return -1;
        gguf->written += bytes;
    }
    assert(gguf->written <= tensor->bytes);
    if (gguf->written < tensor->bytes) return 0;
    gguf->at++, gguf->written = 0;
    return pad(gguf, tensor->bytes);
}

int gguf_commit(GgufFile *gguf) {
    assert(gguf->at == gguf->count);
    return newfile_commit(&gguf->file);
}

void gguf_abandon(GgufFile *gguf) {
    newfile_abandon(&gguf->file);
    buffer_close(&gguf->pairs);
    free(gguf->tensors);
    *gguf = (GgufFile){0};
}
