// tokenize: any input to a dataset directory, or to one shard on standard output.
#include "common/err.h"
#include "common/pool.h"
#include "shardtool/cmd_inputs.h"
#include "shardtool/ingest/pipeline.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

static uint64_t threads, val_seed, shard_tokens = 128 << 20, frame_tokens = SHARD_FRAME_TOKENS;
static double val = 0.0005;
static const char *output, *invalid_utf8 = "replace", *merges, *bpe_cache;
static bool no_bpe_cache, force;

static const Option options[] = {
    {OPT_STRING, "o,output",     &output,           "DIR",  "the dataset directory; - is one shard on standard output"     },
    {OPT_SIZE,   "j,jobs",       &threads,          "N",    "worker threads, 0 = one a core"                               },
    {OPT_FLOAT,  "val",          &val,              "P",    "share of the documents that go to validation, 0 to 1"         },
    {OPT_SIZE,   "val-seed",     &val_seed,         "N",    "choose other documents for validation"                        },
    {OPT_SIZE,   "shard-tokens", &shard_tokens,     "N",    "start a new shard after N tokens, in whole frames"            },
    {OPT_SIZE,   "frame-tokens", &frame_tokens,     "N",    "tokens in one compressed frame"                               },
    {OPT_STRING, "docs",         &input_docs,       "KIND", "how plain text is cut into documents: file, lines, paragraphs"},
    {OPT_STRING, "text-field",   &input_text_field, "KEY",  "where a JSON line has its text; a.b looks into a"             },
    {OPT_SIZE,   "max-bad",      &input_max_bad,    "N",    "skip up to N lines that have no text there"                   },
    {OPT_STRING, "invalid-utf8", &invalid_utf8,     "HOW",  "replace (by U+FFFD), fail, or bytes (as they are)"            },
    {OPT_STRING, "merges",       &merges,           "FILE", "another copy of the merge table (checked)"                    },
    {OPT_STRING, "bpe-cache",    &bpe_cache,        "FILE", "start from the .bpe-cache of another dataset"                 },
    {OPT_FLAG,   "no-bpe-cache", &no_bpe_cache,     NULL,   "neither read nor write .bpe-cache in the dataset directory"   },
    {OPT_FLAG,   "force",        &force,            NULL,   "make a finished dataset anew"                                 },
    {OPT_END,    NULL,           NULL,              NULL,   NULL                                                           },
};

// The shortest decimal that reads back as the same number: it is part of names that must not depend on the C library.
static void print_number(char out[32], double number) {
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, number);
        if (strtod(out, NULL) == number) return;
    }
}

// Everything that shapes the bytes, in one line that params_fp hashes.
static void make_params(Buffer *line, const char *share) {
    buffer_print(line,
                 "frame_tokens=%" PRIu64
                 ";codec=dfast,4,17,16,17,1;eot=after;invalid=%s;docs=%s;field=%s;val=%s;val_seed="
                 "%" PRIu64 ";shard_tokens=%" PRIu64,
                 frame_tokens, invalid_utf8, input_docs, input_text_field, share, val_seed, shard_tokens);
}

static int check_options(SourceOptions *source_options, InvalidUtf8 *invalid, bool to_stdout) {
    static const char *const names[] = {"replace", "fail", "bytes"};
    if (input_options(source_options) < 0) return -1;
    int kind = 0;
    while (kind < 3 && strcmp(invalid_utf8, names[kind])) kind++;
    if (kind == 3) return fail(EX_USAGE, "--invalid-utf8 '%s' is none of replace, fail, bytes", invalid_utf8);
    *invalid = (InvalidUtf8)kind;
    if (!output) return fail(EX_USAGE, "where to? -o DIR, or -o - for one shard on standard output");
    if (!(val >= 0 && val <= 1)) return fail(EX_USAGE, "--val %g is not between 0 and 1", val);
    if (threads > 1024) return fail(EX_USAGE, "-j %" PRIu64 " is more than 1024", threads);
    if (frame_tokens < 1 || frame_tokens > SHARD_FRAME_TOKENS_MAX)
        return fail(EX_USAGE, "--frame-tokens %" PRIu64 " is not between 1 and %d", frame_tokens,
                    SHARD_FRAME_TOKENS_MAX);
    if (to_stdout)
        val = 0, shard_tokens = 0;
    else if (shard_tokens < 1)
        return fail(EX_USAGE, "--shard-tokens 0 would hold nothing");
    shard_tokens += (frame_tokens - shard_tokens % frame_tokens) % frame_tokens;
    return 0;
}

