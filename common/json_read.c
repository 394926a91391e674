// Parses JSON. Running out of memory ends the program, so that it is not reported as an error of the text.
#include "common/json_read.h"
#include "common/err.h"
#include <stdlib.h>

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (!memory) die(EX_MEMORY, "out of memory: %zu bytes wanted for JSON", bytes);
    return memory;
}

void json_end_without_memory(void) { json_set_alloc_funcs(allocate, free); }

json_t *json_parse(Bytes text, size_t flags, json_error_t *error) {
    return json_loadb((const char *)text.data, text.size, flags, error);
}
