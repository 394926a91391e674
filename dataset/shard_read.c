// Reads shards: finds the members of a file from its end backwards, checks their tables before use, and decodes frames.
#include "common/err.h"
#include "common/file/spool.h"
#include "common/search.h"
#include "common/zstd/zstd_decoder.h"
#include "dataset/dataset.h"
#include "dataset/ids.h"
#include "dataset/shard.h"
#include "remote/url_map.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <zstd.h>
#include <zstd_errors.h>

struct ShardCursor {
    ZSTD_DCtx *decompress;
    uint64_t foreign; // of the last shard
};

bool shard_begins(Bytes head) {
    size_t opening = sizeof SHARD_OPENING - 1;
    return head.size >= opening && !memcmp(head.data, SHARD_OPENING, opening);
}

int shard_hold(const ShardFile *shard, uint64_t offset, uint64_t size) {
    return shard->url ? url_map_hold(shard->url, offset, size) : 0;
}

void shard_release(const ShardFile *shard, uint64_t offset, uint64_t size) {
    if (shard->url) url_map_release(shard->url, offset, size);
}

// Finds the member that ends at `end`: sets offset, table and end, and counts its frames.
static int find_member(const ShardFile *shard, uint64_t end, Shard *member) {
    enum { LEAST = SKIPPABLE_BYTES + SHARD_FOOTER_BYTES };
    const Bytes map = shard->map;
    const uint8_t *footer = map.data + end - SHARD_FOOTER_BYTES;
    if (end >= LEAST && (shard_hold(shard, 0, LEAST) < 0 || shard_hold(shard, end - LEAST, LEAST) < 0)) return -1;
    if (end < LEAST || get_u32(footer + 5) != SHARD_FOOTER_MAGIC || footer[4] != 0x80)
        return fail(EX_DATA,
                    shard_begins(map) ? "truncated or extended: no seek table ends at offset %" PRIu64
                                      : "not a shard: no seek table ends at offset %" PRIu64,
                    end);
    uint64_t count = get_u32(footer), payload = count * SHARD_ENTRY_BYTES + SHARD_FOOTER_BYTES;
    if (count < 3) return fail(EX_DATA, "seek table at the end: too few entries for a shard");
    if (payload > end - SKIPPABLE_BYTES)
        return fail(EX_DATA, "seek table at the end: %" PRIu64 " entries do not fit into %" PRIu64 " bytes", count,
                    end);
    uint64_t table = end - payload - SKIPPABLE_BYTES;
    if (shard_hold(shard, table, end - table) < 0) return -1;
    if (get_u32(map.data + table) != SHARD_TABLE_MAGIC || get_u32(map.data + table + 4) != payload)
        return fail(EX_DATA, "seek table at offset %" PRIu64 ": its header and its footer disagree", table);

    uint64_t bytes = 0;
    const uint8_t *entry = map.data + table + SKIPPABLE_BYTES;
    for (uint64_t i = 0; i < count; i++, entry += SHARD_ENTRY_BYTES) {
        bytes += get_u32(entry);
        member->frame_count += get_u32(entry + 4) > 0;
    }
    if (bytes > table)
        return fail(EX_DATA,
                    "seek table at offset %" PRIu64 ": it points %" PRIu64 " bytes before the start of the file", table,
                    bytes - table);
    member->offset = table - bytes, member->table = table, member->end = end;
    return 0;
}

// Checks the crc of a block and returns its payload. The caller has checked size and magic.
static int checked_payload(Bytes block, const char *name, uint64_t offset, Bytes *payload) {
    if (block.size < SKIPPABLE_BYTES + 4) return fail(EX_DATA, "%s at offset %" PRIu64 ": too short", name, offset);
    *payload = (Bytes){block.data + SKIPPABLE_BYTES, block.size - SKIPPABLE_BYTES - 4};
    if (crc32c(0, payload->data, payload->size) == get_u32(payload->data + payload->size)) return 0;
    return fail(EX_DATA, "%s at offset %" PRIu64 ": damaged (its checksum differs)", name, offset);
}

