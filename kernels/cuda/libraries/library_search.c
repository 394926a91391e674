// library_search.h: the places as patterns of glob(3), in their order.
#include "kernels/cuda/libraries/library_search.h"
#include "common/err.h"
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN_BYTES = 2 * PATH_MAX_BYTES };

// For dl_iterate_phdr: the path of the loaded library whose name is in found->path.
static int find_path(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    FoundLibrary *found = data;
    const char *slash = strrchr(info->dlpi_name, '/');
    if (!slash || strcmp(slash + 1, found->path) != 0) return 0;
    snprintf(found->path, sizeof found->path, "%s", info->dlpi_name);
    return 1;
}

// Loads `file`, a path or the name of a library. The first that cannot be loaded leaves its reason.
static bool load(const char *file, FoundLibrary *found) {
    found->handle = dlopen(file, RTLD_NOW);
    if (found->handle) {
        snprintf(found->path, sizeof found->path, "%s", file);
        if (!strchr(file, '/')) dl_iterate_phdr(find_path, found);
        return true;
    }
    const char *why = dlerror();
    if (!*found->why) snprintf(found->why, LIBRARY_WHY, "%s", why ? why : file);
    return false;
}

// `folder` is a pattern, of which each match may hold the library.
static bool load_from(const char *folder, const char *const names[], FoundLibrary *found) {
    for (; *names; names++) {
        char pattern[PATTERN_BYTES];
        glob_t files;
        if ((size_t)snprintf(pattern, sizeof pattern, "%s/%s", folder, *names) >= sizeof pattern) continue;
        if (glob(pattern, 0, NULL, &files) != 0) continue;
        for (size_t i = 0; i < files.gl_pathc && !found->handle; i++) load(files.gl_pathv[i], found);
        globfree(&files);
        if (found->handle) return true;
    }
    return false;
}

// Copies `length` bytes of a path to a pattern that matches this path alone.
static void quote(char pattern[PATTERN_BYTES], const char *path, size_t length) {
    size_t used = 0;
    for (size_t i = 0; i < length && used + 2 < PATTERN_BYTES; i++) {
        if (strchr("*?[\\", path[i])) pattern[used++] = '\\';
        pattern[used++] = path[i];
    }
    pattern[used] = '\0';
}

static bool load_from_list(const char *folders, const char *const names[], FoundLibrary *found) {
    char pattern[PATTERN_BYTES];
    for (; folders && *folders; folders += *folders == ':') {
        const size_t length = strcspn(folders, ":");
        quote(pattern, folders, length);
        if (length && load_from(pattern, names, found)) return true;
        folders += length;
    }
    return false;
}

static bool load_beside_program(const char *const names[], FoundLibrary *found) {
    static const char *const places[] = {"lib/millrace", "lib/python3*/*-packages/nvidia/*/lib", "nvidia/*/lib", "lib"};
    char program[PATH_MAX_BYTES], folder[PATTERN_BYTES], pattern[PATTERN_BYTES + 64];
    if (program_path(program, "..") < 0) return err_clear(), false;
    quote(folder, program, strlen(program));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(pattern, sizeof pattern, "%s/%s", folder, places[i]);
        if (load_from(pattern, names, found)) return true;
    }
    return false;
}

static bool load_from_toolkit(const char *variable, const char *const names[], FoundLibrary *found) {
    const char *toolkit = getenv(variable);
    char folder[PATTERN_BYTES], pattern[PATTERN_BYTES + 8];
    if (!toolkit || !*toolkit) return false;
    quote(folder, toolkit, strnlen(toolkit, PATH_MAX_BYTES));
    for (int i = 0; i < 2; i++) {
        snprintf(pattern, sizeof pattern, "%s/%s", folder, i ? "lib" : "lib64");
        if (load_from(pattern, names, found)) return true;
    }
    return false;
}

void library_search(const char *const names[], FoundLibrary *found) {
    memset(found, 0, sizeof *found);
    if (load_from_list(getenv("LD_LIBRARY_PATH"), names, found) || load_beside_program(names, found) ||
        load_from_toolkit("CUDA_HOME", names, found) || load_from_toolkit("CUDA_PATH", names, found))
        return;
    for (size_t i = 0; names[i]; i++)
        if (load(names[i], found)) return;
    if (!load_from("/usr/local/cuda/lib64", names, found)) load_from("/usr/local/cuda-*/lib64", names, found);
}
