// The one object that depends on version and commit: the Makefile defines VERSION, COMMIT, COMMIT_DATE and CUDA_BUILD.
#include "common/cli/version.h"
#include "common/machine/cpu.h"
#include <stdio.h>

const char *const version = VERSION;
const char *const version_date = COMMIT_DATE;
const char *const version_commit = COMMIT;
const char *const version_cuda = CUDA_BUILD;

#ifdef __x86_64__
#define INSTRUCTIONS "x86-64: portable, avx2, avx512, amx"
#else
#define INSTRUCTIONS "portable"
#endif

void version_print(const char *program) {
    printf("%s (millrace) %s\n", program, version);
    *version_commit ? printf("commit %s of %s\n", version_commit, version_date) : printf("commit unknown\n");
    printf("instructions " INSTRUCTIONS "; this processor: %s\n", cpu_isa_name(cpu_isa()));
    printf("%s\n", version_cuda);
}
