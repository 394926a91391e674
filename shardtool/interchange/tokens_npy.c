// Token files of NumPy: train.npy is of format 1.0, one dimension, '<u2' or '<u4'. Formats 1 to 3 are read.
#include "common/err.h"
#include "shardtool/interchange/interchange.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The text after "'key':" of the header; NULL without that key.
static const char *find_value(const char *header, const char *key) {
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    while (*at == ' ') at++;
    return at;
}

static int parse_header(const char *header, uint64_t *count, unsigned *id_bytes) {
    const char *type = find_value(header, "'descr':"), *order = find_value(header, "'fortran_order':"),
               *shape = find_value(header, "'shape':");
    if (!type || !order || !shape) return fail(EX_DATA, "its NumPy header lacks descr, fortran_order or shape");
    if (strncmp(type, "'<u2'", 5) && strncmp(type, "'<u4'", 5))
        return fail(EX_DATA,
                    "its values are of type %.*s, only '<u2' and '<u4' are read: numpy.save(FILE, "
                    "numpy.load(FILE).astype('<u2')) converts ids below 65,536",
                    (int)strcspn(type, ",}"), type);
    *id_bytes = (unsigned)(type[3] - '0');
    char *end = NULL;
    if (*shape == '(' && isdigit((unsigned char)shape[1])) *count = strtoull(shape + 1, &end, 10);
    if (!end || strncmp(end, ",)", 2))
        return fail(EX_DATA, "its shape is %.*s), only one dimension is read", (int)strcspn(shape, ")"), shape);
    return 0;
}

static int read_ids(Importer *importer, Bytes file) {
    enum { HEADER_MAX = 65535 };
    if (file.size < 12 || memcmp(file.data, NPY_MAGIC, 6)) return fail(EX_DATA, "not a NumPy file");
    unsigned version = file.data[6];
    if (version < 1 || version > 3) return fail(EX_DATA, "NumPy format %u, this program reads 1 to 3", version);
    size_t start = version == 1 ? 10 : 12, length = version == 1 ? get_u16(file.data + 8) : get_u32(file.data + 8);
    if (length > HEADER_MAX || length > file.size - start)
        return fail(EX_DATA, "a NumPy header of %zu bytes does not fit", length);
    char *header = allocate_text((const char *)file.data + start, length);
    for (char *c = header; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?'; // messages print parts of it
    uint64_t count = 0;
    int status = parse_header(header, &count, &importer->id_bytes);
    free(header);
    start += length;
    return status < 0 ? -1 : importer_add_counted(importer, (Bytes){file.data + start, file.size - start}, count);
}

static int write_ids(Exporter *exporter) {
    enum { HEADER_BYTES = 128 }; // a multiple of 64, so that the ids are aligned in a map
    char header[HEADER_BYTES + 1];
    int length = snprintf(header, sizeof header,
                          NPY_MAGIC "%c%c%c%c{'descr': '<u%u', 'fortran_order': False, 'shape': (%" PRIu64 ",), }", 1,
                          0, HEADER_BYTES - 10, 0, exporter->tokens->id_bytes, exporter->count);
    memset(header + length, ' ', HEADER_BYTES - (size_t)length);
    header[HEADER_BYTES - 1] = '\n';
    return exporter_write(exporter, ".npy", (Bytes){(const uint8_t *)header, HEADER_BYTES}, exporter->count);
}

const Interchange interchange_npy = {"npy", "npy", false, EOT_AFTER, read_ids, write_ids};
