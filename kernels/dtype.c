// The number types: their rows, and loops that convert.
#include "kernels/dtype.h"

#define READ(NAME, name, number, ...)                                                                                  \
    static void name##_read(float *to, const void *from, size_t count) {                                               \
        for (size_t i = 0; i < count; i++) {                                                                           \
            const float value = dtype_value(DTYPE_##NAME, from, i);                                                    \
            memcpy(to + i, &value, sizeof value); /* `from` may be a part of `to` */                                   \
        }                                                                                                              \
    }
DTYPES(READ, )

#define WRITE(NAME, name, number, ...)                                                                                 \
    static void name##_write(void *to, const float *from, size_t count) {                                              \
        for (size_t i = 0; i < count; i++) {                                                                           \
            const number value = name##_of(from[i]);                                                                   \
            memcpy((char *)to + i * sizeof value, &value, sizeof value);                                               \
        }                                                                                                              \
    }
DTYPES(WRITE, )

enum { WIDE, NARROW };
static const struct {
    const char *name, *file_name;
    size_t bytes;
    bool narrow;
    void (*read)(float *to, const void *from, size_t count);
    void (*write)(void *to, const float *from, size_t count);
} types[] = {
#define TYPE(NAME, name, number, word, file, range, ...)                                                               \
    {word, file, sizeof(number), (range) == NARROW, name##_read, name##_write},
    DTYPES(TYPE, ){.name = "auto"}};

const char *dtype_name(Dtype type) { return types[type].name; }
const char *dtype_file_name(Dtype type) { return types[type].file_name; }
bool dtype_is_narrow(Dtype type) { return types[type].narrow; }
size_t dtype_bytes(Dtype type) { return types[type].bytes; }
void dtype_read(float *to, Dtype type, const void *from, size_t count) { types[type].read(to, from, count); }
void dtype_write(void *to, Dtype type, const float *from, size_t count) { types[type].write(to, from, count); }

bool dtype_parse(const char *name, Dtype *type) {
    for (*type = 0; *type <= DTYPE_AUTO; (*type)++)
        if (!strcmp(types[*type].name, name)) return true;
    return false;
}

bool dtype_parse_file_name(const char *name, Dtype *type) {
    for (*type = 0; *type < DTYPE_COUNT; (*type)++)
        if (!strcmp(types[*type].file_name, name)) return true;
    return false;
}