// Finds the first "key=value" of two option lines that differs.
static int fail_params(const Dataset *old, const char *params) {
    const char *a = old->params, *b = params;
    for (;;) {
        size_t a_length = strcspn(a, ";"), b_length = strcspn(b, ";");
        if (a_length != b_length || memcmp(a, b, a_length) || !a[a_length] || !b[b_length])
            return fail(
                EX_USAGE,
                "'%s' was made with %.*s, this run has %.*s: choose another directory, or --force to make it anew",
                old->path, (int)a_length, a, (int)b_length, b);
        a += a_length + 1, b += b_length + 1;
    }
}

static int fail_source(const Dataset *old, const char *what, const char *path) {
    return fail(EX_USAGE,
                "'%s' was made from other sources: '%s' %s; choose another directory, or --force to make it anew",
                old->path, path, what);
}

static int compare_sources(const Dataset *old, const Inputs *inputs) {
    for (uint64_t i = 0; i < inputs->argument_count || i < old->source_count; i++) {
        if (i == inputs->argument_count) return fail_source(old, "is not named now", old->sources[i].path);
        const InputArgument *now = &inputs->arguments[i];
        if (now->stream) return fail_source(old, "is a stream, which cannot be compared", now->path);
        if (i == old->source_count) return fail_source(old, "is new", now->path);
        const DatasetSource *then = &old->sources[i];
        if (!memcmp(now->digest, then->digest, sizeof now->digest)) continue; // it covers the path
        int order = strcmp(now->path, then->path);
        if (order > 0) return fail_source(old, "is not named now", then->path);
        return fail_source(old, order < 0 ? "is new" : "has changed", now->path);
    }
    return 0;
}

// A finished dataset: 1 when this run would make it again, -1 with the difference.
static int compare_finished(const char *params, const ShardParams *shard_params, const Inputs *inputs) {
    Dataset old;
    if (dataset_open(&old, output) < 0) return fail_in("a dataset is there already, and --force would make it anew");
    int status = 0;
    if (memcmp(old.vocab_fp, shard_params->vocab_fp, 32))
        status = fail(EX_USAGE, "'%s' was made with another vocabulary", output);
    else if (strcmp(old.params, params))
        status = fail_params(&old, params);
    else
        status = compare_sources(&old, inputs);
    dataset_close(&old);
    return status < 0 ? -1 : 1;
}

// Ids compress to a third of the text or so. A quarter says for sure that it cannot fit.
static int check_space(const Inputs *inputs) {
    struct statvfs vfs;
    if (statvfs(output, &vfs)) return fail_errno("cannot stat '%s'", output);
    double have = (double)vfs.f_bavail * (double)vfs.f_frsize, want = (double)inputs->bytes / 4;
    if (have >= want) return 0;
    char have_text[16], want_text[16], more_text[16];
    return fail(EX_IO, "'%s' has %s free, at least %s are needed: make room for %s more", output,
                human_bytes(have_text, have), human_bytes(want_text, want), human_bytes(more_text, want - have));
}

static void say_summary(const Dataset *dataset, const SourceOptions *source_options, uint64_t replaced,
                        uint64_t started_ns) {
    char bytes[16];
    double seconds = (double)(clock_ns() - started_ns) * 1e-9, size = (double)dataset->source_bytes;
    log_line("%" PRIu64 " documents, %" PRIu64 " train and %" PRIu64 " val tokens from %s of text in %.1f s: %.1f MB/s",
             dataset->documents[SPLIT_TRAIN] + dataset->documents[SPLIT_VAL], dataset->tokens[SPLIT_TRAIN],
             dataset->tokens[SPLIT_VAL], human_bytes(bytes, size), seconds, seconds > 0 ? size / seconds * 1e-6 : 0);
    if (source_options->bad)
        log_warn("%" PRIu64 " bad lines skipped, the first: %s", source_options->bad, source_options->first_bad);
    if (replaced) log_warn("U+FFFD stands for invalid UTF-8 in %" PRIu64 " places", replaced);
    if (val > 0 && dataset->tokens[SPLIT_VAL] < 8192)
        log_line("only %" PRIu64 " tokens for validation from --val %g: a larger --val gives more",
                 dataset->tokens[SPLIT_VAL], val);
}

static int tokenize_to(const char *directory, const PipelineOptions *pack, const Inputs *inputs,
                       SourceOptions *source_options, Dataset *dataset) {
    Progress progress;
    uint64_t started_ns = clock_ns(), replaced;
    progress_start(&progress, "tokenizing", "B", inputs->bytes);
    PipelineOptions all = *pack;
    all.directory = directory, all.progress = &progress;
    Source *source = source_open(inputs, source_options);
    int status = pipeline_run(&all, inputs, source, dataset, &replaced);
    source_close(source);
    progress_finish(&progress);
    if (status == 0 && dataset->documents[SPLIT_TRAIN] + dataset->documents[SPLIT_VAL] == 0)
        status = fail(EX_NOINPUT, "no documents in what was given");
    if (status == 0 && directory) status = dataset_save(dataset);
    if (status == 0) say_summary(dataset, source_options, replaced, started_ns);
    return status;
}

