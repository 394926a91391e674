// safetensors files.
#include "trainer/checkpoint/safetensors.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/hash.h"
#include "common/machine/pool.h"
#include "common/machine/stop.h"
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

// 1558M parameters need 0.2 MB of header; a file that claims more than this is not read into memory.
enum { HEADER_MAX_BYTES = 8 << 20 };

void safe_hash(const void *data, size_t size, uint8_t hash[SAFE_HASH_BYTES]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, size));
    memcpy(hash, canonical.digest, SAFE_HASH_BYTES);
}

// ---- writing

// Hashes have a fixed length, so the header's size is known before they are.
static void print_header(const SafeWriter *writer, Buffer *out) {
    buffer_print(out, "{\"__metadata__\":{\"format\":\"pt\"");
    for (size_t i = 0; i < writer->count; i++) {
        char hex[2 * SAFE_HASH_BYTES + 1];
        hex_encode(hex, writer->tensors[i].hash, SAFE_HASH_BYTES);
        buffer_print(out, ",\"hash.%s\":\"%s\"", writer->tensors[i].name, hex);
    }
    buffer_print(out, "}");
    for (size_t i = 0; i < writer->count; i++) {
        const SafeTensor *tensor = &writer->tensors[i];
        buffer_print(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%llu", tensor->name, tensor->dtype,
                     (unsigned long long)tensor->shape[0]);
        if (tensor->dims == 2) buffer_print(out, ",%llu", (unsigned long long)tensor->shape[1]);
        buffer_print(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)tensor->begin,
                     (unsigned long long)tensor->end);
    }
    buffer_print(out, "}");
    while (out->size % 8) buffer_print(out, " "); // data begins on 8 bytes
}

int safe_create(SafeWriter *writer, const char *path, Dtype type) {
    *writer = (SafeWriter){.path = path, .type = type, .fd = -1};
    if (path) writer->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (path && writer->fd < 0) return fail_create(path);
    writer->hasher = XXH3_createState();
    if (!writer->hasher) die(EX_MEMORY, "no memory for a hash");
    return 0;
}

void safe_name(SafeWriter *writer, const char *name, uint64_t rows, uint64_t cols) {
    writer->tensors = array_grow(writer->tensors, writer->count, sizeof *writer->tensors);
    uint64_t begin = writer->count ? writer->tensors[writer->count - 1].end : 0;
    SafeTensor *tensor = &writer->tensors[writer->count++];
    *tensor = (SafeTensor){.shape = {rows, cols}, .dims = cols ? 2 : 1, .begin = begin};
    snprintf(tensor->dtype, sizeof tensor->dtype, "%s", dtype_file_name(writer->type));
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->end = begin + rows * (cols ? cols : 1) * dtype_bytes(writer->type);
}

static int begin_data(SafeWriter *writer) {
    Buffer header = {0};
    print_header(writer, &header);
    writer->header_bytes = header.size;
    buffer_close(&header);
    if (writer->path && lseek(writer->fd, (off_t)(8 + writer->header_bytes), SEEK_SET) < 0)
        return fail_errno("cannot seek in '%s'", writer->path);
    XXH3_128bits_reset(writer->hasher);
    return 0;
}

static void next_tensor(SafeWriter *writer) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(writer->hasher));
    memcpy(writer->tensors[writer->at].hash, canonical.digest, SAFE_HASH_BYTES);
    writer->at++;
    XXH3_128bits_reset(writer->hasher);
}

static int write_bytes(SafeWriter *writer, const void *values, size_t bytes) {
    if (writer->path && fd_write(writer->fd, values, bytes, writer->path) < 0) return -1;
    XXH3_128bits_update(writer->hasher, values, bytes);
    return 0;
}

static int write_converted(SafeWriter *writer, const float *values, size_t count) {
    enum { PIECE = 4096 };
    char converted[PIECE * sizeof(float)];
    for (size_t first = 0; first < count; first += PIECE) {
        const size_t n = count - first < PIECE ? count - first : PIECE;
        dtype_write(converted, writer->type, values + first, n);
        if (write_bytes(writer, converted, n * dtype_bytes(writer->type)) < 0) return -1;
    }
    return 0;
}

