// A bucket is sorted by the bytes of its keys, from the lowest: 8 passes or fewer over 16 bytes a record.
#include "shardtool/support/record_sort.h"
#include "common/bytes.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/spool.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUCKETS_MAX = 256, BLOCK_RECORDS = 1 << 11, DIGITS = 8 };

typedef struct {
    int fd;
    unsigned count; // of the block
    SortRecord *block;
} RecordBucket;

struct RecordSort {
    uint64_t keys;
    unsigned count, current; // buckets; the one that is read next
    RecordBucket buckets[BUCKETS_MAX];
    SortRecord *sorted, *other; // of the bucket that is read, and as much room
    uint64_t at, size;
};

uint64_t record_sort_least_memory(uint64_t records) { return records / BUCKETS_MAX * 2 * sizeof(SortRecord); }

RecordSort *record_sort_open(const char *folder, uint64_t records, uint64_t keys, uint64_t memory) {
    RecordSort *sort = allocate_zeroed(1, sizeof *sort);
    const uint64_t count = records * 2 * sizeof(SortRecord) / memory + 1;
    sort->keys = keys, sort->count = count < BUCKETS_MAX ? (unsigned)count : BUCKETS_MAX;
    for (unsigned i = 0; i < sort->count; i++) sort->buckets[i].fd = -1;
    for (unsigned i = 0; i < sort->count; i++) {
        sort->buckets[i].block = allocate_zeroed(BLOCK_RECORDS, sizeof(SortRecord));
        if ((sort->buckets[i].fd = spool_create(folder, "the hashes of documents")) < 0)
            return record_sort_close(sort), NULL;
    }
    return sort;
}

static void close_bucket(RecordBucket *bucket) {
    if (bucket->fd >= 0) close(bucket->fd);
    free(bucket->block);
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
    const size_t bytes = bucket->count * sizeof *bucket->block;
    bucket->count = 0;
    return fd_write(bucket->fd, bucket->block, bytes, "a temporary file");
}

int record_sort_add(RecordSort *sort, SortRecord record) {
    const unsigned __int128 keys = sort->keys ? sort->keys : (unsigned __int128)1 << 64;
    const unsigned number = (unsigned)(record.key * (unsigned __int128)sort->count / keys);
    RecordBucket *bucket = &sort->buckets[number < sort->count ? number : sort->count - 1];
    bucket->block[bucket->count++] = record;
    return bucket->count == BLOCK_RECORDS ? flush(bucket) : 0;
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

static int load_bucket(RecordSort *sort, RecordBucket *bucket) {
    struct stat st;
    if (flush(bucket) < 0) return -1;
    if (fstat(bucket->fd, &st)) return fail_errno("cannot read a temporary file");
    const size_t bytes = (size_t)st.st_size;
    free(sort->sorted);
    free(sort->other);
    sort->sorted = allocate_zeroed(bytes + 1, 1), sort->other = allocate_zeroed(bytes + 1, 1);
    sort->at = 0, sort->size = bytes / sizeof(SortRecord);
    if (fd_read_at(bucket->fd, 0, sort->sorted, bytes, "a temporary file") < (ssize_t)bytes)
        return fail(EX_IO, "a temporary file is shorter than what was written");
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