// A cache file that cannot be used costs time, but does not stop the run.
static void load_cache(SharedCache *shared_cache, const char *path) {
    if (shared_cache_load(shared_cache, path) == 0) return;
    log_warn("starting with an empty BPE cache: %s", err_text());
    err_clear();
}

static void save_cache(const SharedCache *shared_cache, const char *path) {
    if (shared_cache_save(shared_cache, path) == 0) return;
    log_warn("the BPE cache is not saved: %s", err_text());
    err_clear();
}

// Under the directory's lock.
static int tokenize_locked(const PipelineOptions *pack, Inputs *inputs, SourceOptions *source_options,
                           Dataset *dataset) {
    if (inputs_digest(inputs) < 0) return -1;
    if (dataset_is(output) && !force) {
        int same = compare_finished(dataset->params, &pack->params, inputs);
        if (same > 0) log_line("'%s' is already complete", output);
        return same < 0 ? -1 : 0;
    }
    if (dataset_clear(output) < 0 || check_space(inputs) < 0) return -1;
    for (uint64_t i = 0; i < inputs->argument_count; i++) {
        const InputArgument *argument = &inputs->arguments[i];
        DatasetSource source = {.path = argument->path, .files = argument->files, .bytes = argument->bytes};
        memcpy(source.digest, argument->digest, sizeof source.digest);
        dataset_add_source(dataset, &source);
    }
    char path[PATH_MAX_BYTES];
    dataset_bpe_cache_path(path, output);
    if (!bpe_cache && !no_bpe_cache && access(path, F_OK) == 0) load_cache(pack->shared_cache, path);
    int status = tokenize_to(output, pack, inputs, source_options, dataset);
    if (status == 0 && !no_bpe_cache) save_cache(pack->shared_cache, path);
    return status;
}

static int tokenize(const PipelineOptions *pack, Inputs *inputs, SourceOptions *source_options, const char *params,
                    const char *share) {
    Dataset dataset;
    dataset_begin(&dataset, output);
    dataset.params = params, dataset.val = share, dataset.val_seed = val_seed;
    dataset.vocab_size = pack->params.vocab_size, dataset.eot_id = pack->params.eot_id;
    memcpy(dataset.vocab_fp, pack->params.vocab_fp, 32);
    memcpy(dataset.params_fp, pack->params.params_fp, 32);

    int status = 0;
    Lock lock = {0};
    if (!strcmp(output, "-"))
        status = tokenize_to(NULL, pack, inputs, source_options, &dataset);
    else {
        status = dir_make(output);
        if (status == 0) status = lock_take(&lock, output);
        if (status == 0) status = tokenize_locked(pack, inputs, source_options, &dataset);
        lock_drop(&lock);
    }
    dataset_close(&dataset);
    return status;
}

static int run(int count, char **arguments) {
    SourceOptions source_options;
    PipelineOptions pack = {0};
    bool to_stdout = output && !strcmp(output, "-");
    if (check_options(&source_options, &pack.invalid, to_stdout) < 0) return -1;
    if (to_stdout && cli_refuse_terminal() != 0) return -1;

    Inputs inputs;
    if (inputs_open(&inputs, count, arguments) < 0) return -1;
    pack.vocab = merges ? vocab_open_file(merges) : vocab_open();
    int status = pack.vocab ? 0 : -1;
    if (status == 0) {
        char share[32];
        Buffer params = {0};
        print_number(share, val);
        make_params(&params, share);
        buffer_print(&params, "\n");
        sha256(params.data, params.size, pack.params.params_fp);
        params.data[params.size - 1] = '\0'; // the line without its end
        pack.threads = (unsigned)threads, pack.val = val, pack.val_seed = val_seed, pack.shard_tokens = shard_tokens;
        pack.params.frame_tokens = frame_tokens;
        pack.params.vocab_size = TOKEN_COUNT, pack.params.eot_id = TOKEN_END_OF_TEXT;
        vocab_fingerprint(pack.vocab, pack.params.vocab_fp);
        bool saves_cache = !to_stdout && !no_bpe_cache;
        unsigned encoders = threads ? (unsigned)threads : pool_cores();
        if (saves_cache || bpe_cache || encoders >= SHARED_CACHE_THREADS)
            pack.shared_cache = shared_cache_open(pack.vocab, encoders);
        if (bpe_cache) load_cache(pack.shared_cache, bpe_cache);
        status = tokenize(&pack, &inputs, &source_options, (const char *)params.data, share);
        shared_cache_close(pack.shared_cache);
        buffer_close(&params);
    }
    vocab_close(pack.vocab);
    inputs_close(&inputs);
    return status;
}

const Command shardtool_tokenize = {"tokenize", "[INPUT...]", "tokenize documents into shards", options, run, NULL};
