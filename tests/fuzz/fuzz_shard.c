// Any bytes as a shard: opens it, looks up tokens, verifies it. Every error must be bad data (65).
#include "dataset/shard.h"
#include "tests/fuzz/fuzz.h"

// A wrong checksum would keep the fuzzer out of the code behind the check: correct those of the blocks B, D and E.
static void correct(uint8_t *data, size_t size) {
    for (size_t at = 0; at + SKIPPABLE_BYTES + 4 < size; at++) {
        uint32_t magic = get_u32(data + at), bytes = get_u32(data + at + 4);
        if (magic < SHARD_HEADER_MAGIC || magic > SHARD_TRAILER_MAGIC || bytes < 4) continue;
        if (bytes > size - at - SKIPPABLE_BYTES) continue;
        uint8_t *payload = data + at + SKIPPABLE_BYTES;
        put_u32(payload + bytes - 4, crc32c(0, payload, bytes - 4));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static ShardCursor *cursor;
    if (!cursor) cursor = shard_cursor_open();
    uint8_t *copy = malloc(size + !size);
    memcpy(copy, data, size);
    correct(copy, size);
    ShardFile shard;
    if (shard_file_open_bytes(&shard, "fuzzed", (Bytes){copy, size}) == 0) {
        for (uint64_t token = 0; token < shard.tokens; token += 1 + shard.tokens / 16)
            if (shard_frame_at(&shard, token) >= shard.frame_count) abort();
        shard_verify(&shard, cursor, true);
        err_clear();
        shard_verify(&shard, cursor, false);
    }
    if (err_code() && err_code() != EX_DATA) abort();
    err_clear();
    shard_file_close(&shard);
    free(copy);
    return 0;
}
