// Preloaded by shardtool_memory.bats: allocation number $FAIL_MALLOC of the process fails; with $FAIL_MALLOC_ALL every
// one after it, too. Allocations of the libraries named in $FAIL_MALLOC_EXCEPT are neither counted nor failed.
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);

static atomic_long calls;
static long number = -1;
static bool all;
static const char *except;

static void read_environment(void) {
    const char *text = getenv("FAIL_MALLOC");
    number = text ? atol(text) : 0;
    except = getenv("FAIL_MALLOC_EXCEPT");
    all = getenv("FAIL_MALLOC_ALL") != NULL;
}

static bool is_excepted(const void *caller) {
    struct dl_find_object library; // dladdr would look for the symbol, which is slow
    char name[64] = {0};
    if (!except || _dl_find_object((void *)(uintptr_t)caller, &library) || !*library.dlfo_link_map->l_name)
        return false;
    const char *slash = strrchr(library.dlfo_link_map->l_name, '/');
    const char *base = slash ? slash + 1 : library.dlfo_link_map->l_name;
    strncpy(name, base, sizeof name - 1);
    name[strcspn(name, ".")] = '\0';
    return strstr(except, name) != NULL;
}

static bool fails(const void *caller) {
    if (number < 0) read_environment();
    if (!number || is_excepted(caller)) return false;
    long call = ++calls;
    if (all ? call < number : call != number) return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size) { return fails(__builtin_return_address(0)) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}
void *realloc(void *memory, size_t size) {
    return fails(__builtin_return_address(0)) ? NULL : __libc_realloc(memory, size);
}
