// verify: checks every shard in worker threads, prints one line per bad shard and continues.
#include "common/err.h"
#include "common/file/mapguard.h"
#include "common/json_write.h"
#include "common/log.h"
#include "common/machine/pool.h"
#include "dataset/dataset_build.h"
#include "shardtool/print/row_printer.h"
#include "shardtool/support/dataset_vocabulary.h"
#include "shardtool/support/option_rows.h"
#include "shardtool/support/shard_rebuild.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static RowPrinter rows;
static bool quick, force;
static const char *rebuild;
static uint64_t threads;

static const Option options[] = {
    {OPT_FLAG, "quick", &quick, NULL, "do not decode: check the tables and the hash of the stored bytes"},
    {OPT_STRING, "rebuild", &rebuild, "FILE", "copy the undamaged frames of one shard to FILE, with new tables"},
    ROW_OVERWRITE(&force),
    ROW_JOBS(&threads),
    ROW_JSON(&rows),
    REMOTE_ROWS,
    ROW_END,
};

typedef struct {
    char path[PATH_MAX_BYTES], docs_path[PATH_MAX_BYTES]; // docs_path: of its table, if it is listed
    bool listed;                                          // listed in a manifest, which gives the expected values
    DatasetShard expected;
    uint8_t vocab_fp[32];
    uint32_t vocab_size, eot_id;
    ShardCursor *cursor;

    uint64_t tokens;
    bool before, after; // the first document started in the previous shard; the last one continues in the next
} Check;

typedef struct {
    Pool *pool;
    uint64_t shards, bad, unreadable, tokens; // bad and unreadable: shards
    uint64_t other;         // bad manifests and vocabularies, unlisted files, paths that cannot be opened
    int code;               // exit code
    bool chained, open_end; // the previous check was the previous shard of the dataset; its last document continues
} Verifier;

static int compare_manifest(const Check *check, const ShardFile *shard) {
    const DatasetShard *expected = &check->expected;
    const Shard *member = &shard->members[0];
    const char *what = NULL;
    if (shard->map.size != expected->bytes)
        what = "size";
    else if (shard->member_count != 1)
        what = "number of shards in the file";
    else if (shard->tokens != expected->tokens)
        what = "number of tokens";
    else if (shard->documents != expected->documents)
        what = "number of documents";
    else if (memcmp(shard->content_hash, expected->content_hash, 32))
        what = "content hash";
    else if (memcmp(member->stored_hash, expected->stored_hash, 16))
        what = "stored hash";
    else if (memcmp(shard->vocab_fp, check->vocab_fp, 32))
        what = "vocabulary";
    else if (shard->vocab_size != check->vocab_size || shard->eot_id != check->eot_id)
        what = "vocab_size or eot_id";
    return what ? fail(EX_DATA, "shard '%s': its %s differs from the manifest", shard->path, what) : 0;
}

static int check_table(const Check *check) {
    const ProvenanceFile *table = &check->expected.docs;
    if (dataset_check_size(check->docs_path, table->bytes) < 0) return -1;
    return provenance_check(check->docs_path, table, check->expected.documents);
}

static int check_mapped(void *data) {
    Check *check = data;
    ShardFile shard;
    check->tokens = 0;
    if (check->listed && dataset_check_size(check->path, check->expected.bytes) < 0) return -1;
    if (shard_file_open(&shard, check->path) < 0) return -1;
    if (!check->cursor) check->cursor = shard_cursor_open();
    const Shard *first = shard.members, *last = &shard.members[shard.member_count - 1];
    check->tokens = shard.tokens;
    check->before = first->index.data[0] & SHARD_CONTINUES_BEFORE;
    check->after = last->index.data[0] & SHARD_CONTINUES_AFTER;
    int status = shard_verify(&shard, check->cursor, quick);
    if (status == 0 && check->listed) status = compare_manifest(check, &shard);
    if (status == 0 && check->listed && check->expected.docs.bytes) status = check_table(check);
    shard_file_close(&shard);
    return status;
}

static int check_shard(void *data, unsigned worker) {
    (void)worker;
    return mapguard_run(check_mapped, data, ((Check *)data)->path);
}

static void report(Verifier *verifier, const char *path, uint64_t tokens) {
    bool bad = err_code() != 0;
    verifier->tokens += tokens;
    if (bad && (verifier->code == 0 || err_code() == EX_DATA))
        verifier->code = err_code() == EX_DATA ? EX_NO : err_code();
    if (rows.json) {
        row_begin(&rows, "path", path);
        json_add_bool(&rows.row, "ok", !bad);
        row_add_number(&rows, "tokens", 0, tokens);
        if (bad) row_add_text(&rows, "error", 0, err_text());
        row_end(&rows);
    } else if (bad)
        printf("%s\n", err_text());
    fflush(stdout);
    err_clear();
}

static void report_other(Verifier *verifier, const char *path) {
    verifier->other++;
    report(verifier, path, 0);
}

// Waits for the oldest check. False when none is in flight.
static bool report_oldest(Verifier *verifier) {
    void *done;
    int status = pool_collect(verifier->pool, &done);
    if (!done) return false;
    const Check *check = done;
    bool chained = check->listed && check->expected.first > 0 && verifier->chained;
    if (status == 0 && chained && check->before != verifier->open_end)
        fail(EX_DATA, "shard '%s': its first document does not continue the previous shard", check->path);
    verifier->chained = status == 0 && check->listed, verifier->open_end = check->after;
    const bool is_shard = check->listed || (err_code() != EX_NOINPUT && err_code() != EX_PERMISSION);
    verifier->shards += is_shard, verifier->other += !is_shard;
    verifier->bad += is_shard && err_code() == EX_DATA;
    verifier->unreadable += is_shard && err_code() && err_code() != EX_DATA;
    report(verifier, check->path, check->tokens);
    return true;
}

