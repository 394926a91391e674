// A bucket is sorted by the bytes of its keys, from the lowest: 8 passes or fewer over 16 bytes a record.
#include "shardtool/support/record_sort.h"
#include "common/bytes.h"
#include "common/err.h"
#include "common/file/file.h"
#include "common/file/spool.h"
#include "common/machine/pool.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUCKETS_MAX = 256, BLOCK_BYTES = 1 << 15, DIGITS = 8 };
enum { CACHE_BYTES = 1 << 20 }; // of a bucket in memory, and fewer buckets wake fewer threads

typedef struct {
    int fd; // -1: all stay in the block
    Buffer block;
} RecordBucket;

// A bucket that a thread sorts, or that is read.
typedef struct {
    const RecordSort *sort;
    RecordBucket *bucket;
    SortRecord *sorted, *other; // as much room
    uint64_t size;
} BucketJob;

struct RecordSort {
    uint64_t factor;                 // the bucket of a key is the upper half of their product
    unsigned key_bytes, value_bytes; // of a record in a block or file
    unsigned count, current;         // buckets; the next one that is handed to a thread
    RecordBucket buckets[BUCKETS_MAX];
    Pool *pool;            // NULL until records are read
    BucketJob *jobs, *job; // job: that is read, or NULL
    unsigned job_count;
    uint64_t at; // of it
};

uint64_t record_sort_least_memory(uint64_t records) { return (records / BUCKETS_MAX + 1) * 2 * sizeof(SortRecord); }

static unsigned bytes_below(uint64_t limit) {
    unsigned bytes = 1;
    while (bytes < 8 && (limit - 1) >> 8 * bytes) bytes++;
    return bytes;
}

RecordSort *record_sort_open(const char *folder, const RecordLimits *limits, uint64_t memory, unsigned threads) {
    RecordSort *sort = allocate_zeroed(1, sizeof *sort);
    const uint64_t sorted_bytes = limits->records * 2 * sizeof(SortRecord);
    sort->key_bytes = bytes_below(limits->keys), sort->value_bytes = bytes_below(limits->values);
    const uint64_t block_bytes = limits->records * 2 * (sort->key_bytes + sort->value_bytes); // a Buffer doubles
    const bool is_file = sorted_bytes + block_bytes > memory;
    const uint64_t most = (threads ? threads : pool_cores()) + 1, job_bytes = memory / most;
    const uint64_t count = sorted_bytes / (!is_file ? CACHE_BYTES : job_bytes ? job_bytes : 1) + 1;
    sort->count = count < BUCKETS_MAX ? (unsigned)count : BUCKETS_MAX;
    const uint64_t fit = memory / (sorted_bytes / sort->count + 1); // less than `most` at BUCKETS_MAX
    sort->job_count = (unsigned)(fit < 1 ? 1 : fit < most ? fit : most);
    sort->jobs = allocate_zeroed(sort->job_count, sizeof *sort->jobs);
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
    pool_close(sort->pool);
    for (unsigned i = 0; i < sort->count; i++) close_bucket(&sort->buckets[i]);
    for (unsigned i = 0; i < sort->job_count; i++) free(sort->jobs[i].sorted), free(sort->jobs[i].other);
    free(sort->jobs);
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

static void sort_bucket(BucketJob *job) {
    uint64_t counts[DIGITS][256] = {0};
    for (uint64_t i = 0; i < job->size; i++)
        for (unsigned digit = 0; digit < DIGITS; digit++) counts[digit][digit_of(job->sorted[i], digit)]++;
    for (unsigned digit = 0; digit < DIGITS; digit++) {
        if (counts[digit][digit_of(job->sorted[0], digit)] == job->size) continue; // all have the same
        uint64_t place = 0;
        for (unsigned value = 0; value < 256; value++) {
            const uint64_t count = counts[digit][value];
            counts[digit][value] = place, place += count;
        }
        for (uint64_t i = 0; i < job->size; i++)
            job->other[counts[digit][digit_of(job->sorted[i], digit)]++] = job->sorted[i];
        SortRecord *swap = job->sorted;
        job->sorted = job->other, job->other = swap;
    }
}

static uint64_t get_bytes(const uint8_t *data, unsigned bytes) {
    uint64_t number = 0;
    memcpy(&number, data, bytes);
    return number;
}

// Opens room for the records of `bytes` and sets them to the ones at `packed`, NULL: in the file.
static int unpack(BucketJob *job, const uint8_t *packed, size_t bytes) {
    const unsigned key_bytes = job->sort->key_bytes, value_bytes = job->sort->value_bytes;
    job->size = bytes / (key_bytes + value_bytes);
    job->sorted = allocate_zeroed(job->size + 1, sizeof *job->sorted);
    job->other = allocate_zeroed(job->size + 1, sizeof *job->other);
    if (!packed) {
        packed = (const uint8_t *)job->other;
        if (fd_read_at(job->bucket->fd, 0, job->other, bytes, "a temporary file") < (ssize_t)bytes)
            return fail(EX_IO, "a temporary file is shorter than what was written");
    }
    for (uint64_t i = 0; i < job->size; i++, packed += key_bytes + value_bytes)
        job->sorted[i] = (SortRecord){get_bytes(packed, key_bytes), get_bytes(packed + key_bytes, value_bytes)};
    return 0;
}

static int load_bucket(void *work, unsigned worker) {
    (void)worker;
    BucketJob *job = work;
    RecordBucket *bucket = job->bucket;
    struct stat st = {.st_size = (off_t)bucket->block.size};
    const bool is_file = bucket->fd >= 0;
    if (is_file && flush(bucket) < 0) return -1;
    if (is_file && fstat(bucket->fd, &st)) return fail_errno("cannot read a temporary file");
    if (unpack(job, is_file ? NULL : bucket->block.data, (size_t)st.st_size) < 0) return -1;
    close_bucket(bucket);
    if (job->size) sort_bucket(job);
    return 0;
}

// Sets `job` to the next bucket, NULL: there is none.
static int next_bucket(RecordSort *sort) {
    BucketJob *job = sort->job;
    void *next;
    if (job) free(job->sorted), free(job->other), *job = (BucketJob){0};
    if (!sort->pool) {
        const unsigned threads = sort->job_count > 1 ? sort->job_count - 1 : 1;
        sort->pool = pool_open(threads, load_bucket, sort->jobs, sizeof *sort->jobs, sort->job_count);
        if (!sort->pool) return -1;
    }
    while (sort->current < sort->count && (job = pool_acquire(sort->pool))) {
        job->sort = sort, job->bucket = &sort->buckets[sort->current++];
        pool_submit(sort->pool);
    }
    const int status = pool_collect(sort->pool, &next);
    sort->job = next, sort->at = 0;
    return status;
}

int record_sort_next(RecordSort *sort, SortRecord *record) {
    while (!sort->job || sort->at == sort->job->size) {
        if (next_bucket(sort) < 0) return -1;
        if (!sort->job) return 0;
    }
    *record = sort->job->sorted[sort->at++];
    return 1;
}
