// Token files of nanoGPT: train.bin holds the ids.
#include "shardtool/interchange/interchange.h"

static int read_ids(Importer *importer, Bytes file) {
    return importer_check_u16(file) < 0 ? -1 : importer_add(importer, file.data, 0, file.size / 2);
}

static int write_ids(Exporter *exporter) { return exporter_write(exporter, ".bin", (Bytes){0}, exporter->count); }

const Interchange interchange_nanogpt = {"nanogpt", "bin", false, EOT_AFTER, read_ids, write_ids};
