// cublaslt.h: finding the library and its functions.
#include "kernels/cuda/libraries/cublaslt.h"
#include "common/err.h"
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

// One program works with 12 and 13: its calls and arguments are the same in the headers of 11.8, 12.4 and 13.0. These
// are the structures and values that matmul_cublaslt.c uses.
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == 64 && sizeof(cublasLtMatmulHeuristicResult_t) == 96 &&
                   offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) == 64 &&
                   offsetof(cublasLtMatmulHeuristicResult_t, state) == 72,
               "structures of cuBLASLt");
_Static_assert(CUBLASLT_MATMUL_DESC_TRANSA == 3 && CUBLASLT_MATMUL_DESC_TRANSB == 4 &&
                   CUBLASLT_MATMUL_DESC_EPILOGUE == 7 && CUBLASLT_MATMUL_DESC_BIAS_POINTER == 8 &&
                   CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER == 11 && CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD == 12,
               "attributes of a product");
_Static_assert(CUBLASLT_EPILOGUE_DEFAULT == 1 && CUBLASLT_EPILOGUE_BIAS == 4 && CUBLASLT_EPILOGUE_GELU_AUX == 160 &&
                   CUBLASLT_EPILOGUE_GELU_AUX_BIAS == 164 && CUBLASLT_EPILOGUE_DGELU == 192,
               "epilogues");
_Static_assert(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES == 1 && CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK == 3 &&
                   CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES == 5 && CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES == 6 &&
                   CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES == 7 && CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES == 8 &&
                   CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME == 3 && CUBLASLT_REDUCTION_SCHEME_NONE == 0 &&
                   CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE == 2,
               "preferences");
_Static_assert(CUBLAS_COMPUTE_32F == 68 && CUBLAS_COMPUTE_32F_FAST_TF32 == 77 && CUBLAS_OP_T == 1 &&
                   CUBLAS_STATUS_NOT_SUPPORTED == 15 && CUDA_R_32F == 0 && CUDA_R_16F == 2 && CUDA_R_16BF == 14,
               "types");
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

void cublaslt_find(FoundLibrary *found) {
    __typeof__(cublasLtGetVersion) *version = NULL;
    library_search(library_names, found);
    if (found->handle) *(void **)&version = dlsym(found->handle, "cublasLtGetVersion");
    if (version) found->version = (int)version();
}

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
    const int major = library.version / 10000;
    if (major != CUBLAS_VER_MAJOR && major != 12 && major != 13)
        return fail(EX_GPU, "%s is version %d.%d.%d of cuBLASLt, and 12 or 13 is needed", library.path, major,
                    library.version / 100 % 100, library.version % 100);
    CublasLt found;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library.handle, functions[i].name);
        if (!function) return fail(EX_GPU, "%s has no %s: it is not a CUDA library", library.path, functions[i].name);
        memcpy((char *)&found + functions[i].at, &function, sizeof function);
    }
    blas = found;
    return 0;
}
