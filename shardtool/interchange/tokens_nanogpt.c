// Token files of nanoGPT: train.bin holds the ids, u16.
#include "common/err.h"
#include "shardtool/interchange/interchange.h"

static int read_ids(Importer *importer, Bytes file) {
    if (importer_check_width(importer, file) < 0) return -1;
    return importer_add(importer, file.data, 0, file.size / importer->id_bytes);
}

static int write_ids(Exporter *exporter) {
    if (exporter->tokens->id_bytes != 2)
        return fail(EX_DATA, "nanoGPT reads ids of 2 bytes, and this vocabulary has more than %d ids", IDS_SMALL);
    return exporter_write(exporter, ".bin", (Bytes){0}, exporter->count);
}

const Interchange interchange_nanogpt = {"nanogpt", "bin", false, EOT_AFTER, read_ids, write_ids};
