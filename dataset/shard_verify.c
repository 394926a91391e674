// Verifies a shard: rebuilds index, seek table and hashes from the stored bytes and compares.
#include "common/err.h"
#include "dataset/shard.h"
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STEP_BYTES = 4 << 20 };

// Pages of a mapped file that were read count as memory of the program until they are dropped. [from, to) is inside.
static void drop_pages(const ShardFile *shard, const uint8_t *from, const uint8_t *to) {
    if (shard->borrowed) return;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)from / page * page;
    madvise((void *)start, (uintptr_t)to - start, MADV_DONTNEED);
}

static int check_stored_hash(const ShardFile *shard, const Shard *member) {
    XXH128_canonical_t hash;
    XXH3_state_t *state = XXH3_createState();
    if (!state) die(EX_MEMORY, "no memory for a hash");
    XXH3_128bits_reset(state);
    for (const uint8_t *at = shard->map.data + member->offset, *end = shard->map.data + member->trailer; at < end;) {
        size_t size = end - at < STEP_BYTES ? (size_t)(end - at) : STEP_BYTES;
        const uint64_t offset = (uint64_t)(at - shard->map.data);
        if (shard_hold(shard, offset, size) < 0) {
            XXH3_freeState(state);
            return -1;
        }
        XXH3_128bits_update(state, at, size);
        shard_release(shard, offset, size);
        drop_pages(shard, at, at + size);
        at += size;
    }
    XXH128_canonicalFromHash(&hash, XXH3_128bits_digest(state));
    XXH3_freeState(state);
    if (!memcmp(&hash, member->stored_hash, sizeof member->stored_hash)) return 0;
    return fail(EX_DATA, "shard '%s': bytes %" PRIu64 " to %" PRIu64 ": damaged (the hash of the stored bytes differs)",
                shard->path, member->offset, member->trailer);
}

// Rebuilds the seek table from the sizes in the blocks and the checksum at the end of each frame.
static int check_table(const ShardFile *shard, const Shard *member) {
    const unsigned width = id_bytes(member->vocab_size);
    Buffer table = {0};
    const uint8_t *at = shard->map.data + member->offset, *end = shard->map.data + member->table, *read = at;
    shard_table_add(&table, sizeof SHARD_OPENING - 1, 0, 0);
    at += sizeof SHARD_OPENING - 1;
    const ShardFrame *frame = shard->frames + member->first_frame, *last = frame + member->frame_count;
    while (at < end) { // in bounds: shard_file_open checked every size
        size_t bytes;
        if (frame < last && at == shard->map.data + frame->offset) {
            bytes = frame->bytes;
            shard_table_add(&table, bytes, (uint64_t)frame->tokens * width, bytes < 4 ? 0 : get_u32(at + bytes - 4));
            frame++;
        } else {
            bytes = SKIPPABLE_BYTES + get_u32(at + 4);
            shard_table_add(&table, bytes, 0, 0);
        }
        at += bytes;
        if (at - read >= STEP_BYTES) drop_pages(shard, read, at), read = at;
    }
    shard_table_finish(&table);
    bool same = table.size == member->end - member->table && !memcmp(table.data, end, table.size);
    buffer_close(&table);
    return same ? 0
                : fail(EX_DATA, "shard '%s': seek table at offset %" PRIu64 ": damaged (it differs from the frames)",
                       shard->path, member->table);
}

typedef struct {
    Buffer lengths;
    uint64_t ended, carry;
} Rebuilt;

static int decode_all(const ShardFile *shard, ShardCursor *cursor, const Shard *member, Rebuilt *rebuilt) {
    const unsigned bytes = id_bytes(member->vocab_size);
    Buffer ids = {0};
    buffer_reserve(&ids, (size_t)member->frame_tokens * bytes);
    Sha256 content;
    sha256_open(&content);
    int status = 0;
    for (uint64_t i = 0; status == 0 && i < member->frame_count; i++) {
        uint64_t index = member->first_frame + i;
        size_t count = shard->frames[index].tokens;
        status = shard_decode(shard, cursor, index, ids.data);
        if (status < 0) break;
        sha256_add(&content, ids.data, count * bytes);
        rebuilt->ended += shard_index_add(&rebuilt->lengths, ids.data, bytes, count, member->eot_id, &rebuilt->carry);
    }
    shard_index_finish(&rebuilt->lengths, rebuilt->carry);
    uint8_t hash[32];
    sha256_close(&content, hash);
    buffer_close(&ids);
    if (status == 0 && memcmp(hash, member->content_hash, sizeof hash))
        status = fail(EX_DATA, "shard '%s': the ids of the shard at offset %" PRIu64 " do not match their hash",
                      shard->path, member->offset);
    return status;
}

static int check_index(const ShardFile *shard, const Shard *member, const Rebuilt *rebuilt) {
    Buffer lengths = {0};
    int status = shard_lengths(shard, member, &lengths);
    if (status == 0) {
        uint8_t flags = member->index.data[0];
        bool before = flags & SHARD_CONTINUES_BEFORE, open_end = rebuilt->carry > 0;
        uint64_t documents = rebuilt->ended + open_end;
        if (before && documents) documents--;
        if (lengths.size != rebuilt->lengths.size ||
            (lengths.size && memcmp(lengths.data, rebuilt->lengths.data, lengths.size)) ||
            (flags & ~SHARD_CONTINUES_BEFORE) != (open_end ? SHARD_CONTINUES_AFTER : 0) ||
            documents != member->documents)
            status =
                fail(EX_DATA,
                     "shard '%s': document index of the shard at offset %" PRIu64 " differs from the end-of-text ids",
                     shard->path, member->offset);
    }
    buffer_close(&lengths);
    return status;
}

static int verify_member(const ShardFile *shard, ShardCursor *cursor, const Shard *member, bool quick) {
    Rebuilt rebuilt = {0};
    int status = 0;
    if (!quick) status = decode_all(shard, cursor, member, &rebuilt); // first, because its error names the frame
    if (status == 0 && !quick) status = check_index(shard, member, &rebuilt);
    if (status == 0) status = check_stored_hash(shard, member);
    if (status == 0) status = check_table(shard, member);
    buffer_close(&rebuilt.lengths);
    return status;
}

int shard_verify(const ShardFile *shard, ShardCursor *cursor, bool quick) {
    for (uint64_t i = 0; i < shard->member_count; i++)
        if (verify_member(shard, cursor, &shard->members[i], quick) < 0) return -1;
    return 0;
}
