// Where the libraries of CUDA that are loaded when they are needed are looked for.
#pragma once

#include "common/file/file.h"

enum { LIBRARY_WHY = 512 };

// The library that was taken, or why none was.
typedef struct {
    void *handle; // NULL: none was found
    int version;  // as the library reports it: set by cublaslt_find and nccl_find
    char path[PATH_MAX_BYTES], why[LIBRARY_WHY];
} FoundLibrary;

// Loads the first library of one of `names`, which end with NULL; an earlier place goes before an earlier name:
//   1. the folders of LD_LIBRARY_PATH
//   2. ../lib/millrace beside the folder of this program
//   3. the wheels of NVIDIA in the Python environment in which the program lies, or in the folder in which
//      `pip install --target` has put it; ../lib, where conda has its packages
//   4. lib64, else lib, of the toolkit that CUDA_HOME or CUDA_PATH names
//   5. where the dynamic linker looks, then lib64 of /usr/local/cuda and of /usr/local/cuda-*
void library_search(const char *const names[], FoundLibrary *found);
