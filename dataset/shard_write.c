// Writes shards: frames that were decoded again and compared, then index, trailer and seek table.
#include "common/err.h"
#include "common/zstd/pair_matches.h"
#include "dataset/ids.h"
#include "dataset/shard.h"
#include <stdlib.h>
#include <zstd_errors.h>

struct ShardEncoder {
    ZSTD_CCtx *compress;
    ZSTD_DCtx *decompress;
    PairMatches *matches;
    Buffer sequences, check;
};

// The parameters of a level are ours, and every one is explicit: the parameters of zstd depend on the input size and on
// its version, and are for text. minMatch 4 is two ids of u16. A level between two rows is the lower one;
// docs/datasets.md has their sizes and speeds. "fast" with a target length would leave the literals as they are. Of
// "pairs" the matches are from pair_matches.h, and zstd encodes them as those of dfast.
enum { WINDOW_LOG = 17, PAIRS = SHARD_LEVEL, LEVEL_OF_INDEX = 3 };
static const struct ShardLevel {
    unsigned level;
    const char *name; // of the strategy
    ZSTD_strategy strategy;
    int min_match, hash_log, chain_log, search_log, target_length;
} levels[] = {
    {1, "fast", ZSTD_fast, 4, 14, 12, 1, 0},
    {PAIRS, "pairs", ZSTD_dfast, 4, PAIR_MATCHES_TABLE_LOG, PAIR_MATCHES_TABLE_LOG, 1, 1},
    {LEVEL_OF_INDEX, "dfast", ZSTD_dfast, 4, 17, 16, 1, 1},
    {5, "greedy", ZSTD_greedy, 4, 15, 15, 3, 8},
    {7, "lazy", ZSTD_lazy, 4, 15, 15, 3, 16},
    {9, "lazy", ZSTD_lazy, 4, 15, 15, 5, 16},
    {16, "btopt", ZSTD_btopt, 4, 16, 16, 6, 64},
};

static const struct ShardLevel *find_level(unsigned level) {
    size_t i = sizeof levels / sizeof *levels - 1;
    while (levels[i].level > (level ? level : SHARD_LEVEL)) i--;
    return &levels[i];
}

void shard_level_print(Buffer *text, unsigned level) {
    const struct ShardLevel *row = find_level(level);
    buffer_print(text, "%s,%d,%d,%d,%d,%d", row->name, row->min_match, row->hash_log, row->chain_log, WINDOW_LOG,
                 row->search_log);
    if (row->target_length > 1) buffer_print(text, ",%d", row->target_length);
}

static void set_parameters(ZSTD_CCtx *compress, unsigned level, size_t bytes) {
    const struct ShardLevel *row = find_level(level);
    int window = WINDOW_LOG;
    while (window < 31 && (size_t)1 << window < bytes) window++; // a window that covers the frame: single segment
    const struct {
        ZSTD_cParameter name;
        int value;
    } parameters[] = {{ZSTD_c_strategy, (int)row->strategy},
                      {ZSTD_c_minMatch, row->min_match},
                      {ZSTD_c_hashLog, row->hash_log},
                      {ZSTD_c_chainLog, row->chain_log},
                      {ZSTD_c_windowLog, window},
                      {ZSTD_c_searchLog, row->search_log},
                      {ZSTD_c_targetLength, row->target_length},
                      {ZSTD_c_contentSizeFlag, 1},
                      {ZSTD_c_checksumFlag, 1},
                      {ZSTD_c_blockDelimiters, ZSTD_sf_explicitBlockDelimiters}};
    ZSTD_CCtx_reset(compress, ZSTD_reset_session_only); // ZSTD_compressSequences leaves its session open
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        size_t status = ZSTD_CCtx_setParameter(compress, parameters[i].name, parameters[i].value);
        if (ZSTD_isError(status)) die(EX_BUG, "libzstd %s: %s", ZSTD_versionString(), ZSTD_getErrorName(status));
    }
}

ShardEncoder *shard_encoder_open(void) {
    ShardEncoder *encoder = allocate_zeroed(1, sizeof *encoder);
    encoder->compress = ZSTD_createCCtx(), encoder->decompress = ZSTD_createDCtx();
    if (!encoder->compress || !encoder->decompress) die(EX_MEMORY, "no memory for a compressor");
    encoder->matches = pair_matches_open();
    return encoder;
}

void shard_encoder_close(ShardEncoder *encoder) {
    if (!encoder) return;
    ZSTD_freeCCtx(encoder->compress);
    ZSTD_freeDCtx(encoder->decompress);
    pair_matches_close(encoder->matches);
    buffer_close(&encoder->sequences);
    buffer_close(&encoder->check);
    free(encoder);
}

int shard_fail_zstd(size_t result) {
    bool no_memory = ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation;
    return fail(no_memory ? EX_MEMORY : EX_BUG, "libzstd %s: %s", ZSTD_versionString(), ZSTD_getErrorName(result));
}

