// cat: writes the ids of shards and datasets, all of them or ranges, or merges shards into one without recompression.
// Workers decode the frames, for a merged shard too: its trailer has the SHA-256 of all ids, which no hash of a part
// gives.
#include "common/err.h"
#include "common/file/mapguard.h"
#include "common/machine/pool.h"
#include "common/rng.h"
#include "shardtool/print/id_range.h"
#include "shardtool/support/option_rows.h"
#include "shardtool/support/path_visit.h"
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum { RANDOM_LENGTH = 1024 };

static bool raw, decimal, force;
static uint64_t threads, seed;
static const char *output, *random_ranges;
static int split;

static const Option options[] = {
    {OPT_STRING, "o,output", &output, "FILE", "write one merged shard to FILE; - is standard output"},
    {OPT_FLAG, "raw", &raw, NULL, "write raw ids with -o too (the default without -o)"},
    {OPT_FLAG, "ids", &decimal, NULL, "print decimal ids, one line for each range or PATH"},
    {OPT_STRING, "random", &random_ranges, "N[:L]", "print N ranges of L ids, without L of 1024, at random positions"},
    {OPT_SIZE, "seed", &seed, "SEED", "seed of these positions"},
    ROW_SPLIT(&split),
    ROW_JOBS(&threads),
    ROW_OVERWRITE(&force),
    REMOTE_ROWS,
    ROW_END,
};

enum { RANDOM, RANGES, TO_STDOUT, TO_FILE };
static const char *const modes[] = {"with --random", "with ranges or --ids", "without -o", "with -o"};
static const OptionModes option_modes[] = {
    {"seed", 1 << RANDOM},
    {"force", 1 << TO_FILE},
    {NULL, 0},
};

// A frame to be decoded by a worker.
typedef struct {
    const ShardFile *shard;
    uint64_t index, source_bytes;
    ShardCursor *cursor;
    Buffer ids;
} FrameDecoding;

// The shard being read, and the destination of the frames: a merged shard, or raw ids in a file or a pipe.
typedef struct {
    ShardFile input;
    Pool *pool;
    FrameDecoding *jobs;
    unsigned job_count;
    ShardWriter shard;
    NewFile file;
    bool merge, to_file;
} Target;

static int decode_mapped(void *data) {
    const FrameDecoding *job = data;
    return shard_decode(job->shard, job->cursor, job->index, job->ids.data);
}

static int decode_frame(void *job, unsigned worker) {
    (void)worker;
    return mapguard_run(decode_mapped, job, ((FrameDecoding *)job)->shard->path);
}

// Waits for the oldest frame and writes it. 1 when none is in flight.
static int put_frame(Target *target) {
    void *done;
    if (pool_collect(target->pool, &done) < 0) return -1;
    if (!done) return 1;
    const FrameDecoding *job = done;
    const ShardFrame *frame = &job->shard->frames[job->index];
    if (target->merge)
        return shard_writer_append(&target->shard, job->ids.data, frame->tokens,
                                   (Bytes){job->shard->map.data + frame->offset, frame->bytes}, job->source_bytes);
    size_t size = (size_t)frame->tokens * id_bytes(job->shard->vocab_size);
    return target->to_file ? newfile_write(&target->file, job->ids.data, size)
                           : fd_write(STDOUT_FILENO, job->ids.data, size, "the output");
}

static int submit_frame(Target *target, uint64_t index, uint64_t source_bytes) {
    FrameDecoding *job;
    while (!(job = pool_acquire(target->pool)))
        if (put_frame(target) < 0) return -1;
    job->shard = &target->input, job->index = index, job->source_bytes = source_bytes;
    if (!job->cursor) job->cursor = shard_cursor_open();
    buffer_reserve(&job->ids, (size_t)target->input.frames[index].tokens * id_bytes(target->input.vocab_size));
    pool_submit(target->pool);
    return 0;
}

typedef struct {
    Target *target;
    const char *path;
} ShardCopy;

// After an error the shard stays open: workers may still read it.
static int copy_mapped(void *context) {
    Target *target = ((ShardCopy *)context)->target;
    const ShardFile *shard = &target->input;
    if (shard_file_open(&target->input, ((ShardCopy *)context)->path) < 0) return -1;
    for (uint64_t m = 0; m < shard->member_count; m++) {
        const Shard *member = &shard->members[m];
        for (uint64_t i = 0; i < member->frame_count; i++)
            if (submit_frame(target, member->first_frame + i, i + 1 == member->frame_count ? member->source_bytes : 0) <
                0)
                return -1;
    }
    int status = 0;
    while (status == 0) status = put_frame(target);
    if (status < 0) return -1;
    shard_file_close(&target->input);
    return 0;
}

static int put_shard(void *target, const char *path) {
    return mapguard_run(copy_mapped, &(ShardCopy){target, path}, path);
}

// The header of the merged shard, from all inputs.
typedef struct {
    ShardParams params;
    const char *first; // path of the first argument
    bool any, continues;
} MergedHeader;

static int add_header(void *context, const char *path) {
    MergedHeader *header = context;
    ShardParams *params = &header->params;
    ShardFile shard;
    if (shard_file_open(&shard, path) < 0) return -1;
    int status = 0;
    if (!header->any) {
        *params = (ShardParams){.vocab_size = shard.vocab_size, .eot_id = shard.eot_id};
        memcpy(params->vocab_fp, shard.vocab_fp, 32);
        memcpy(params->params_fp, shard.params_fp, 32);
        header->continues = shard.members->index.data[0] & SHARD_CONTINUES_BEFORE;
        header->any = true;
    } else if (memcmp(params->vocab_fp, shard.vocab_fp, 32) || params->vocab_size != shard.vocab_size) {
        status = fail(EX_DATA, "'%s' and '%s' have different vocabularies", header->first, path);
    } else if (memcmp(params->params_fp, shard.params_fp, 32)) {
        memset(params->params_fp, 0, 32); // the merged shard is not the output of one run
    }
    if (shard.frame_tokens > params->frame_tokens) params->frame_tokens = shard.frame_tokens;
    shard_file_close(&shard);
    return status;
}

