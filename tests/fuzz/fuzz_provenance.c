// Any bytes as a table of documents, or after a first byte of 1 as the decompressed bytes of its only block, whose
// number of rows the next two bytes are. Rows are read in both directions. Every error must be bad data (65).
#include "dataset/provenance.h"
#include "tests/fuzz/fuzz.h"
#include <zstd.h>

static void add_block(Buffer *table, const uint8_t *data, size_t size) {
    uint8_t head[SKIPPABLE_BYTES + 16];
    put_u32(head, SHARD_DOCS_MAGIC), put_u32(head + 4, 16);
    memcpy(head + 8, "SHRDDOC1", 8);
    put_u32(head + 16, get_u16(data)), put_u32(head + 20, (uint32_t)size - 2);
    buffer_add(table, head, sizeof head);
    buffer_reserve(table, ZSTD_compressBound(size));
    const size_t bytes = ZSTD_compress(table->data + table->size, ZSTD_compressBound(size), data + 2, size - 2, 1);
    if (ZSTD_isError(bytes)) abort();
    table->size += bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Buffer bytes = {0}, row = {0};
    ProvenanceTable table;
    if (size > 3 && data[0] == 1)
        add_block(&bytes, data + 1, size - 1);
    else
        buffer_add(&bytes, data, size);
    int status = provenance_table_open(&table, "fuzzed", (Bytes){bytes.data, bytes.size});
    for (uint64_t i = 0; status == 0 && i < 2 * table.rows && i < 50000; i++) {
        Provenance read;
        const uint64_t number = i < table.rows ? i : 2 * table.rows - 1 - i;
        if (i > table.rows + 20) break; // each step back walks over the block
        status = provenance_table_row(&table, number, &row);
        if (status < 0 || !provenance_parse((Bytes){row.data, row.size}, &read)) continue;
        if (!*read.input) abort();
        const char *key;
        Bytes value;
        while (provenance_next_value(&read.values, &key, &value))
            if (!*key || value.size > PROVENANCE_VALUE_MAX) abort();
    }
    if (err_code() && err_code() != EX_DATA) abort();
    err_clear();
    provenance_table_close(&table);
    buffer_close(&bytes);
    buffer_close(&row);
    return 0;
}
