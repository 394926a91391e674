// Token files of Megatron-LM: train.bin holds the ids, train.idx their index:
//
//   "MMIDIDX\0\0", u64 version = 1, u8 type (8 = u16, 4 = i32), u64 sequences, u64 boundaries,
//   i32 length[sequences], i64 offset[sequences] in bytes,
//   i64 boundary[boundaries]: the sequence with which each document begins, and the number of sequences.
#include "common/err.h"
#include "shardtool/interchange/interchange.h"
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define MAGIC "MMIDIDX\0" // and the NUL of the literal: nine bytes
enum { MAGIC_BYTES = 9, TYPE_U16 = 8, TYPE_I32 = 4, HEADER_BYTES = 34 };

// The sequences of an index and the documents they belong to.
typedef struct {
    uint64_t sequences, boundaries;
    const uint8_t *length, *offset, *boundary;
} MegatronIndex;

static int parse_header(MegatronIndex *index, Bytes file) {
    if (file.size < HEADER_BYTES || memcmp(file.data, MAGIC, MAGIC_BYTES))
        return fail(EX_DATA, "index: not Megatron's MMIDIDX");
    if (get_u64(file.data + 9) != 1)
        return fail(EX_DATA, "index: version %" PRIu64 ", this program reads version 1", get_u64(file.data + 9));
    if (file.data[17] != TYPE_U16 && file.data[17] != TYPE_I32)
        return fail(EX_DATA, "index: ids of type %u, this program reads types %d (u16) and %d (i32)", file.data[17],
                    TYPE_U16, TYPE_I32);
    index->sequences = get_u64(file.data + 18), index->boundaries = get_u64(file.data + 26);
    uint64_t left = file.size - HEADER_BYTES;
    if (index->sequences > left / 12 || index->boundaries != (left - index->sequences * 12) / 8 ||
        (left - index->sequences * 12) % 8)
        return fail(EX_DATA, "index: %" PRIu64 " sequences and %" PRIu64 " boundaries do not fit its %zu bytes",
                    index->sequences, index->boundaries, file.size);
    index->length = file.data + HEADER_BYTES;
    index->offset = index->length + index->sequences * 4;
    index->boundary = index->offset + index->sequences * 8;
    return 0;
}

// Adds sequences [first, end), which are one document.
static int read_document(Importer *importer, const MegatronIndex *index, uint64_t first, uint64_t end, Bytes file) {
    uint64_t total = 0;
    bool has_end = false;
    for (uint64_t i = first; i < end; i++) {
        uint64_t length = get_u32(index->length + i * 4), offset = get_u64(index->offset + i * 8);
        if (length > INT32_MAX || offset > file.size || length > (file.size - offset) / importer->id_bytes)
            return fail(EX_DATA, "index: sequence %" PRIu64 " lies outside the %zu bytes of ids", i, file.size);
        if (importer_add(importer, file.data + offset, offset / importer->id_bytes, length) < 0) return -1;
        total += length;
        has_end = length ? importer->has_end[importer->split] : has_end;
    }
    return total && has_end ? 0 : importer_add_end(importer);
}

static int read_documents(Importer *importer, const MegatronIndex *index, Bytes file) {
    uint64_t bytes = 0, end = 0;
    for (uint64_t i = 0; i < index->sequences; i++)
        bytes += (uint64_t)get_u32(index->length + i * 4) * importer->id_bytes;
    if (bytes != file.size)
        return fail(EX_DATA, "the index describes %" PRIu64 " bytes of ids, the file has %zu: truncated or extended",
                    bytes, file.size);
    for (uint64_t i = 0; i < index->boundaries; i++) {
        uint64_t first = end;
        end = get_u64(index->boundary + i * 8);
        if (end < first || end > index->sequences || (i == 0 && end))
            return fail(EX_DATA, "index: boundary %" PRIu64 " is sequence %" PRIu64 ", out of order", i, end);
        if (i && read_document(importer, index, first, end, file) < 0) return -1;
    }
    if (end == index->sequences) return 0;
    return fail(EX_DATA, "index: the documents end before sequence %" PRIu64, index->sequences);
}

static int read_indexed(Importer *importer, Bytes file) {
    Bytes bytes;
    MegatronIndex index = {0};
    if (importer_map_index(importer, &bytes, strlen(".bin"), ".idx") < 0) return -1;
    int status = parse_header(&index, bytes);
    if (status == 0) importer->id_bytes = bytes.data[17] == TYPE_U16 ? 2 : 4;
    if (status == 0) status = read_documents(importer, &index, file);
    file_unmap(&bytes);
    return status;
}

static int add_length(const Exporter *exporter, Buffer *out, const Document *document) {
    (void)exporter;
    if (document->tokens > INT32_MAX)
        return fail(EX_DATA, "document %" PRIu64 " has %" PRIu64 " tokens, too many for this format", document->number,
                    document->tokens);
    buffer_add(out, &(int32_t){(int32_t)document->tokens}, sizeof(int32_t));
    return 0;
}

static int add_offset(const Exporter *exporter, Buffer *out, const Document *document) {
    buffer_add(out, &(uint64_t){document->first * exporter->tokens->id_bytes}, sizeof(uint64_t));
    return 0;
}

static int add_number(const Exporter *exporter, Buffer *out, const Document *document) {
    (void)exporter;
    buffer_add(out, &document->number, sizeof document->number);
    return 0;
}

// Every document is one sequence.
static int write_indexed(Exporter *exporter) {
    if (exporter_write(exporter, ".bin", (Bytes){0}, exporter->count) < 0) return -1;
    uint8_t header[HEADER_BYTES] = MAGIC;
    put_u64(header + 9, 1);
    header[17] = exporter->tokens->id_bytes == 2 ? TYPE_U16 : TYPE_I32;
    uint64_t documents;
    if (exporter_open(exporter, ".idx") < 0 || newfile_write(&exporter->file, header, sizeof header) < 0 ||
        exporter_add_documents(exporter, add_length, &documents) < 0 ||
        exporter_add_documents(exporter, add_offset, &documents) < 0 ||
        exporter_add_documents(exporter, add_number, &documents) < 0 ||
        newfile_write(&exporter->file, &documents, sizeof documents) < 0)
        return -1;
    put_u64(header + 18, documents);
    put_u64(header + 26, documents + 1);
    if (pwrite(exporter->file.fd, header, sizeof header, 0) != (ssize_t)sizeof header)
        return fail_errno("cannot write '%s'", exporter->file.path);
    return newfile_commit(&exporter->file);
}

const Interchange interchange_megatron = {"megatron", "bin|idx", true, EOT_AFTER, read_indexed, write_indexed};
