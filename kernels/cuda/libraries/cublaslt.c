// cublaslt.h: finding the library and its functions.
#include "kernels/cuda/libraries/cublaslt.h"
#include "common/err.h"
#include <dlfcn.h>
#include <string.h>

// The functions of CublasLt are the same in 12 and 13.
#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
static const char *const library_names[] = {"libcublasLt.so." TEXT(CUBLAS_VER_MAJOR),
#if CUBLAS_VER_MAJOR == 12
                                            "libcublasLt.so.13",
#elif CUBLAS_VER_MAJOR == 13
                                            "libcublasLt.so.12",
#endif
                                            NULL};

CublasLt blas;

void cublaslt_find(FoundLibrary *found) { library_search(library_names, found); }

int cublaslt_load(void) {
    static const struct {
        const char *name;
        size_t at; // in CublasLt
    } functions[] = {
#define ROW(name) {"cublasLt" #name, offsetof(CublasLt, name)},
        CUBLASLT_FUNCTIONS(ROW)
#undef ROW
    };
    if (blas.Create) return 0;
    FoundLibrary library;
    cublaslt_find(&library);
    if (!library.handle)
        return fail(EX_GPU,
                    "cannot load cuBLASLt (%s): install the CUDA %d toolkit, set LD_LIBRARY_PATH to its folder, or use "
                    "device=cpu",
                    library.why, CUBLAS_VER_MAJOR);
    CublasLt found;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library.handle, functions[i].name);
        if (!function) return fail(EX_GPU, "%s has no %s: it is not a CUDA library", library.path, functions[i].name);
        memcpy((char *)&found + functions[i].at, &function, sizeof function);
    }
    blas = found;
    return 0;
}