static size_t compress_pairs(ShardEncoder *encoder, void *out, size_t bound, const void *data, size_t size) {
    encoder->sequences.size = 0;
    buffer_reserve(&encoder->sequences, PAIR_MATCHES_MAX(size) * sizeof(ZSTD_Sequence));
    ZSTD_Sequence *sequences = (ZSTD_Sequence *)(void *)encoder->sequences.data;
    const size_t count = pair_matches_find(encoder->matches, data, size, sequences);
    return ZSTD_compressSequences(encoder->compress, out, bound, sequences, count, data, size);
}

static int compress_bytes(ShardEncoder *encoder, unsigned level, const void *data, size_t size, Buffer *out) {
    set_parameters(encoder->compress, level, size);
    size_t bound = ZSTD_compressBound(size);
    buffer_reserve(out, bound);
    uint8_t *to = out->data + out->size;
    const size_t bytes = find_level(level)->level == PAIRS ? compress_pairs(encoder, to, bound, data, size)
                                                           : ZSTD_compress2(encoder->compress, to, bound, data, size);
    if (ZSTD_isError(bytes)) return shard_fail_zstd(bytes);

    // zstd before 1.5.5 can, rarely, write a frame that decodes to other bytes (facebook/zstd#3517)
    encoder->check.size = 0;
    buffer_reserve(&encoder->check, size);
    size_t back = ZSTD_decompressDCtx(encoder->decompress, encoder->check.data, size, to, bytes);
    if (back != size || (size && memcmp(encoder->check.data, data, size)))
        return fail(EX_BUG, "libzstd %s wrote a frame that does not decode to its ids", ZSTD_versionString());
    out->size += bytes;
    return 0;
}

int shard_encode(ShardEncoder *encoder, const ShardParams *params, const void *ids, size_t count, Buffer *frame) {
    const unsigned bytes = id_bytes(params->vocab_size);
    if (!ids_are_below(ids, bytes, count, params->vocab_size)) {
        size_t i = 0;
        while (id_at(ids, i, bytes) < params->vocab_size) i++;
        return fail(EX_DATA, "id %u is not in the vocabulary of %u", id_at(ids, i, bytes), params->vocab_size);
    }
    frame->size = 0;
    return compress_bytes(encoder, params->level, ids, count * bytes, frame);
}

static void add_u32(Buffer *buffer, uint32_t v) { buffer_add(buffer, &v, sizeof v); }
static void add_u64(Buffer *buffer, uint64_t v) { buffer_add(buffer, &v, sizeof v); }

uint64_t shard_index_add(Buffer *lengths, const void *ids, unsigned bytes, size_t count, uint32_t eot_id,
                         uint64_t *carry) {
    uint64_t ended = 0;
    size_t begin = 0, end;
    while ((end = begin + ids_find((const uint8_t *)ids + begin * bytes, bytes, count - begin, eot_id)) < count) {
        buffer_add_leb128(lengths, *carry + end + 1 - begin);
        begin = end + 1, *carry = 0, ended++;
    }
    *carry += count - begin;
    return ended;
}

void shard_index_finish(Buffer *lengths, uint64_t carry) {
    if (carry) buffer_add_leb128(lengths, carry);
}

void shard_table_add(Buffer *table, uint64_t bytes, uint64_t raw_bytes, uint32_t checksum) {
    add_u32(table, (uint32_t)bytes);
    add_u32(table, (uint32_t)raw_bytes);
    add_u32(table, raw_bytes ? checksum : SHARD_EMPTY_XXH64);
}

void shard_table_finish(Buffer *table) {
    size_t entries = table->size;
    add_u32(table, (uint32_t)(entries / SHARD_ENTRY_BYTES));
    uint8_t descriptor = 0x80; // with checksums
    buffer_add(table, &descriptor, 1);
    add_u32(table, SHARD_FOOTER_MAGIC);

    uint32_t head[2] = {SHARD_TABLE_MAGIC, (uint32_t)table->size};
    buffer_reserve(table, sizeof head);
    memmove(table->data + sizeof head, table->data, table->size);
    memcpy(table->data, head, sizeof head);
    table->size += sizeof head;
}

static int put(ShardWriter *writer, const void *data, size_t size) {
    XXH3_128bits_update(writer->stored, data, size);
    writer->offset += size;
    return writer->pipe >= 0 ? fd_write(writer->pipe, data, size, "the output")
                             : newfile_write(&writer->file, data, size);
}

// Writes a skippable frame. Appends the CRC32C of `payload` to it.
static int put_skippable(ShardWriter *writer, uint32_t magic, Buffer *payload) {
    add_u32(payload, crc32c(0, payload->data, payload->size));
    uint32_t head[2] = {magic, (uint32_t)payload->size};
    shard_table_add(&writer->table, SKIPPABLE_BYTES + payload->size, 0, 0);
    return put(writer, head, sizeof head) || put(writer, payload->data, payload->size) ? -1 : 0;
}