int safe_write(SafeWriter *writer, const float *values, size_t count) {
    if (!writer->header_bytes && begin_data(writer) < 0) return -1;
    const size_t bytes = count * dtype_bytes(writer->type);
    if (writer->at == writer->count || writer->written + bytes > writer->tensors[writer->at].end)
        return fail(EX_BUG, "more values than '%s' has room for", writer->path);
    const bool floats = writer->type == DTYPE_FP32; // in one piece
    if ((floats ? write_bytes(writer, values, bytes) : write_converted(writer, values, count)) < 0) return -1;
    writer->written += bytes;
    if (writer->written == writer->tensors[writer->at].end) next_tensor(writer);
    return 0;
}

int safe_finish(SafeWriter *writer, uint8_t header_hash[SAFE_HASH_BYTES]) {
    if (writer->at != writer->count) return fail(EX_BUG, "'%s' lacks values", writer->path);
    Buffer header = {0};
    uint64_t length = writer->header_bytes;
    print_header(writer, &header);
    if (header_hash) safe_hash(header.data, header.size, header_hash);
    int result = 0;
    if (!writer->path)
        ; // only the hash
    else if (lseek(writer->fd, 0, SEEK_SET) < 0)
        result = fail_errno("cannot seek in '%s'", writer->path);
    else if (fd_write(writer->fd, &length, sizeof length, writer->path) < 0 ||
             fd_write(writer->fd, header.data, header.size, writer->path) < 0)
        result = -1;
    else if (fsync(writer->fd) < 0)
        result = fail_errno("cannot sync '%s'", writer->path);
    buffer_close(&header);
    int fd = writer->fd;
    writer->fd = -1;
    if (writer->path && close(fd) < 0 && result == 0) result = fail_errno("cannot close '%s'", writer->path);
    safe_abandon(writer);
    return result;
}

void safe_abandon(SafeWriter *writer) {
    if (writer->path && writer->fd >= 0) close(writer->fd);
    XXH3_freeState(writer->hasher);
    free(writer->tensors);
    *writer = (SafeWriter){0};
}

// ---- reading

static uint64_t file_type_bytes(const char *dtype) {
    static const struct {
        const char *name;
        uint64_t bytes;
    } others[] = {{"F64", 8}, {"I64", 8}, {"I32", 4}, {"I16", 2}, {"I8", 1}, {"U8", 1}, {"BOOL", 1}};
    Dtype type;
    if (dtype_parse_file_name(dtype, &type)) return dtype_bytes(type);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(others[i].name, dtype)) return others[i].bytes;
    return 0;
}

static int read_tensor(SafeTensor *tensor, const char *name, const json_t *entry, uint64_t data_bytes) {
    if (strlen(name) >= sizeof tensor->name) return fail(EX_DATA, "a tensor's name has %zu bytes", strlen(name));
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    uint64_t bytes = dtype ? file_type_bytes(dtype) : 0;
    if (!bytes) return fail(EX_DATA, "'%s' has no known dtype", name);
    snprintf(tensor->dtype, sizeof tensor->dtype, "%s", dtype);
    if (!json_is_array(shape) || json_array_size(shape) > SAFE_DIMS)
        return fail(EX_DATA, "'%s' has no usable shape", name);
    tensor->dims = (int)json_array_size(shape);
    for (int d = 0; d < tensor->dims; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return fail(EX_DATA, "'%s' has no usable shape", name);
        tensor->shape[d] = (uint64_t)json_integer_value(size);
        if (__builtin_mul_overflow(bytes, tensor->shape[d], &bytes))
            return fail(EX_DATA, "the shape of '%s' overflows", name);
    }
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin) ||
        (uint64_t)json_integer_value(end) > data_bytes)
        return fail(EX_DATA, "the offsets of '%s' are not in the file", name);
    tensor->begin = (uint64_t)json_integer_value(begin), tensor->end = (uint64_t)json_integer_value(end);
    if (tensor->end - tensor->begin != bytes) return fail(EX_DATA, "the offsets of '%s' do not match its shape", name);
    return 0;
}

static void read_hash(SafeTensor *tensor, const json_t *metadata) {
    char key[SAFE_NAME_BYTES + 8];
    snprintf(key, sizeof key, "hash.%s", tensor->name);
    const char *hex = json_string_value(json_object_get(metadata, key));
    tensor->hashed = hex && hex_decode(tensor->hash, hex, SAFE_HASH_BYTES) == 0;
}

static int by_begin(const void *a, const void *b) {
    const SafeTensor *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1) : x->end < y->end ? -1 : x->end > y->end;
}

