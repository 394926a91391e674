// Reads blocks, ahead of a reader that goes from one to the next, and hashes them in their order. From a server without
// ranges, one transfer reads the file through a window.
#include "remote/remote_file.h"
#include "common/hash.h"
#include <stdlib.h>

enum { BLOCK_BYTES = 2 << 20, BLOCKS = 8, AHEAD_MAX = 6 };

typedef struct {
    uint64_t number; // of the block in the file
    uint64_t used;   // when, in steps of RemoteFile.clock; 0: never
    bool entered;    // the reader was in it; else it was read ahead
    uint8_t *bytes;
    Transfer transfer;
} RemoteBlock;

struct RemoteFile {
    Remote *remote;
    RemoteObject object;
    char *name;
    RemoteBlock blocks[BLOCKS];
    Transfer whole; // of a file in order
    Bytes rest;     // of its window, not yet read
    uint64_t clock, ahead;
    bool has_failed;
    bool has_hash;
    uint8_t hash[32];
    Sha256 sha; // of the first `hashed` bytes
    uint64_t hashed;
};

RemoteFile *remote_file_open(Remote *remote, const RemoteEntry *entry) {
    RemoteFile *file = allocate_zeroed(1, sizeof *file);
    file->remote = remote, file->name = allocate_text(entry->name, strlen(entry->name));
    const RemoteEntry kept = {file->name, entry->query, entry->validator, entry->size}; // the object borrows the name
    if (remote_entry_object(remote, &kept, &file->object) < 0) {
        remote_file_close(file);
        return NULL;
    }
    file->has_hash = !strncmp(entry->validator, ENTRY_SHA256, sizeof ENTRY_SHA256 - 1) &&
                     hex_decode(file->hash, entry->validator + sizeof ENTRY_SHA256 - 1, sizeof file->hash) == 0;
    if (file->has_hash) sha256_open(&file->sha);
    return file;
}

static uint64_t block_begin(uint64_t number) { return number * BLOCK_BYTES; }

static size_t block_size(const RemoteFile *file, uint64_t number) {
    const uint64_t left = file->object.size - block_begin(number);
    return left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES;
}

static RemoteBlock *find_block(RemoteFile *file, uint64_t number) {
    for (unsigned i = 0; i < BLOCKS; i++)
        if (file->blocks[i].used && file->blocks[i].number == number) return &file->blocks[i];
    return NULL;
}

// Requests a block in the place of the one that was used least recently.
static RemoteBlock *request_block(RemoteFile *file, uint64_t number) {
    RemoteBlock *block = file->blocks;
    for (unsigned i = 1; i < BLOCKS; i++)
        if (file->blocks[i].used < block->used) block = &file->blocks[i];
    transfer_stop(&block->transfer);
    if (!block->bytes) block->bytes = allocate_zeroed(1, block_size(file, 0)); // no other block is larger
    block->number = number, block->used = ++file->clock, block->entered = false;
    block->transfer = (Transfer){.object = &file->object,
                                 .begin = block_begin(number),
                                 .end = block_begin(number) + block_size(file, number),
                                 .to = block->bytes};
    transfer_start(file->remote, &block->transfer);
    return block;
}

// The reader enters a block. After the block before it, more are read ahead each time; after a jump, one.
static void enter_block(RemoteFile *file, RemoteBlock *block) {
    const uint64_t number = block->number, count = (file->object.size + BLOCK_BYTES - 1) / BLOCK_BYTES;
    const RemoteBlock *before = number ? find_block(file, number - 1) : NULL;
    const bool goes_on = before && before->entered;
    block->entered = true;
    file->ahead = !goes_on ? 1 : file->ahead < AHEAD_MAX / 2 ? 2 * file->ahead : AHEAD_MAX;
    if (number + 1 == count && !goes_on) return; // a footer
    for (uint64_t next = number + 1; next <= number + file->ahead && next < count; next++) {
        RemoteBlock *found = find_block(file, next);
        if (found)
            found->used = ++file->clock;
        else
            request_block(file, next);
    }
}