static int put_header(ShardWriter *writer) {
    uint8_t head[30] = "SHRDHDR1"; // the 30 bytes before the fingerprints
    put_u16(head + 8, SHARD_HEADER_BYTES);
    put_u16(head + 10, SHARD_VERSION);
    head[12] = id_bytes(writer->params.vocab_size) == 2 ? SHARD_U16 : SHARD_U32;
    head[13] = SHARD_EOT_AFTER;
    put_u32(head + 14, writer->params.eot_id);
    put_u32(head + 18, writer->params.vocab_size);
    put_u64(head + 22, writer->params.frame_tokens);

    Buffer payload = {0};
    buffer_add(&payload, head, sizeof head);
    buffer_add(&payload, writer->params.vocab_fp, 32);
    buffer_add(&payload, writer->params.params_fp, 32);
    int status = put_skippable(writer, SHARD_HEADER_MAGIC, &payload);
    buffer_close(&payload);
    return status;
}

int shard_writer_open(ShardWriter *writer, const char *path, int pipe, const ShardParams *params, bool continues) {
    *writer = (ShardWriter){.pipe = path ? -1 : pipe, .params = *params, .continues_before = continues};
    if (path && newfile_open(&writer->file, path) < 0) return -1;

    sha256_open(&writer->content);
    writer->stored = XXH3_createState();
    if (!writer->stored) die(EX_MEMORY, "no memory for a hash");
    XXH3_128bits_reset(writer->stored);

    size_t opening = sizeof SHARD_OPENING - 1;
    shard_table_add(&writer->table, opening, 0, 0);
    if (put(writer, SHARD_OPENING, opening) == 0 && put_header(writer) == 0) return 0;
    shard_writer_abandon(writer);
    return -1;
}

int shard_writer_append(ShardWriter *writer, const void *ids, size_t count, Bytes frame, uint64_t source_bytes) {
    const unsigned bytes = id_bytes(writer->params.vocab_size);
    sha256_add(&writer->content, ids, count * bytes);
    uint64_t ended =
        shard_index_add(&writer->lengths, ids, bytes, count, writer->params.eot_id, &writer->document_tokens);
    writer->documents += ended;
    writer->tokens += count;
    writer->source_bytes += source_bytes;
    writer->frame_count++;
    // the seek table has the checksum that ends the zstd frame
    shard_table_add(&writer->table, frame.size, count * bytes, get_u32(frame.data + frame.size - 4));
    return put(writer, frame.data, frame.size);
}

static int put_index(ShardWriter *writer) {
    bool open_end = writer->document_tokens > 0;
    shard_index_finish(&writer->lengths, writer->document_tokens);
    writer->documents += open_end; // so far it counts ended documents; the trailer counts started ones
    if (writer->continues_before && writer->documents) writer->documents--;

    ShardEncoder *encoder = shard_encoder_open();
    Buffer payload = {0};
    uint8_t flags =
        (uint8_t)((writer->continues_before ? SHARD_CONTINUES_BEFORE : 0) | (open_end ? SHARD_CONTINUES_AFTER : 0));
    buffer_add(&payload, &flags, 1);
    int status = compress_bytes(encoder, LEVEL_OF_INDEX, writer->lengths.data, writer->lengths.size, &payload);
    if (status == 0) status = put_skippable(writer, SHARD_INDEX_MAGIC, &payload);
    buffer_close(&payload);
    shard_encoder_close(encoder);
    return status;
}

static int put_trailer(ShardWriter *writer, uint64_t index_offset) {
    sha256_close(&writer->content, writer->content_hash);
    XXH128_canonical_t stored;
    XXH128_canonicalFromHash(&stored, XXH3_128bits_digest(writer->stored));
    memcpy(writer->stored_hash, &stored, sizeof writer->stored_hash);

    Buffer payload = {0};
    add_u64(&payload, writer->tokens);
    add_u64(&payload, writer->documents);
    add_u64(&payload, writer->source_bytes);
    buffer_add(&payload, writer->content_hash, 32);
    add_u64(&payload, index_offset);
    buffer_add(&payload, writer->stored_hash, 16);
    int status = put_skippable(writer, SHARD_TRAILER_MAGIC, &payload);
    buffer_close(&payload);
    return status;
}

static void release(ShardWriter *writer) {
    buffer_close(&writer->lengths);
    buffer_close(&writer->table);
    sha256_close(&writer->content, NULL);
    XXH3_freeState(writer->stored);
    writer->stored = NULL;
}

int shard_writer_finish(ShardWriter *writer) {
    uint64_t index_offset = writer->offset;
    int status = put_index(writer);
    if (status == 0) status = put_trailer(writer, index_offset);
    if (status == 0) {
        shard_table_finish(&writer->table);
        status = put(writer, writer->table.data, writer->table.size);
    }
    if (status < 0) return shard_writer_abandon(writer), -1;
    release(writer);
    return writer->pipe >= 0 ? 0 : newfile_commit(&writer->file);
}

void shard_writer_abandon(ShardWriter *writer) {
    release(writer);
    if (writer->pipe < 0) newfile_abandon(&writer->file);
}
