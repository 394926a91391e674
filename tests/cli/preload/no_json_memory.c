// For LD_PRELOAD: no memory while JSON is parsed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
void *__libc_malloc(size_t);
static __thread int parses;
void *malloc(size_t bytes) { return parses ? NULL : __libc_malloc(bytes); }
void *json_loadb(const char *text, size_t size, size_t flags, void *error) {
    void *(*real)(const char *, size_t, size_t, void *) =
        (void *(*)(const char *, size_t, size_t, void *))dlsym(RTLD_NEXT, "json_loadb");
    parses = 1;
    void *result = real(text, size, flags, error);
    return parses = 0, result;
}