int shard_read_header(Shard *member, Bytes block, uint64_t offset) {
    Bytes p = {0};
    if (checked_payload(block, "header", offset, &p) < 0) return -1;
    if (p.size < 12 || memcmp(p.data, "SHRDHDR1", 8))
        return fail(EX_DATA, "header at offset %" PRIu64 ": wrong magic", offset);
    if (get_u16(p.data + 10) != SHARD_VERSION)
        return fail(EX_DATA, "written as version %u, this program reads version %d", get_u16(p.data + 10),
                    SHARD_VERSION);
    if (p.size != SHARD_HEADER_BYTES - 4 || get_u16(p.data + 8) != SHARD_HEADER_BYTES)
        return fail(EX_DATA, "header at offset %" PRIu64 ": %zu bytes instead of %d", offset, p.size + 4,
                    SHARD_HEADER_BYTES);
    if (p.data[12] != SHARD_U16 && p.data[12] != SHARD_U32)
        return fail(EX_DATA, "ids of type %u, this program reads types 1 (u16) and 2 (u32)", p.data[12]);
    if (p.data[13] != SHARD_EOT_AFTER)
        return fail(EX_DATA, "end-of-text policy %u, this program reads policy 1 (after each document)", p.data[13]);

    member->eot_id = get_u32(p.data + 14);
    member->vocab_size = get_u32(p.data + 18);
    member->frame_tokens = get_u64(p.data + 22);
    memcpy(member->vocab_fp, p.data + 30, 32);
    memcpy(member->params_fp, p.data + 62, 32);
    if (member->vocab_size == 0 || member->vocab_size > IDS_MAX)
        return fail(EX_DATA, "header: a vocabulary of %u ids, this program reads up to %d", member->vocab_size,
                    IDS_MAX);
    if ((p.data[12] == SHARD_U32) != (id_bytes(member->vocab_size) == 4))
        return fail(EX_DATA, "header: a vocabulary of %u ids of type %u", member->vocab_size, p.data[12]);
    if (member->frame_tokens == 0 || member->frame_tokens > SHARD_FRAME_TOKENS_MAX)
        return fail(EX_DATA, "header: frames of %" PRIu64 " tokens", member->frame_tokens);
    return 0;
}

static int parse_trailer(Shard *member, Bytes block, uint64_t offset, uint64_t index_offset) {
    Bytes p = {0};
    if (checked_payload(block, "trailer", offset, &p) < 0) return -1;
    if (p.size != SHARD_TRAILER_BYTES - 4)
        return fail(EX_DATA, "trailer at offset %" PRIu64 ": %zu bytes", offset, p.size);
    if (get_u64(p.data) != member->tokens)
        return fail(EX_DATA, "trailer at offset %" PRIu64 ": %" PRIu64 " tokens, the frames hold %" PRIu64, offset,
                    get_u64(p.data), member->tokens);
    if (get_u64(p.data + 56) != index_offset)
        return fail(EX_DATA, "trailer at offset %" PRIu64 ": wrong offset of the document index", offset);
    member->trailer = offset;
    member->documents = get_u64(p.data + 8);
    member->source_bytes = get_u64(p.data + 16);
    memcpy(member->content_hash, p.data + 24, 32);
    memcpy(member->stored_hash, p.data + 64, 16);
    return 0;
}

static int parse_data_frame(ShardFile *shard, Shard *member, const uint8_t *entry, uint64_t offset) {
    uint32_t raw = get_u32(entry + 4);
    const unsigned bytes = id_bytes(member->vocab_size);
    uint64_t number = shard->frame_count;
    if (raw % bytes || raw / bytes > member->frame_tokens)
        return fail(EX_DATA, "frame %" PRIu64 " at offset %" PRIu64 ": %u bytes of ids, frames hold %" PRIu64 " ids",
                    number, offset, raw, member->frame_tokens);
    uint32_t tokens = raw / bytes;
    shard->frames[shard->frame_count++] =
        (ShardFrame){offset, shard->tokens + member->tokens, get_u32(entry), tokens, get_u32(entry + 8)};
    member->tokens += tokens;
    return 0;
}