static int open_target(Target *target, int count, char **paths) {
    bool to_stdout = !output || !strcmp(output, "-");
    if (to_stdout && cli_refuse_terminal() != 0) return -1;
    if (!to_stdout && overwrite_check(output, force) < 0) return -1;
    target->to_file = !to_stdout;
    unsigned workers = threads ? (unsigned)threads : pool_cores();
    target->job_count = 2 * workers + 2;
    target->jobs = allocate_zeroed(target->job_count, sizeof *target->jobs);
    target->pool = pool_open(workers, decode_frame, target->jobs, sizeof *target->jobs, target->job_count);
    if (!target->pool) return -1;
    if (!output || raw) return to_stdout ? 0 : newfile_open(&target->file, output);

    MergedHeader header = {.first = paths[0]};
    for (int i = 0; i < count; i++)
        if (shards_visit(paths[i], split, add_header, &header) < 0) return -1;
    if (!header.any) return fail(EX_NOINPUT, "'%s' has no %s shards", paths[0], split_names[split]);
    if (shard_writer_open(&target->shard, to_stdout ? NULL : output, STDOUT_FILENO, &header.params, header.continues) <
        0)
        return -1;
    target->merge = true;
    return 0;
}

static void close_target(Target *target) {
    pool_close(target->pool);
    shard_file_close(&target->input);
    for (unsigned i = 0; i < target->job_count; i++) {
        shard_cursor_close(target->jobs[i].cursor);
        buffer_close(&target->jobs[i].ids);
    }
    free(target->jobs);
}

static int parse_random(uint64_t *ranges, uint64_t *length) {
    char *end;
    *ranges = strtoull(random_ranges, &end, 10);
    *length = *end ? strtoull(end + 1, NULL, 10) : RANDOM_LENGTH;
    if (id_range_is(random_ranges) ? *random_ranges != ':' : end > random_ranges && !*end) return 0;
    return fail(EX_USAGE, "--random '%s' is not a number of ranges, N or N:L", random_ranges);
}

static int print_random(TokenReader *tokens, const char *path) {
    uint64_t ranges, length;
    if (parse_random(&ranges, &length) < 0) return -1;
    if (length < 1 || length > tokens->tokens)
        return fail(EX_USAGE, "--random %s: the length is not between 1 and the %" PRIu64 " tokens of '%s'",
                    random_ranges, tokens->tokens, path);
    int status = 0;
    for (uint64_t i = 0; status == 0 && i < ranges; i++) {
        // The high half of the product is uniform over the positions to within 2^-64 of their number.
        uint64_t first = (uint64_t)((unsigned __int128)rng_u64(seed, 0, i) * (tokens->tokens - length + 1) >> 64);
        status = id_range_print(tokens, first, first + length, decimal);
    }
    return status;
}

// A PATH and the ranges after it.
static int print_ranges(int count, char **arguments) {
    TokenReader tokens;
    if (random_ranges && count > 1)
        return fail(EX_USAGE, "--random and the range '%s' exclude each other", arguments[1]);
    if (token_reader_open(&tokens, arguments[0], split) < 0) return -1;
    int status = random_ranges ? print_random(&tokens, arguments[0]) : 0;
    if (count == 1 && !random_ranges) status = id_range_print(&tokens, 0, tokens.tokens, decimal);
    for (int i = 1; status == 0 && i < count; i++) {
        uint64_t first, end;
        status = id_range_parse(arguments[i], tokens.tokens, &first, &end);
        if (status == 0) status = id_range_print(&tokens, first, end, decimal);
    }
    token_reader_close(&tokens);
    return status;
}

static int print_paths(int count, char **arguments) {
    if (output) return fail(EX_USAGE, "ranges and --ids go to standard output: not with -o");
    if (!decimal && cli_refuse_terminal() != 0) return -1;
    for (int i = 0, group; i < count; i += group) {
        group = id_range_group(count - i, arguments + i);
        if (group < 0 || print_ranges(group, arguments + i) < 0) return -1;
    }
    return 0;
}

static int write_all(int count, char **arguments) {
    if (paths_check_vocabulary(count, arguments) < 0) return -1;
    static Target target;
    int status = open_target(&target, count, arguments);
    for (int i = 0; status == 0 && i < count; i++) status = shards_visit(arguments[i], split, put_shard, &target);
    if (target.merge && status == 0)
        status = shard_writer_finish(&target.shard);
    else if (target.merge)
        shard_writer_abandon(&target.shard);
    else if (target.to_file && status == 0)
        status = newfile_commit(&target.file);
    else
        newfile_abandon(&target.file);
    close_target(&target);
    return status;
}

static int run(int count, char **arguments) {
    if (count == 0) return fail(EX_USAGE, "missing PATH of a shard or dataset (- is standard input)");
    if (jobs_check(threads) < 0) return -1;
    bool is_part = decimal || random_ranges;
    for (int i = 0; i < count; i++) is_part |= id_range_is(arguments[i]);
    const unsigned mode = random_ranges ? RANDOM : is_part ? RANGES : output ? TO_FILE : TO_STDOUT;
    if (cli_check_mode(option_modes, modes, mode) < 0) return -1;
    return is_part ? print_paths(count, arguments) : write_all(count, arguments);
}

const Command shardtool_cat = {
    "cat", "PATH [A:B]...", "print ids, all or tokens A to B-1, or merge shards into one", options, run, NULL};
