// Token files of llm.c: train_000000.bin ... hold int32[256] header = 20240520, 1, number of ids, zeros; then the ids,
// u16. With Llama 3's vocabulary, and here with others of more than 65,536 ids, 20240801, 7, ..., and u32. llm.c
// expects the end-of-text id before each document.
#include "common/err.h"
#include "shardtool/interchange/interchange.h"
#include <inttypes.h>
#include <stdio.h>

enum { SMALL_MAGIC = 20240520, SMALL_VERSION = 1, WIDE_MAGIC = 20240801, WIDE_VERSION = 7, HEADER_BYTES = 1024 };

static int read_ids(Importer *importer, Bytes file) {
    if (file.size < HEADER_BYTES) return fail(EX_DATA, "shorter than a header of %d bytes", HEADER_BYTES);
    uint32_t magic = get_u32(file.data), version = get_u32(file.data + 4), count = get_u32(file.data + 8);
    if (magic != SMALL_MAGIC && magic != WIDE_MAGIC)
        return fail(EX_DATA, "its magic number is %u, not llm.c's %d or %d", magic, SMALL_MAGIC, WIDE_MAGIC);
    if (version != (magic == SMALL_MAGIC ? SMALL_VERSION : WIDE_VERSION))
        return fail(EX_DATA, "version %u, this program reads version %d (u16) and with another magic number %d (u32)",
                    version, SMALL_VERSION, WIDE_VERSION);
    importer->id_bytes = magic == SMALL_MAGIC ? 2 : 4;
    return importer_add_counted(importer, (Bytes){file.data + HEADER_BYTES, file.size - HEADER_BYTES}, count);
}

static int write_ids(Exporter *exporter) {
    for (uint64_t number = 0; exporter->at < exporter->count; number++) {
        uint64_t left = exporter->count - exporter->at;
        uint64_t count = left < exporter->file_tokens ? left : exporter->file_tokens;
        uint8_t header[HEADER_BYTES] = {0};
        put_u32(header, exporter->tokens->id_bytes == 2 ? SMALL_MAGIC : WIDE_MAGIC);
        put_u32(header + 4, exporter->tokens->id_bytes == 2 ? SMALL_VERSION : WIDE_VERSION);
        put_u32(header + 8, (uint32_t)count);
        char end[32];
        snprintf(end, sizeof end, "_%06" PRIu64 ".bin", number);
        if (exporter_write(exporter, end, (Bytes){header, sizeof header}, count) < 0) return -1;
    }
    return 0;
}

const Interchange interchange_llmc = {"llmc", "bin", false, EOT_BEFORE, read_ids, write_ids};
