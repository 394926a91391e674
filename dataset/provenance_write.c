// Writes the table of a shard: collects the columns of a block, and compresses it when it is full.
#include "common/err.h"
#include "dataset/provenance.h"
#include <stdlib.h>
#include <zstd.h>

enum { SLOTS = 4 * PROVENANCE_ROWS_MAX, LEVEL = 3 };

typedef struct {
    Buffer lengths, values;
    uint64_t rows; // in `lengths`
} ValueColumn;

struct ProvenanceBlock {
    uint64_t rows;
    Buffer inputs, keys; // names, each with its NUL
    uint64_t input_count, key_count;
    uint32_t slots[SLOTS]; // hash table: 1 + the number of an input
    Buffer offsets;        // size_t of each input's name
    Buffer places;
    ValueColumn columns[PROVENANCE_KEYS_MAX];
    uint64_t input, record; // of the last row that has one
    Buffer raw, frame;
};

static uint64_t zigzag(uint64_t n) { return n << 1 ^ (0 - (n >> 63)); }

// The number of an input in the block, which it is added to.
static uint64_t find_input(ProvenanceBlock *block, const char *name) {
    const size_t size = strlen(name) + 1;
    const size_t *offsets = (const size_t *)(const void *)block->offsets.data;
    if (block->input_count && !strcmp((const char *)block->inputs.data + offsets[block->input], name))
        return block->input;
    uint64_t slot = XXH3_64bits(name, size) % SLOTS;
    for (; block->slots[slot]; slot = (slot + 1) % SLOTS)
        if (!strcmp((const char *)block->inputs.data + offsets[block->slots[slot] - 1], name))
            return block->slots[slot] - 1;
    buffer_add(&block->offsets, &block->inputs.size, sizeof block->inputs.size);
    buffer_add(&block->inputs, name, size);
    block->slots[slot] = (uint32_t)++block->input_count;
    return block->input_count - 1;
}

// The column of a key, which is added to the block; NULL if that has PROVENANCE_KEYS_MAX others.
static ValueColumn *find_column(ProvenanceBlock *block, const char *key) {
    const char *name = (const char *)block->keys.data;
    uint64_t i = 0;
    for (; i < block->key_count; i++, name += strlen(name) + 1)
        if (!strcmp(name, key)) return &block->columns[i];
    if (i == PROVENANCE_KEYS_MAX) return NULL;
    buffer_add(&block->keys, key, strlen(key) + 1);
    return &block->columns[block->key_count++];
}

static void pad(ValueColumn *column, uint64_t rows) {
    for (; column->rows < rows; column->rows++) buffer_add(&column->lengths, "", 1);
}

static void clear(ProvenanceBlock *block) {
    for (unsigned i = 0; i < block->key_count; i++)
        block->columns[i].lengths.size = block->columns[i].values.size = block->columns[i].rows = 0;
    memset(block->slots, 0, sizeof block->slots);
    block->inputs.size = block->keys.size = block->offsets.size = block->places.size = 0;
    block->rows = block->input_count = block->key_count = block->input = 0;
    block->record = UINT64_MAX;
}

static int write_bytes(ProvenanceWriter *writer, const void *data, size_t size) {
    XXH3_128bits_update(writer->hash, data, size);
    return newfile_write(&writer->file, data, size);
}

static int write_block(ProvenanceWriter *writer) {
    ProvenanceBlock *block = writer->block;
    Buffer *raw = &block->raw, *frame = &block->frame;
    raw->size = frame->size = 0;
    buffer_add_leb128(raw, block->input_count);
    buffer_add(raw, block->inputs.data, block->inputs.size);
    buffer_add_leb128(raw, block->key_count);
    buffer_add(raw, block->keys.data, block->keys.size);
    buffer_add(raw, block->places.data, block->places.size);
    for (unsigned i = 0; i < block->key_count; i++) {
        pad(&block->columns[i], block->rows);
        buffer_add(raw, block->columns[i].lengths.data, block->columns[i].lengths.size);
        buffer_add(raw, block->columns[i].values.data, block->columns[i].values.size);
    }
    uint8_t head[SKIPPABLE_BYTES + 16] = {0};
    put_u32(head, SHARD_DOCS_MAGIC), put_u32(head + 4, 16);
    memcpy(head + 8, "SHRDDOC1", 8);
    put_u32(head + 16, (uint32_t)block->rows), put_u32(head + 20, (uint32_t)raw->size);
    ZSTD_CCtx *compress = ZSTD_createCCtx();
    if (!compress) die(EX_MEMORY, "no memory for a compressor");
    ZSTD_CCtx_setParameter(compress, ZSTD_c_compressionLevel, LEVEL);
    ZSTD_CCtx_setParameter(compress, ZSTD_c_checksumFlag, 1);
    buffer_reserve(frame, ZSTD_compressBound(raw->size));
    const size_t bytes = ZSTD_compress2(compress, frame->data, frame->capacity, raw->data, raw->size);
    ZSTD_freeCCtx(compress);
    if (ZSTD_isError(bytes)) return shard_fail_zstd(bytes);
    if (!writer->hash) {
        writer->hash = XXH3_createState();
        if (!writer->hash) die(EX_MEMORY, "no memory for a hash");
        XXH3_128bits_reset(writer->hash);
        if (newfile_open(&writer->file, writer->path) < 0) return -1;
    }
    clear(block);
    return write_bytes(writer, head, sizeof head) < 0 ? -1 : write_bytes(writer, frame->data, bytes);
}

