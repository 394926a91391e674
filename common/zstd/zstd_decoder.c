// zstd_decoder.h by the library's interface for other allocators, which is stable in all versions that are read here.
#define ZSTD_STATIC_LINKING_ONLY
#include "common/zstd/zstd_decoder.h"
#include "common/err.h"
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

static void *take_zeros(void *state, size_t size) {
    (void)state;
    return calloc(1, size);
}

static void give_back(void *state, void *memory) {
    (void)state;
    free(memory);
}

ZSTD_DCtx *zstd_decoder_open(void) {
    ZSTD_DCtx *decoder = ZSTD_createDCtx_advanced((ZSTD_customMem){take_zeros, give_back, NULL});
    if (!decoder) die(EX_MEMORY, "no memory for a zstd decoder");
    return decoder;
}

const char *zstd_version_text(void) {
    static char text[160];
    const unsigned version = ZSTD_versionNumber();
    snprintf(text, sizeof text, "%s%s", ZSTD_versionString(),
             version >= 10501 && version <= 10507
                 ? " has CVE-2026-124851, mended in 1.6.0 and Debian's 1.5.4+dfsg2-5+deb12u1: decoders here begin with "
                   "zeros, one for each file"
                 : "");
    return text;
}
