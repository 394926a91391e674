// Gives the JSON library an allocator that does not return without memory.
#include "common/json_read.h"
#include "common/err.h"
#include <pthread.h>
#include <stdlib.h>

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) die(EX_MEMORY, "out of memory: %zu bytes wanted for JSON", bytes);
    return memory;
}

static void set_allocator(void) { json_set_alloc_funcs(allocate, free); }

json_t *json_parse(Bytes text, size_t flags, json_error_t *error) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_allocator);
    return json_loadb((const char *)text.data, text.size, flags, error);
}
