// nccl.h: finding the library and its functions.
#include "kernels/cuda/libraries/nccl.h"
#include "common/err.h"
#include <dlfcn.h>
#include <string.h>

static const char *const library_names[] = {"libnccl.so.2", NULL};
Nccl nccl;

void nccl_find(FoundLibrary *found) {
    __typeof__(nccl.GetVersion) version = NULL;
    library_search(library_names, found);
    if (found->handle) *(void **)&version = dlsym(found->handle, "ncclGetVersion");
    if (version && version(&found->version) != NCCL_SUCCESS) found->version = 0;
}

static int find_functions(const FoundLibrary *library) {
    static const struct {
        const char *name;
        size_t at; // in Nccl
    } functions[] = {
#define X(result, name, arguments) {"nccl" #name, offsetof(Nccl, name)},
        NCCL_FUNCTIONS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library->handle, functions[i].name);
        if (!function)
            return fail(EX_GPU, "%s has no %s: NCCL 2.14 or later is needed", library->path, functions[i].name);
        memcpy((char *)&nccl + functions[i].at, &function, sizeof function);
    }
    return 0;
}

int nccl_load(void) {
    if (nccl.GetVersion) return 0;
    FoundLibrary library;
    nccl_find(&library);
    if (!library.handle)
        return fail(EX_GPU,
                    "several processes on GPUs need NCCL: cannot load it (%s): install libnccl2, or set "
                    "LD_LIBRARY_PATH to the folder of %s",
                    library.why, library_names[0]);
    if (library.version < NCCL_VERSION_NEEDED)
        return fail(EX_GPU, "%s is version %d.%d.%d of NCCL, 2.14 or later is needed: install a later one",
                    library.path, library.version / 10000, library.version / 100 % 100, library.version % 100);
    if (find_functions(&library) < 0) return memset(&nccl, 0, sizeof nccl), -1;
    return 0;
}
