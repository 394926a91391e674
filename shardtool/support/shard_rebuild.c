// Copies the undamaged frames of a shard.
#include "shardtool/support/shard_rebuild.h"
#include "common/err.h"
#include "common/log.h"
#include "dataset/shard.h"
#include "remote/url_map.h"
#include <inttypes.h>
#include <zstd.h>

// The size of the block at the start of `left`, or 0 when it is truncated or not a block.
static size_t block_bytes(Bytes left) {
    if (left.size < SKIPPABLE_BYTES) return 0;
    size_t bytes = ZSTD_findFrameCompressedSize(left.data, left.size);
    return ZSTD_isError(bytes) ? 0 : bytes;
}

// Reads blocks A and B. Sets *offset to the byte after them.
static int read_head(Bytes map, Shard *member, size_t *offset) {
    size_t opening = sizeof SHARD_OPENING - 1;
    if (map.size < opening + SKIPPABLE_BYTES || memcmp(map.data, SHARD_OPENING, opening) ||
        get_u32(map.data + opening) != SHARD_HEADER_MAGIC)
        return fail(EX_DATA, "does not start with a shard");
    Bytes block = {map.data + opening, block_bytes((Bytes){map.data + opening, map.size - opening})};
    if (!block.size) return fail(EX_DATA, "the header is truncated");
    *offset = opening + block.size;
    return shard_read_header(member, block, opening);
}

// Copies the undamaged frames of a shard whose tables are whole, with two facts that the frames lack: whether the first
// document began in another shard, and the bytes of text. *left_out counts the bytes of the other frames.
static int copy_listed(ShardWriter *writer, const ShardFile *old, size_t *left_out) {
    ShardCursor *cursor = shard_cursor_open();
    Buffer ids = {0};
    buffer_reserve(&ids, (size_t)old->frame_tokens * id_bytes(old->vocab_size));
    uint8_t *data = ids.data;
    int status = 0;
    uint64_t lost = 0;
    for (uint64_t i = 0; status == 0 && i < old->frame_count; i++) {
        const ShardFrame *frame = &old->frames[i];
        if (shard_decode(old, cursor, i, data) == 0) {
            Bytes block = {old->map.data + frame->offset, frame->bytes};
            status = shard_writer_append(writer, data, frame->tokens, block, 0);
        } else {
            err_clear();
            lost++, *left_out += frame->bytes;
        }
    }
    if (lost)
        log_warn("'%s': left out %" PRIu64 " damaged frame%s of %" PRIu64
                 "; the documents before and after them are joined",
                 old->path, lost, PLURAL(lost), old->frame_count);
    writer->continues_before = old->members[0].index.data[0] & SHARD_CONTINUES_BEFORE;
    if (!lost) writer->source_bytes = old->source_bytes;
    shard_cursor_close(cursor);
    buffer_close(&ids);
    return status;
}

// Copies frames until one is truncated or damaged: no frame after it has a known position.
static int copy_from_start(ShardWriter *writer, const char *path, Bytes map, const Shard *member, size_t start,
                           size_t *left_out) {
    ShardFrame frame = {0};
    size_t stop = start;
    ShardFile loose = {.path = (char *)(uintptr_t)path, .map = map, .frames = &frame, .vocab_size = member->vocab_size};
    ShardCursor *cursor = shard_cursor_open();
    Buffer ids = {0};
    const unsigned bytes = id_bytes(member->vocab_size);
    buffer_reserve(&ids, (size_t)member->frame_tokens * bytes);
    uint8_t *data = ids.data;
    int status = 0;
    while (status == 0 && stop < map.size) {
        Bytes block = {map.data + stop, block_bytes((Bytes){map.data + stop, map.size - stop})};
        if (!block.size) break;
        unsigned long long raw =
            ZSTD_getFrameContentSize(block.data, block.size); // 0 for skippable frames and for block A
        if (raw) {
            if (raw % bytes || raw / bytes > member->frame_tokens) break;
            frame = (ShardFrame){.offset = stop,
                                 .bytes = (uint32_t)block.size,
                                 .tokens = (uint32_t)(raw / bytes),
                                 .checksum = get_u32(block.data + block.size - 4)};
            if (shard_decode(&loose, cursor, 0, data) < 0) {
                err_clear();
                break;
            }
            status = shard_writer_append(writer, data, frame.tokens, block, 0);
        }
        stop += block.size;
    }
    *left_out = map.size - stop;
    log_warn("'%s' has no undamaged tables: its first document is counted as one that begins here%s", path,
             *left_out ? ", and everything after the first damaged frame is left out" : "");
    shard_cursor_close(cursor);
    buffer_close(&ids);
    return status;
}

static int copy_frames(ShardWriter *writer, const char *path, Bytes map, const Shard *member, size_t start) {
    ShardFile old;
    size_t left_out = 0;
    int status;
    if (shard_file_open_bytes(&old, path, map) == 0) {
        status = copy_listed(writer, &old, &left_out);
        shard_file_close(&old);
    } else {
        err_clear();
        status = copy_from_start(writer, path, map, member, start, &left_out);
    }
    if (status == 0 && !writer->frame_count) status = fail(EX_DATA, "'%s' has no undamaged frame", path);
    if (status == 0)
        log_line("%" PRIu64 " frame%s, %" PRIu64 " tokens; read %zu of %zu bytes", writer->frame_count,
                 PLURAL(writer->frame_count), writer->tokens, map.size - left_out, map.size);
    return status;
}

int shard_rebuild(const char *path, const char *output) {
    Bytes map;
    if (url_map_file(&map, path) < 0) return -1;
    Shard member = {0};
    size_t start = 0;
    int status = read_head(map, &member, &start) < 0 ? fail_in("shard '%s'", path) : 0;
    if (status == 0) {
        ShardParams params = {
            .frame_tokens = member.frame_tokens, .vocab_size = member.vocab_size, .eot_id = member.eot_id};
        memcpy(params.vocab_fp, member.vocab_fp, 32);
        memcpy(params.params_fp, member.params_fp, 32);
        ShardWriter writer;
        status = shard_writer_open(&writer, output, -1, &params, false);
        if (status == 0) {
            status = copy_frames(&writer, path, map, &member, start);
            if (status == 0)
                status = shard_writer_finish(&writer);
            else
                shard_writer_abandon(&writer);
        }
    }
    file_unmap(&map);
    return status;
}
