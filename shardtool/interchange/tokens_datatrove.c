// Token files of datatrove: train.ds holds the ids; train.ds.index: u64 end of each document in ids; train.ds.metadata:
// text, "tokenizer|bytes per id", number of ids, the same number with a metric prefix.
#include "common/err.h"
#include "shardtool/interchange/interchange.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int read_documents(Importer *importer, Bytes index, Bytes file) {
    uint64_t count = file.size / importer->id_bytes, end = 0;
    if (importer_check_width(importer, file) < 0) return -1;
    if (index.size % 8) return fail(EX_DATA, "index: %zu bytes are not a sequence of u64", index.size);
    for (size_t i = 0; i < index.size; i += 8) {
        uint64_t first = end;
        end = get_u64(index.data + i);
        if (end < first || end > count)
            return fail(EX_DATA, "index: document %zu ends at %" PRIu64 ", out of order or past the %" PRIu64 " ids",
                        i / 8, end, count);
        if (importer_add(importer, file.data + first * importer->id_bytes, first, end - first) < 0) return -1;
        bool has_end = end > first && importer->has_end[importer->split];
        if (!has_end && importer_add_end(importer) < 0) return -1;
    }
    return end == count ? 0 : fail(EX_DATA, "index: its documents end at %" PRIu64 " of %" PRIu64 " ids", end, count);
}

// Only the metadata says whether the ids are u16 or u32. Without metadata they have the size of the vocabulary's ids.
static int check_metadata(Importer *importer) {
    Bytes metadata;
    if (importer_map_index(importer, &metadata, 0, ".metadata") < 0) return err_clear(), 0;
    const uint8_t *bar = metadata.size ? memchr(metadata.data, '|', metadata.size) : NULL;
    const uint8_t size = bar && bar + 1 < metadata.data + metadata.size ? bar[1] : 0;
    file_unmap(&metadata);
    if (size == '2' || size == '4') importer->id_bytes = size - '0';
    return size && size != '2' && size != '4'
               ? fail(EX_DATA, "its metadata declares ids of another size than 2 or 4 bytes")
               : 0;
}

static int read_indexed(Importer *importer, Bytes file) {
    Bytes index;
    if (check_metadata(importer) < 0 || importer_map_index(importer, &index, 0, ".index") < 0) return -1;
    int status = read_documents(importer, index, file);
    file_unmap(&index);
    return status;
}

// 23068 -> "23.1 kT", as datatrove writes it.
static void print_metric(char out[32], uint64_t count) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
    double value = (double)count;
    unsigned power = 0;
    while (value >= 1000) value /= 1000, power++;
    int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
    snprintf(out, 32, "%.*f %sT", decimals, value, prefixes[power]);
}

static int add_end(const Exporter *exporter, Buffer *out, const Document *document) {
    (void)exporter;
    buffer_add(out, &(uint64_t){document->first + document->tokens}, sizeof(uint64_t));
    return 0;
}

static int write_indexed(Exporter *exporter) {
    uint64_t documents;
    char metric[32], text[128];
    print_metric(metric, exporter->count);
    int length = snprintf(text, sizeof text, "%s|%u\n%" PRIu64 "\n%s", exporter->tokenizer, exporter->tokens->id_bytes,
                          exporter->count, metric);
    if (exporter_write(exporter, ".ds", (Bytes){0}, exporter->count) < 0 || exporter_open(exporter, ".ds.index") < 0 ||
        exporter_add_documents(exporter, add_end, &documents) < 0 || newfile_commit(&exporter->file) < 0)
        return -1;
    return exporter_write(exporter, ".ds.metadata", (Bytes){(const uint8_t *)text, (size_t)length}, 0);
}

const Interchange interchange_datatrove = {"datatrove",  "ds|ds.index|ds.metadata", true, EOT_AFTER, read_indexed,
                                           write_indexed};
