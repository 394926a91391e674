// Times the encoder over a file of documents (u32 size, bytes, ...): bench_tokenizer DOCUMENTS THREADS PASSES [IDS
// [VOCABULARY [PATTERN]]].
//
// Prints one JSON line: MB/s of the first pass (cold: empty caches) and of the best later pass (warm). With one thread
// its processor time counts, which a busy machine changes less than wall time. IDS is a file for the ids of the first
// thread's documents.
#include "common/err.h"
#include "common/file/file.h"
#include "common/log.h"
#include "tokenizer/files/vocab_file.h"
#include "tokenizer/tokenizer.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    Encoder *encoder;
    Bytes documents;
    uint8_t *ids;
    unsigned id_bytes; // of an id
    size_t count, bytes;
} Share;

static void *encode_share(void *argument) {
    Share *share = argument;
    share->count = share->bytes = 0;
    for (Cursor cursor = cursor_init(share->documents); cursor.at < cursor.end;) {
        uint32_t size;
        const uint8_t *text = cursor_u32(&cursor, &size) ? cursor_take(&cursor, size) : NULL;
        if (!text) die(EX_DATA, "the documents end early");
        ssize_t count =
            encoder_encode(share->encoder, (Bytes){text, size}, share->ids + share->count * share->id_bytes);
        if (count < 0) die(err_code(), "%s", err_text());
        share->count += (size_t)count;
        share->bytes += size;
    }
    return NULL;
}

static uint64_t time_ns(size_t threads) {
    if (threads > 1) return clock_ns();
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

// One contiguous share a thread, of about the same size.
static void cut_shares(Share *shares, size_t threads, Bytes all, unsigned id_bytes) {
    Cursor cursor = cursor_init(all);
    for (size_t i = 0; i < threads; i++) {
        const uint8_t *begin = cursor.at;
        while (cursor.at < cursor.end && (size_t)(cursor.at - all.data) < all.size * (i + 1) / threads) {
            uint32_t size;
            if (!cursor_u32(&cursor, &size) || !cursor_take(&cursor, size)) die(EX_DATA, "the documents end early");
        }
        shares[i].documents = (Bytes){begin, (size_t)(cursor.at - begin)};
        shares[i].id_bytes = id_bytes;
        shares[i].ids = malloc(encoder_ids_max(shares[i].documents.size) * id_bytes);
        if (!shares[i].ids) die(EX_MEMORY, "no memory for the ids");
    }
}

int main(int count, char **arguments) {
    enum { THREADS_MAX = 256 };
    size_t threads = count > 2 ? strtoul(arguments[2], NULL, 10) : 0,
           passes = count > 3 ? strtoul(arguments[3], NULL, 10) : 0;
    if (!threads || threads > THREADS_MAX || !passes)
        die(EX_USAGE, "usage: tokenizer DOCUMENTS THREADS PASSES [IDS [VOCABULARY [PATTERN]]]");
    Bytes all;
    if (file_map(&all, arguments[1]) < 0) die(err_code(), "%s", err_text());
    volatile uint8_t touched = 0; // reading the file is not timed
    for (size_t i = 0; i < all.size; i += 4096) touched ^= all.data[i];
    (void)touched;

    uint64_t start = time_ns(1);
    const Vocab *vocab =
        count > 5 ? vocab_open_path(arguments[5], &(VocabNames){.pattern = arguments[6]}) : vocab_open();
    if (!vocab) die(err_code(), "%s", err_text());
    double open_ms = (double)(time_ns(1) - start) / 1e6;
    static Share shares[THREADS_MAX];
    cut_shares(shares, threads, all, vocab_id_bytes(vocab));
    for (size_t i = 0; i < threads; i++) shares[i].encoder = encoder_open(vocab, INVALID_REPLACE);

    double cold = 0, warm = 0;
    size_t ids = 0;
    for (size_t pass = 0; pass < passes; pass++) {
        pthread_t thread[THREADS_MAX];
        start = time_ns(threads);
        for (size_t i = 1; i < threads; i++)
            if (pthread_create(&thread[i], NULL, encode_share, &shares[i])) die(EX_LIMIT, "cannot start a thread");
        encode_share(&shares[0]);
        for (size_t i = 1; i < threads; i++) pthread_join(thread[i], NULL);
        double seconds = (double)(time_ns(threads) - start) / 1e9, bytes = 0;
        ids = 0;
        for (size_t i = 0; i < threads; i++) bytes += (double)shares[i].bytes, ids += shares[i].count;
        double rate = bytes / seconds / 1e6;
        if (!pass)
            cold = rate;
        else if (rate > warm)
            warm = rate;
    }
    if (count > 4) {
        FILE *file = fopen(arguments[4], "wb");
        if (!file || fwrite(shares[0].ids, shares[0].id_bytes, shares[0].count, file) != shares[0].count ||
            fclose(file))
            die(EX_IO, "cannot write '%s'", arguments[4]);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"open_ms\": %.2f, \"cold\": %.1f, \"warm\": %.1f, \"ids\": %zu, "
           "\"rss_mb\": %.1f}\n",
           open_ms, cold, warm, ids, (double)usage.ru_maxrss * 1024 / 1e6);
    for (size_t i = 0; i < threads; i++) encoder_close(shares[i].encoder), free(shares[i].ids);
    vocab_close(vocab);
    file_unmap(&all);
}