static int read_header(SafeFile *file, json_t *root, uint64_t data_bytes) {
    if (!json_is_object(root)) return fail(EX_DATA, "the header is not a JSON object");
    const json_t *metadata = json_object_get(root, "__metadata__");
    file->tensors = allocate_zeroed(json_object_size(root) + 1, sizeof *file->tensors);
    const char *name;
    json_t *entry;
    size_t hashed = 0;
    json_object_foreach(root, name, entry) {
        if (!strcmp(name, "__metadata__")) continue;
        SafeTensor *tensor = &file->tensors[file->count++];
        if (read_tensor(tensor, name, entry, data_bytes) < 0) return -1;
        read_hash(tensor, metadata);
        hashed += tensor->hashed;
    }
    for (size_t i = 0; hashed && i < file->count; i++) // the files written here have all hashes
        if (!file->tensors[i].hashed)
            return fail(EX_DATA, "the header is damaged: it lacks the hash of '%s'", file->tensors[i].name);
    qsort(file->tensors, file->count, sizeof *file->tensors, by_begin);
    uint64_t at = 0;
    for (size_t i = 0; i < file->count; at = file->tensors[i++].end)
        if (file->tensors[i].begin != at)
            return fail(EX_DATA, "'%s' %s", file->tensors[i].name,
                        file->tensors[i].begin < at ? "overlaps another tensor" : "comes after a gap");
    if (at != data_bytes)
        return fail(EX_DATA, "%llu bytes after the last tensor", (unsigned long long)(data_bytes - at));
    return 0;
}

int safe_open(SafeFile *file, const char *path) {
    *file = (SafeFile){0};
    if (file_map(&file->map, path) < 0) return -1;
    uint64_t length = file->map.size >= 8 ? get_u64(file->map.data) : 0;
    int result = -1;
    if (file->map.size < 8 || length > file->map.size - 8)
        fail(EX_DATA, "the header ends after the file");
    else if (length > HEADER_MAX_BYTES)
        fail(EX_DATA, "the header claims %llu bytes", (unsigned long long)length);
    else {
        const uint8_t *header = file->map.data + 8;
        json_error_t error;
        json_t *root = json_loadb((const char *)header, length, JSON_REJECT_DUPLICATES, &error);
        file->data = header + length;
        safe_hash(header, length, file->header_hash);
        if (!root)
            fail(EX_DATA, "the header is not JSON: %s", error.text);
        else
            result = read_header(file, root, file->map.size - 8 - length);
        json_decref(root);
    }
    if (result == 0) return 0;
    fail_in("'%s'", path);
    safe_close(file);
    return -1;
}

void safe_close(SafeFile *file) {
    file_unmap(&file->map);
    free(file->tensors);
    *file = (SafeFile){0};
}

SafeTensor *safe_find(const SafeFile *file, const char *name) {
    for (size_t i = 0; i < file->count; i++)
        if (!strcmp(file->tensors[i].name, name)) return &file->tensors[i];
    return NULL;
}

int safe_check(const SafeFile *file, const SafeTensor *tensor) {
    uint8_t hash[SAFE_HASH_BYTES];
    if (stop_check("a checkpoint was read") < 0) return -1;
    if (!tensor->hashed) return 0;
    safe_hash(file->data + tensor->begin, tensor->end - tensor->begin, hash);
    return memcmp(hash, tensor->hash, sizeof hash) ? fail(EX_DATA, "the tensor '%s' is damaged", tensor->name) : 0;
}

typedef struct {
    const SafeFile *file;
    const SafeTensor *tensor;
} TensorCheck;

static int check_tensor(void *job, unsigned worker) {
    const TensorCheck *check = job;
    (void)worker;
    if (!check->tensor->hashed) return fail(EX_DATA, "the tensor '%s' has no hash", check->tensor->name);
    return safe_check(check->file, check->tensor);
}

int safe_verify(const SafeFile *file, const char *path) {
    TensorCheck *checks = allocate_zeroed(file->count, sizeof *checks);
    for (size_t i = 0; i < file->count; i++) checks[i] = (TensorCheck){file, &file->tensors[i]};
    const int result = pool_run(pool_cores(), check_tensor, checks, sizeof *checks, (unsigned)file->count);
    free(checks);
    return result < 0 ? fail_in("'%s'", path) : 0;
}
