// The one object that depends on version and commit: the Makefile defines VERSION, COMMIT, COMMIT_DATE and PARTS.
#include "common/cli/version.h"
#include "common/machine/cpu.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const char *const version = VERSION;
const char *const version_date = COMMIT_DATE;
const char *const version_commit = COMMIT;
const char *const version_parts = PARTS;

#ifdef __x86_64__
#define INSTRUCTIONS "x86-64: portable, avx2, avx512, amx"
#else
#define INSTRUCTIONS "portable"
#endif

// The driver reports the latest CUDA that it supports. Its library is not linked: the program starts without one.
static void print_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY);
    int cuda = 0, (*get)(int *) = NULL;
    if (library) *(void **)&get = dlsym(library, "cuDriverGetVersion");
    if (get && get(&cuda) == 0 && cuda > 0)
        printf("; driver of this machine: for CUDA %d.%d", cuda / 1000, cuda % 1000 / 10);
    else
        printf("; driver of this machine: none");
}

void version_print(const char *program) {
    printf("%s%s %s\n", program, strcmp(program, "millrace") ? " (millrace)" : "", version);
    *version_commit ? printf("commit %s of %s\n", version_commit, version_date) : printf("commit unknown\n");
    printf("instructions " INSTRUCTIONS "; this processor: %s\n", cpu_isa_name(cpu_isa()));
    printf("%s", version_parts);
    if (HAVE_CUDA) print_driver();
    printf("\n");
}
