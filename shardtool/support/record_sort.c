// A bucket is sorted by the bytes of its keys, from the lowest: 8 passes or fewer over 16 bytes a record.
#include "shardtool/support/record_sort.h"
#include "common/bytes.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/spool.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUCKETS_MAX = 256, BLOCK_BYTES = 1 << 15, DIGITS = 8 };

typedef struct {
    int fd; // -1: all stay in the block
    Buffer block;
} RecordBucket;

struct RecordSort {
    uint64_t factor;                 // the bucket of a key is the upper half of their product
    unsigned key_bytes, value_bytes; // of a record in a block or file
    unsigned count, current;         // buckets; the one that is read next
    RecordBucket buckets[BUCKETS_MAX];
    SortRecord *sorted, *other; // of the bucket that is read, and as much room
    uint64_t at, size;
};

uint64_t record_sort_least_memory(uint64_t records) { return (records / BUCKETS_MAX + 1) * 2 * sizeof(SortRecord); }

static unsigned bytes_below(uint64_t limit) {
    unsigned bytes = 1;
    while (bytes < 8 && (limit - 1) >> 8 * bytes) bytes++;
    return bytes;
}

RecordSort *record_sort_open(const char *folder, const RecordLimits *limits, uint64_t memory) {
    RecordSort *sort = allocate_zeroed(1, sizeof *sort);
    const uint64_t sorted_bytes = limits->records * 2 * sizeof(SortRecord);
    sort->key_bytes = bytes_below(limits->keys), sort->value_bytes = bytes_below(limits->values);
    const uint64_t block_bytes = limits->records * 2 * (sort->key_bytes + sort->value_bytes); // a Buffer doubles
    const bool is_file = sorted_bytes + block_bytes > memory;
    const uint64_t count = is_file ? sorted_bytes / (memory + !memory) + 1 : BUCKETS_MAX; // small ones fit in the cache
    sort->count = count < BUCKETS_MAX ? (unsigned)count : BUCKETS_MAX;
    const unsigned __int128 keys = limits->keys ? limits->keys : (unsigned __int128)1 << 64;
    sort->factor = (uint64_t)(((unsigned __int128)sort->count << 64) / (keys > sort->count ? keys : sort->count + 1));
    for (unsigned i = 0; i < sort->count; i++) sort->buckets[i].fd = -1;
    for (unsigned i = 0; is_file && i < sort->count; i++)
        if ((sort->buckets[i].fd = spool_create(folder, "the hashes of documents")) < 0)
            return record_sort_close(sort), NULL;
    return sort;
}

static void close_bucket(RecordBucket *bucket) {
    if (bucket->fd >= 0) close(bucket->fd);
    buffer_close(&bucket->block);
    *bucket = (RecordBucket){.fd = -1};
}

void record_sort_close(RecordSort *sort) {
    if (!sort) return;
    for (unsigned i = 0; i < sort->count; i++) close_bucket(&sort->buckets[i]);
    free(sort->sorted);
    free(sort->other);
    free(sort);
}

static int flush(RecordBucket *bucket) {
    const size_t bytes = bucket->block.size;
    bucket->block.size = 0;
    return fd_write(bucket->fd, bucket->block.data, bytes, "a temporary file");
}

int record_sort_add(RecordSort *sort, SortRecord record) {
    const unsigned number = (unsigned)(record.key * (unsigned __int128)sort->factor >> 64);
    RecordBucket *bucket = &sort->buckets[number];
    buffer_reserve(&bucket->block, sizeof record);
    put_u64(bucket->block.data + bucket->block.size, record.key); // little-endian: the next replaces the upper bytes
    put_u64(bucket->block.data + bucket->block.size + sort->key_bytes, record.value);
    bucket->block.size += sort->key_bytes + sort->value_bytes;
    return bucket->fd >= 0 && bucket->block.size >= BLOCK_BYTES ? flush(bucket) : 0;
}

static unsigned digit_of(SortRecord record, unsigned digit) { return record.key >> 8 * digit & 255; }

static void sort_bucket(RecordSort *sort) {
    static uint64_t counts[DIGITS][256];
    memset(counts, 0, sizeof counts);
    for (uint64_t i = 0; i < sort->size; i++)
        for (unsigned digit = 0; digit < DIGITS; digit++) counts[digit][digit_of(sort->sorted[i], digit)]++;
    for (unsigned digit = 0; digit < DIGITS; digit++) {
        if (counts[digit][digit_of(sort->sorted[0], digit)] == sort->size) continue; // all have the same
        uint64_t place = 0;
        for (unsigned value = 0; value < 256; value++) {
            const uint64_t count = counts[digit][value];
            counts[digit][value] = place, place += count;
        }
        for (uint64_t i = 0; i < sort->size; i++)
            sort->other[counts[digit][digit_of(sort->sorted[i], digit)]++] = sort->sorted[i];
        SortRecord *swap = sort->sorted;
        sort->sorted = sort->other, sort->other = swap;
    }
}

static uint64_t get_bytes(const uint8_t *data, unsigned bytes) {
    uint64_t number = 0;
    memcpy(&number, data, bytes);
    return number;
}

// Opens room for the records of `bytes` and sets them to the ones at `packed`, NULL: in the file.
static int unpack(RecordSort *sort, const RecordBucket *bucket, const uint8_t *packed, size_t bytes) {
    const unsigned record_bytes = sort->key_bytes + sort->value_bytes;
    sort->at = 0, sort->size = bytes / record_bytes;
    sort->sorted = allocate_zeroed(sort->size + 1, sizeof *sort->sorted);
    sort->other = allocate_zeroed(sort->size + 1, sizeof *sort->other);
    if (!packed) {
        packed = (const uint8_t *)sort->other;
        if (fd_read_at(bucket->fd, 0, sort->other, bytes, "a temporary file") < (ssize_t)bytes)
            return fail(EX_IO, "a temporary file is shorter than what was written");
    }
    for (uint64_t i = 0; i < sort->size; i++, packed += record_bytes)
        sort->sorted[i] =
            (SortRecord){get_bytes(packed, sort->key_bytes), get_bytes(packed + sort->key_bytes, sort->value_bytes)};
    return 0;
}

static int load_bucket(RecordSort *sort, RecordBucket *bucket) {
    struct stat st = {.st_size = (off_t)bucket->block.size};
    const bool is_file = bucket->fd >= 0;
    if (is_file && flush(bucket) < 0) return -1;
    if (is_file && fstat(bucket->fd, &st)) return fail_errno("cannot read a temporary file");
    free(sort->sorted);
    free(sort->other);
    sort->sorted = sort->other = NULL;
    if (unpack(sort, bucket, is_file ? NULL : bucket->block.data, (size_t)st.st_size) < 0) return -1;
    close_bucket(bucket);
    if (sort->size) sort_bucket(sort);
    return 0;
}

int record_sort_next(RecordSort *sort, SortRecord *record) {
    while (sort->at == sort->size) {
        if (sort->current == sort->count) return 0;
        if (load_bucket(sort, &sort->buckets[sort->current++]) < 0) return -1;
    }
    *record = sort->sorted[sort->at++];
    return 1;
}
