// cublaslt.h: finding the library and its functions.
#include "kernels/cuda/cublaslt.h"
#include "common/err.h"
#include <dlfcn.h>
#include <string.h>

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
static const char library_name[] = "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR);

CublasLt blas;

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
    void *library = dlopen(library_name, RTLD_NOW); // in the loader's places, and where it was when this was linked
    if (!library)
        return fail(EX_GPU,
                    "cannot load cuBLASLt (%s): install the CUDA %d toolkit, say where it is by LD_LIBRARY_PATH, or "
                    "say device=cpu",
                    dlerror(), CUBLAS_VER_MAJOR);
    CublasLt found;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function) return fail(EX_GPU, "%s has no %s: it is not the one of CUDA", library_name, functions[i].name);
        memcpy((char *)&found + functions[i].at, &function, sizeof function);
    }
    blas = found;
    return 0;
}