// `expected` is shard `number` of a split of the dataset, or NULL.
static void submit(Verifier *verifier, const char *path, const DatasetShard *expected, const Dataset *dataset,
                   int split, uint64_t number) {
    Check *check;
    while (!(check = pool_acquire(verifier->pool))) report_oldest(verifier);
    snprintf(check->path, sizeof check->path, "%s", path);
    check->listed = expected != NULL;
    if (expected) {
        check->expected = *expected;
        dataset_docs_path(check->docs_path, dataset->path, split, number);
        memcpy(check->vocab_fp, dataset->vocab_fp, 32);
        check->vocab_size = dataset->vocab_size, check->eot_id = dataset->eot_id;
    }
    pool_submit(verifier->pool);
}

typedef struct {
    Verifier *verifier;
    const Dataset *dataset;
} Unlisted;

// A file in train/ or val/ that the manifest does not list would be read by `zstd -dc train/*/*.zst`.
static int report_unlisted(void *context, const char *file) {
    const Unlisted *unlisted = context;
    const Dataset *dataset = unlisted->dataset;
    char path[PATH_MAX_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", dataset->path, file) >= (int)sizeof path)
        return fail(EX_DATA, "path too long: '%.60s...'", path);
    unsigned long long number;
    int split = strncmp(file, "val/", 4) ? SPLIT_TRAIN : SPLIT_VAL;
    const char *name = strrchr(file, '/') + 1;
    if (sscanf(name, "%llu", &number) == 1 && number < dataset->shard_count[split]) {
        const DatasetShard *shard = &dataset->shards[split][number];
        char docs[PATH_MAX_BYTES];
        dataset_docs_path(docs, dataset->path, split, number);
        if (!strcmp(shard->path, path) || (shard->docs.bytes && !strcmp(docs, path))) return 0;
    }
    fail(EX_DATA, "'%s' is not listed in the manifest", path);
    report_other(unlisted->verifier, path);
    return 0;
}

static void verify_path(Verifier *verifier, const char *path) {
    if (!dataset_is(path)) {
        submit(verifier, path, NULL, NULL, 0, 0);
        return;
    }
    Dataset dataset;
    if (dataset_open_manifest(&dataset, path) < 0) {
        report_other(verifier, path);
        return;
    }
    for (int split = 0; split < SPLIT_COUNT; split++)
        for (uint64_t i = 0; i < dataset.shard_count[split]; i++) {
            const DatasetShard *shard = &dataset.shards[split][i];
            submit(verifier, shard->path, shard, &dataset, split, i);
        }
    char vocabulary[PATH_MAX_BYTES];
    if (dataset_vocabulary_find(vocabulary, &dataset) < 0) report_other(verifier, path);
    Unlisted unlisted = {verifier, &dataset};
    if (dataset_files(path, report_unlisted, &unlisted) < 0) report_other(verifier, path);
    dataset_close(&dataset);
}

static void log_summary(const Verifier *verifier) {
    const uint64_t shards = verifier->shards, bad = verifier->bad;
    char other[128] = "";
    if (verifier->unreadable) snprintf(other, sizeof other, "; %" PRIu64 " cannot be read now", verifier->unreadable);
    if (verifier->other)
        snprintf(other + strlen(other), 64, "; %" PRIu64 " other error%s", verifier->other, PLURAL(verifier->other));
    if (!shards)
        log_line("no shard was checked%s", other);
    else if (*other || bad)
        log_line("%" PRIu64 " of %" PRIu64 " shard%s %s bad%s", bad, shards, PLURAL(shards),
                 bad == 1 || shards == 1 ? "is" : "are", other);
    else
        log_line("%" PRIu64 " shard%s, %" PRIu64 " tokens: all good", shards, PLURAL(shards), verifier->tokens);
}

static int rebuild_shard(int count, char **arguments) {
    if (count != 1) return fail(EX_USAGE, "--rebuild needs one PATH, of a shard");
    if (dataset_is(arguments[0])) return fail(EX_USAGE, "--rebuild needs one shard, '%s' is a dataset", arguments[0]);
    return overwrite_check(rebuild, force) < 0 ? -1 : shard_rebuild(arguments[0], rebuild);
}

static int run(int count, char **arguments) {
    if (rebuild) return rebuild_shard(count, arguments);
    if (count == 0) return fail(EX_USAGE, "missing PATH of a shard or dataset");
    if (jobs_check(threads) < 0) return -1;
    Verifier verifier = {0};
    unsigned workers = threads ? (unsigned)threads : pool_cores(), checks = 2 * workers;
    Check *jobs = allocate_zeroed(checks, sizeof *jobs);
    verifier.pool = pool_open(workers, check_shard, jobs, sizeof *jobs, checks);
    int status = verifier.pool ? 0 : -1;
    if (status == 0) {
        for (int i = 0; i < count; i++) verify_path(&verifier, arguments[i]);
        while (report_oldest(&verifier)) {
        }
        log_summary(&verifier);
        status = verifier.code;
    }
    pool_close(verifier.pool);
    for (unsigned i = 0; i < checks; i++) shard_cursor_close(jobs[i].cursor);
    free(jobs);
    return status;
}

const Command shardtool_verify = {
    "verify", "PATH...", "check every byte of shards and datasets, or rebuild a shard's tables", options, run, NULL};
