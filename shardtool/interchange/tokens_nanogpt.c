// Token files of nanoGPT: train.bin holds the ids, u16.
#include "common/err.h"
#include "shardtool/interchange/interchange.h"
#include <string.h>

static int read_ids(Importer *importer, Bytes file) {
    enum { LLMC_SMALL = 20240520, LLMC_WIDE = 20240801, LLMC_HEADER_BYTES = 1024 };
    const uint32_t magic = file.size >= LLMC_HEADER_BYTES ? get_u32(file.data) : 0;
    if (magic == LLMC_SMALL || magic == LLMC_WIDE)
        return fail(EX_DATA, "it begins as a file of llm.c, whose header would be read as ids: --format llmc reads it");
    if (file.size >= sizeof NPY_MAGIC - 1 && !memcmp(file.data, NPY_MAGIC, sizeof NPY_MAGIC - 1))
        return fail(EX_DATA, "it begins as a file of NumPy, whose header would be read as ids: --format npy reads it");
    if (importer_check_width(importer, file) < 0) return -1;
    return importer_add(importer, file.data, 0, file.size / importer->id_bytes);
}

static int write_ids(Exporter *exporter) {
    if (exporter->tokens->id_bytes != 2)
        return fail(EX_DATA, "nanoGPT reads ids of 2 bytes, and this vocabulary has more than %d ids", IDS_SMALL);
    return exporter_write(exporter, ".bin", (Bytes){0}, exporter->count);
}

const Interchange interchange_nanogpt = {"nanogpt", "bin", false, EOT_AFTER, read_ids, write_ids};
