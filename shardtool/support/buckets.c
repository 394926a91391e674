// External sort by buckets.
#include "shardtool/support/buckets.h"
#include "common/file/file.h"
#include "common/file/spool.h"
#include <stdlib.h>
#include <unistd.h>

enum { COUNT_MAX = 256, BUCKET_BYTES = 64 << 20, BLOCK_BYTES = 1 << 16 };

typedef struct {
    int fd;
    Buffer block; // not yet written
} SortBucket;

typedef struct {
    uint64_t key, size; // before the bytes of each record
} RecordHead;

typedef struct {
    uint64_t key, offset;
} RecordPlace;

struct Buckets {
    unsigned count, current;
    SortBucket buckets[COUNT_MAX];
};

Buckets *buckets_open(const char *folder, uint64_t bytes) {
    Buckets *buckets = allocate_zeroed(1, sizeof *buckets);
    uint64_t count = bytes / BUCKET_BYTES + 1;
    for (unsigned i = 0; i < COUNT_MAX; i++) buckets->buckets[i].fd = -1;
    buckets->count = count < COUNT_MAX ? (unsigned)count : COUNT_MAX;
    for (unsigned i = 0; i < buckets->count; i++)
        if ((buckets->buckets[i].fd = spool_create(folder, "the documents")) < 0) return buckets_close(buckets), NULL;
    return buckets;
}

void buckets_close(Buckets *buckets) {
    if (!buckets) return;
    for (unsigned i = 0; i < buckets->count; i++) {
        if (buckets->buckets[i].fd >= 0) close(buckets->buckets[i].fd);
        buffer_close(&buckets->buckets[i].block);
    }
    free(buckets);
}

static int flush(SortBucket *bucket) {
    int status = fd_write(bucket->fd, bucket->block.data, bucket->block.size, "a temporary file");
    bucket->block.size = 0;
    return status;
}

int buckets_begin(Buckets *buckets, uint64_t key, uint64_t size) {
    buckets->current = (unsigned)((unsigned __int128)key * buckets->count >> 64);
    RecordHead head = {key, size};
    return buckets_add(buckets, &head, sizeof head);
}

int buckets_add(Buckets *buckets, const void *data, size_t size) {
    SortBucket *bucket = &buckets->buckets[buckets->current];
    buffer_add(&bucket->block, data, size);
    return bucket->block.size >= BLOCK_BYTES ? flush(bucket) : 0;
}

static int by_key(const void *a, const void *b) {
    const RecordPlace *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static int visit_sorted(Bytes map, int (*visit)(void *context, uint64_t key, Bytes record), void *context) {
    Buffer entries = {0};
    RecordHead head;
    for (uint64_t at = 0; at < map.size; at += sizeof head + head.size) {
        memcpy(&head, map.data + at, sizeof head);
        buffer_add(&entries, &(RecordPlace){head.key, at}, sizeof(RecordPlace));
    }
    size_t count = entries.size / sizeof(RecordPlace);
    qsort(entries.data, count, sizeof(RecordPlace), by_key);
    int status = 0;
    for (size_t i = 0; status == 0 && i < count; i++) {
        RecordPlace entry;
        memcpy(&entry, entries.data + i * sizeof entry, sizeof entry);
        memcpy(&head, map.data + entry.offset, sizeof head);
        status = visit(context, head.key, (Bytes){map.data + entry.offset + sizeof head, (size_t)head.size});
    }
    buffer_close(&entries);
    return status;
}

int buckets_visit(Buckets *buckets, int (*visit)(void *context, uint64_t key, Bytes record), void *context) {
    int status = 0;
    for (unsigned i = 0; status == 0 && i < buckets->count; i++) {
        SortBucket *bucket = &buckets->buckets[i];
        Bytes map;
        if (flush(bucket) < 0) return -1;
        buffer_close(&bucket->block);
        if (fd_map(&map, bucket->fd, "a temporary file") < 0) return -1;
        if (!map.size) continue;
        status = visit_sorted(map, visit, context);
        file_unmap(&map);
        close(bucket->fd); // frees its space on disk
        bucket->fd = -1;
    }
    return status;
}
