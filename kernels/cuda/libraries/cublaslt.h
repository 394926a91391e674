// cuBLASLt through dlopen: the library has half a gigabyte and takes 0.1 s to load, and only a run on a device needs
// it. Plans, runs on the CPU and machines without the toolkit do not load it.
#pragma once

#include "kernels/cuda/libraries/library_search.h"
#include <cublasLt.h>

#define CUBLASLT_FUNCTIONS(F)                                                                                          \
    F(Create)                                                                                                          \
    F(Destroy)                                                                                                         \
    F(GetStatusString)                                                                                                 \
    F(GetVersion)                                                                                                      \
    F(Matmul)                                                                                                          \
    F(MatmulAlgoCheck)                                                                                                 \
    F(MatmulAlgoConfigGetAttribute)                                                                                    \
    F(MatmulAlgoGetHeuristic)                                                                                          \
    F(MatmulDescCreate)                                                                                                \
    F(MatmulDescDestroy)                                                                                               \
    F(MatmulDescSetAttribute)                                                                                          \
    F(MatmulPreferenceCreate)                                                                                          \
    F(MatmulPreferenceDestroy)                                                                                         \
    F(MatmulPreferenceSetAttribute)                                                                                    \
    F(MatrixLayoutCreate)                                                                                              \
    F(MatrixLayoutDestroy)

// blas.Matmul is cublasLtMatmul, and so on; set by cublaslt_load.
typedef struct {
#define MEMBER(name) __typeof__(cublasLt##name) *name;
    CUBLASLT_FUNCTIONS(MEMBER)
#undef MEMBER
} CublasLt;
extern CublasLt blas;

void cublaslt_find(FoundLibrary *found);

// -1 after fail() (80) when the library is not found. Calling it again is free.
int cublaslt_load(void);