static size_t block_bytes(const ProvenanceBlock *block) {
    size_t bytes = block->inputs.size + block->places.size;
    for (unsigned i = 0; i < block->key_count; i++)
        bytes += block->columns[i].lengths.size + block->columns[i].values.size;
    return bytes;
}

// Whether the keys of the row have room in the block; they are added to it.
static bool takes_keys(ProvenanceBlock *block, Bytes values) {
    const char *key;
    Bytes value;
    while (provenance_next_value(&values, &key, &value))
        if (!find_column(block, key)) return false;
    return true;
}

static void add_row(ProvenanceBlock *block, Provenance *row) {
    const uint64_t input = find_input(block, row->input);
    buffer_add_leb128(&block->places, 1 + zigzag(input - block->input));
    buffer_add_leb128(&block->places, zigzag(row->record - block->record - 1));
    block->input = input, block->record = row->record;
    const char *key;
    Bytes value;
    while (provenance_next_value(&row->values, &key, &value)) {
        ValueColumn *column = find_column(block, key);
        if (column->rows > block->rows) continue; // the first of two equal keys
        pad(column, block->rows);
        buffer_add_leb128(&column->lengths, 1 + value.size), column->rows++;
        buffer_add(&column->values, value.data, value.size);
    }
}

int provenance_writer_add(ProvenanceWriter *writer, Bytes row) {
    Provenance read;
    const bool known = provenance_parse(row, &read);
    if (!writer->block) {
        writer->block = allocate_zeroed(1, sizeof *writer->block);
        clear(writer->block);
    }
    ProvenanceBlock *block = writer->block;
    if (known && !takes_keys(block, read.values)) {
        if (write_block(writer) < 0) return -1;
        if (!takes_keys(block, read.values))
            return fail(EX_DATA, "a document has more than %d kept keys", PROVENANCE_KEYS_MAX);
    }
    if (known)
        add_row(block, &read);
    else
        buffer_add(&block->places, "", 1);
    block->rows++, writer->rows++, writer->known += known;
    return block->rows == PROVENANCE_ROWS_MAX || block_bytes(block) >= PROVENANCE_BLOCK_BYTES ? write_block(writer) : 0;
}

int provenance_writer_finish(ProvenanceWriter *writer, ProvenanceFile *file) {
    int status = 0;
    if (writer->known && writer->block->rows) status = write_block(writer);
    if (status == 0 && writer->known) {
        XXH128_canonical_t hash;
        XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(writer->hash));
        memcpy(file->hash, &hash, sizeof file->hash);
        file->bytes = writer->file.written;
        status = newfile_commit(&writer->file);
    }
    provenance_writer_abandon(writer);
    return status;
}

void provenance_writer_abandon(ProvenanceWriter *writer) {
    ProvenanceBlock *block = writer->block;
    newfile_abandon(&writer->file);
    if (writer->hash) XXH3_freeState(writer->hash);
    if (block) {
        Buffer *const buffers[] = {&block->inputs, &block->keys, &block->offsets,
                                   &block->places, &block->raw,  &block->frame};
        for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) buffer_close(buffers[i]);
        for (unsigned i = 0; i < PROVENANCE_KEYS_MAX; i++)
            buffer_close(&block->columns[i].lengths), buffer_close(&block->columns[i].values);
        free(block);
    }
    *writer = (ProvenanceWriter){0};
}