// Walks the seek table of a member: A, B, then data frames and skippable frames, E last.
static int parse_member(ShardFile *shard, Shard *member) {
    const uint8_t *table = shard->map.data + member->table + SKIPPABLE_BYTES;
    uint64_t count = (member->end - SHARD_FOOTER_BYTES - SKIPPABLE_BYTES - member->table) / SHARD_ENTRY_BYTES;
    uint64_t offset = member->offset, index_offset = 0;
    member->first_frame = shard->frame_count;
    if (count < 3) return fail(EX_DATA, "seek table at offset %" PRIu64 ": too few entries for a shard", member->table);

    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *entry = table + i * SHARD_ENTRY_BYTES;
        Bytes block = {shard->map.data + offset, get_u32(entry)}; // in bounds: find_member checked the sum of all sizes
        bool is_data = get_u32(entry + 4) > 0; // not read here: opening a dataset must not touch all of its pages
        if (!is_data && shard_hold(shard, offset, block.size) < 0) return -1;
        uint32_t magic = !is_data && block.size >= SKIPPABLE_BYTES ? get_u32(block.data) : 0;
        bool skippable = magic >> 4 == SHARD_HEADER_MAGIC >> 4;
        if (skippable && get_u32(block.data + 4) != block.size - SKIPPABLE_BYTES)
            return fail(EX_DATA, "block at offset %" PRIu64 ": its size differs from the seek table", offset);

        int status = 0;
        if (i == 0) {
            if (block.size != sizeof SHARD_OPENING - 1 || memcmp(block.data, SHARD_OPENING, block.size))
                status = fail(EX_DATA, "not a shard: no opening frame at offset %" PRIu64, offset);
        } else if (i == 1) {
            status = magic == SHARD_HEADER_MAGIC ? shard_read_header(member, block, offset)
                                                 : fail(EX_DATA, "not a shard: no header at offset %" PRIu64, offset);
        } else if (is_data) {
            status = parse_data_frame(shard, member, entry, offset);
        } else if (i == count - 1) {
            status = magic == SHARD_TRAILER_MAGIC ? parse_trailer(member, block, offset, index_offset)
                                                  : fail(EX_DATA, "no trailer at offset %" PRIu64, offset);
        } else if (magic == SHARD_INDEX_MAGIC) {
            if (index_offset)
                status = fail(EX_DATA, "second document index at offset %" PRIu64, offset);
            else
                status = checked_payload(block, "document index", offset, &member->index);
            index_offset = offset - member->offset;
        } else if (!skippable || magic == SHARD_HEADER_MAGIC || magic == SHARD_TRAILER_MAGIC ||
                   magic == SHARD_TABLE_MAGIC) {
            status = fail(EX_DATA, "block at offset %" PRIu64 ": out of place", offset);
        }
        if (status < 0) return -1;
        offset += block.size;
    }
    if (!member->trailer) return fail(EX_DATA, "no trailer at offset %" PRIu64, offset);
    return member->index.size ? 0 : fail(EX_DATA, "no document index before offset %" PRIu64, offset);
}

static int parse_members(ShardFile *shard) {
    Buffer found = {0}; // last member first
    uint64_t end = shard->map.size, frames = 0;
    int status = end ? 0 : fail(EX_DATA, "empty file");
    while (status == 0 && end > 0) {
        Shard member = {0};
        status = find_member(shard, end, &member);
        end = member.offset;
        frames += member.frame_count;
        buffer_add(&found, &member, sizeof member);
    }
    uint64_t count = found.size / sizeof(Shard);
    if (status == 0) {
        shard->members = allocate_zeroed(count, sizeof *shard->members);
        shard->frames = allocate_zeroed(frames + 1, sizeof *shard->frames);
    }
    for (uint64_t i = 0; status == 0 && i < count; i++) {
        Shard *member = &shard->members[i];
        memcpy(member, found.data + (count - 1 - i) * sizeof *member, sizeof *member);
        status = parse_member(shard, member);
        if (status < 0) break;
        const Shard *first = shard->members;
        if (memcmp(member->vocab_fp, first->vocab_fp, 32) || member->vocab_size != first->vocab_size ||
            member->eot_id != first->eot_id)
            status =
                fail(EX_DATA, "the shard at offset %" PRIu64 " has another vocabulary than the first", member->offset);
        shard->member_count++;
        shard->tokens += member->tokens;
        shard->documents += member->documents;
        shard->source_bytes += member->source_bytes;
        if (member->frame_tokens > shard->frame_tokens) shard->frame_tokens = member->frame_tokens;
    }
    buffer_close(&found);
    return status;
}

