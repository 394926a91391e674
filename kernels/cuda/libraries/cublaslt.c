// cublaslt.h: finding the library and its functions.
#include "kernels/cuda/libraries/cublaslt.h"
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
    void *library =
        dlopen(library_name, RTLD_NOW); // searched in the system's folders and in the folder it had at build time
    if (!library)
        return fail(EX_GPU,
                    "cannot load cuBLASLt (%s): install the CUDA %d toolkit, set LD_LIBRARY_PATH to its folder, or use "
                    "device=cpu",
                    dlerror(), CUBLAS_VER_MAJOR);
    CublasLt found;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function) return fail(EX_GPU, "%s has no %s: it is not a CUDA library", library_name, functions[i].name);
        memcpy((char *)&found + functions[i].at, &function, sizeof function);
    }
    blas = found;
    return 0;
}