static void hash_block(RemoteFile *file, const RemoteBlock *block) {
    if (!file->has_hash || file->hashed != block_begin(block->number)) return;
    const size_t size = block_size(file, block->number);
    sha256_add(&file->sha, block->bytes, size);
    file->hashed += size;
}

static RemoteBlock *load_block(RemoteFile *file, uint64_t number) {
    RemoteBlock *block = find_block(file, number);
    if (!block) block = request_block(file, number);
    block->used = ++file->clock;
    if (!block->entered) enter_block(file, block);
    if (transfer_wait(&block->transfer) < 0) {
        file->has_failed = true;
        return NULL;
    }
    hash_block(file, block);
    return block;
}

size_t remote_file_begin(RemoteFile *file) {
    if (!file->object.size || file->object.in_order) return 0;
    request_block(file, 0);
    return block_size(file, 0);
}

int remote_file_find_order(RemoteFile *file, bool *in_order) {
    const bool has_block = file->object.in_order || !file->object.size || load_block(file, 0);
    *in_order = file->object.in_order;
    if (has_block) return 0;
    if (!*in_order) return -1;
    err_clear();
    file->has_failed = false;
    for (unsigned i = 0; i < BLOCKS; i++) transfer_stop(&file->blocks[i].transfer);
    return 0;
}

static int read_whole(RemoteFile *file, uint8_t *data, size_t size) {
    Transfer *whole = &file->whole;
    if (!whole->remote) {
        *whole = (Transfer){.object = &file->object, .end = file->object.size, .window = BLOCK_BYTES};
        whole->to = allocate_zeroed(1, BLOCK_BYTES);
        transfer_start(file->remote, whole);
    }
    while (size) {
        if (!file->rest.size && transfer_next(whole, &file->rest) < 0) {
            file->has_failed = true;
            return -1;
        }
        const size_t take = file->rest.size < size ? file->rest.size : size;
        memcpy(data, file->rest.data, take);
        if (file->has_hash) sha256_add(&file->sha, data, take), file->hashed += take;
        data += take, size -= take;
        file->rest = (Bytes){file->rest.data + take, file->rest.size - take};
    }
    return 0;
}

ssize_t remote_file_read_at(RemoteFile *file, uint64_t offset, void *data, size_t size) {
    const uint64_t total = file->object.size;
    if (offset > total) offset = total;
    if (size > total - offset) size = (size_t)(total - offset);
    remote_pump(file->remote, 0);
    if (file->object.in_order) return read_whole(file, data, size) < 0 ? -1 : (ssize_t)size;
    for (size_t done = 0; done < size;) {
        const uint64_t at = offset + done, number = at / BLOCK_BYTES;
        const RemoteBlock *block = load_block(file, number);
        if (!block) return -1;
        const size_t skip = (size_t)(at - block_begin(number)), left = block_size(file, number) - skip;
        const size_t take = left < size - done ? left : size - done;
        memcpy((uint8_t *)data + done, block->bytes + skip, take);
        done += take;
    }
    return (ssize_t)size;
}

bool remote_file_has_failed(const RemoteFile *file) { return file->has_failed; }

int remote_file_check(RemoteFile *file) {
    uint8_t hash[32];
    char text[65];
    if (!file->has_hash || file->hashed != file->object.size) return 0;
    sha256_close(&file->sha, hash);
    file->has_hash = false;
    if (!memcmp(hash, file->hash, sizeof hash)) return 0;
    file->has_failed = true;
    hex_encode(text, hash, sizeof hash);
    return fail(EX_DATA, "'%s': its content has the hash %s, not that of the listing", file->name, text);
}

void remote_file_close(RemoteFile *file) {
    if (!file) return;
    for (unsigned i = 0; i < BLOCKS; i++) {
        transfer_stop(&file->blocks[i].transfer);
        free(file->blocks[i].bytes);
    }
    uint8_t *window = file->whole.to;
    transfer_stop(&file->whole);
    free(window);
    if (file->has_hash) sha256_close(&file->sha, NULL);
    object_close(&file->object);
    free(file->name);
    free(file);
}