static int shard_parse(ShardFile *shard, const char *name) {
    shard->path = allocate_text(name, strlen(name));
    if (parse_members(shard) < 0) {
        shard_file_close(shard);
        return fail_in("shard '%s'", name);
    }
    const Shard *last = &shard->members[shard->member_count - 1];
    shard->vocab_size = last->vocab_size, shard->eot_id = last->eot_id;
    memcpy(shard->vocab_fp, last->vocab_fp, 32);
    memcpy(shard->params_fp, last->params_fp, 32);
    memcpy(shard->content_hash, last->content_hash, 32);
    return 0;
}

// The bytes in a cache on disk may be damaged: then they are requested again, once.
static int open_url(ShardFile *shard, const char *url) {
    static _Atomic uint64_t opened;
    for (int tries = 0;; tries++) {
        *shard = (ShardFile){.foreign = ++opened};
        shard->url = url_map_open(url, &shard->map);
        if (!shard->url) return -1;
        if (tries) url_map_forget(shard->url, 0, shard->map.size);
        if (shard_parse(shard, url) == 0) return 0;
        if (tries || err_code() != EX_DATA) return -1;
        err_clear();
    }
}

int shard_file_open(ShardFile *shard, const char *path) {
    *shard = (ShardFile){0};
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (dataset_is_unfinished(path))
            return fail(EX_NOINPUT, "'%s' holds an unfinished run: the command that began it continues it", path);
        return fail(EX_NOINPUT, "'%s' is a directory without " DATASET_MANIFEST ", so it is not a dataset", path);
    }
    if (url_map_takes(path)) return open_url(shard, path);
    return input_map(&shard->map, path) < 0 ? -1 : shard_parse(shard, path);
}

int shard_file_open_bytes(ShardFile *shard, const char *name, Bytes bytes) {
    *shard = (ShardFile){.map = bytes, .borrowed = true};
    return shard_parse(shard, name);
}

void shard_file_close(ShardFile *shard) {
    if (shard->url)
        url_map_close(shard->url, true);
    else if (!shard->borrowed)
        file_unmap(&shard->map);
    free(shard->path);
    free(shard->frames);
    free(shard->members);
    *shard = (ShardFile){0};
}

uint64_t shard_frame_at(const ShardFile *shard, uint64_t token) {
    const ShardFrame *frames = shard->frames;
    uint64_t guess = token / shard->frame_tokens; // right unless the file holds shards that were joined
    if (guess < shard->frame_count && token >= frames[guess].first &&
        token - frames[guess].first < frames[guess].tokens)
        return guess;
    return floor_index(&frames->first, sizeof *frames, shard->frame_count, token);
}

ShardCursor *shard_cursor_open(void) {
    ShardCursor *cursor = allocate_zeroed(1, sizeof *cursor);
    cursor->decompress = zstd_decoder_open();
    return cursor;
}

void shard_cursor_close(ShardCursor *cursor) {
    if (!cursor) return;
    ZSTD_freeDCtx(cursor->decompress);
    free(cursor);
}

// Files of this machine share a decoder: another one takes 20 us, where a frame of 64K ids takes 150 us.
static ZSTD_DCtx *decoder_of(ShardCursor *cursor, const ShardFile *shard) {
    if (shard->foreign && shard->foreign != cursor->foreign) {
        ZSTD_freeDCtx(cursor->decompress);
        cursor->decompress = zstd_decoder_open();
    }
    cursor->foreign = shard->foreign;
    return cursor->decompress;
}

// A frame must be a single segment with content size and checksum and without dictionary. libzstd would decode other
// frames without the checks that this format relies on.
static const char *frame_error(const ShardFrame *frame, const uint8_t *data) {
    if (frame->bytes < 10 || get_u32(data) != ZSTD_FRAME_MAGIC) return "not a zstd frame";
    if ((data[4] & 0x3F) != 0x24) return "not a frame of this format";
    if (get_u32(data + frame->bytes - 4) != frame->checksum) return "its checksum differs from the seek table";
    if (ZSTD_findFrameCompressedSize(data, frame->bytes) != frame->bytes) return "its size differs from the seek table";
    return NULL;
}

static int decode_held(const ShardFile *shard, ShardCursor *cursor, uint64_t index, void *ids) {
    const ShardFrame *frame = &shard->frames[index];
    const uint8_t *data = shard->map.data + frame->offset;
    const unsigned bytes = id_bytes(shard->vocab_size);
    size_t want = (size_t)frame->tokens * bytes;
    const char *error = frame_error(frame, data);
    if (!error) {
        size_t got = ZSTD_decompressDCtx(decoder_of(cursor, shard), ids, want, data, frame->bytes);
        if (ZSTD_isError(got))
            error = ZSTD_getErrorName(got);
        else if (got != want)
            error = "it has fewer ids than the seek table";
    }
    if (error)
        return fail(EX_DATA, "shard '%s': frame %" PRIu64 " at offset %" PRIu64 ": damaged (%s)", shard->path, index,
                    frame->offset, error);

    if (ids_are_below(ids, bytes, frame->tokens, shard->vocab_size)) return 0;
    return fail(EX_DATA, "shard '%s': frame %" PRIu64 " at offset %" PRIu64 ": an id is not below %u", shard->path,
                index, frame->offset, shard->vocab_size);
}

int shard_decode(const ShardFile *shard, ShardCursor *cursor, uint64_t index, void *ids) {
    const ShardFrame *frame = &shard->frames[index];
    for (int tries = 0;; tries++) {
        if (shard_hold(shard, frame->offset, frame->bytes) < 0) return -1;
        const int status = decode_held(shard, cursor, index, ids);
        shard_release(shard, frame->offset, frame->bytes);
        if (status == 0 || !shard->url || tries) return status;
        err_clear(); // of the copy on disk: the server may have better bytes
        url_map_forget(shard->url, frame->offset, frame->bytes);
    }
}

int shard_lengths(const ShardFile *shard, const Shard *member, Buffer *lengths) {
    const char *error = NULL;
    size_t got = 0, start = lengths->size;
    Bytes frame = {member->index.data + 1, member->index.size - 1};
    unsigned long long size = ZSTD_getFrameContentSize(frame.data, frame.size);
    // the length of a document of n ids takes at most n bytes, which bounds the allocation
    if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR || size > member->tokens)
        error = "its size is implausible";
    else if (ZSTD_findFrameCompressedSize(frame.data, frame.size) != frame.size)
        error = "bytes follow it";
    else {
        buffer_reserve(lengths, (size_t)size);
        ZSTD_DCtx *decoder = zstd_decoder_open();
        got = ZSTD_decompressDCtx(decoder, lengths->data + start, (size_t)size, frame.data, frame.size);
        ZSTD_freeDCtx(decoder);
        if (ZSTD_getErrorCode(got) == ZSTD_error_memory_allocation) die(EX_MEMORY, "no memory for a decompressor");
        if (ZSTD_isError(got))
            error = ZSTD_getErrorName(got);
        else if (got != size)
            error = "its size is implausible";
    }
    if (error)
        return fail(EX_DATA, "shard '%s': document index of the shard at offset %" PRIu64 ": %s", shard->path,
                    member->offset, error);
    lengths->size = start + got;
    return 0;
}
