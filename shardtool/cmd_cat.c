// cat: writes the raw ids of shards and datasets, or merges them into one shard without recompression.
#include "common/err.h"
#include "common/mapguard.h"
#include "shardtool/cmd_options.h"
#include "shardtool/cmd_shards.h"
#include "shardtool/format/shard.h"
#include <sys/stat.h>
#include <unistd.h>

static bool raw, force;
static const char *output;
static int split;

static const Option options[] = {
    {OPT_STRING, "o,output", &output, "FILE", "write one merged shard to FILE; - is standard output"  },
    {OPT_FLAG,   "raw",      &raw,    NULL,   "write raw u16 ids with -o too (the default without -o)"},
    ROW_SPLIT(&split),
    ROW_OVERWRITE(&force),
    ROW_END,
};

// The destination of the frames: a merged shard, or raw ids in a file or a pipe.
typedef struct {
    ShardWriter shard;
    NewFile file;
    bool merge, to_file;
    ShardCursor *cursor;
    Buffer ids;
} Target;

static int put_frame(Target *target, const ShardFile *shard, uint64_t index, uint64_t source_bytes) {
    const ShardFrame *frame = &shard->frames[index];
    uint16_t *ids = (uint16_t *)(void *)target->ids.data;
    if (shard_decode(shard, target->cursor, index, ids) < 0) return -1;
    if (target->merge)
        return shard_writer_append(&target->shard, ids, frame->tokens,
                                   (Bytes){shard->map.data + frame->offset, frame->bytes}, source_bytes);
    size_t size = frame->tokens * sizeof *ids;
    return target->to_file ? newfile_write(&target->file, ids, size) : fd_write(STDOUT_FILENO, ids, size, "the output");
}

typedef struct {
    Target *target;
    const char *path;
} Copy;

static int copy_mapped(void *context) {
    Target *target = ((Copy *)context)->target;
    ShardFile shard;
    if (shard_file_open(&shard, ((Copy *)context)->path) < 0) return -1;
    target->ids.size = 0;
    buffer_reserve(&target->ids, (size_t)shard.frame_tokens * sizeof(uint16_t));
    int status = 0;
    for (uint64_t m = 0; status == 0 && m < shard.member_count; m++) {
        const Shard *member = &shard.members[m];
        for (uint64_t i = 0; status == 0 && i < member->frame_count; i++)
            status = put_frame(target, &shard, member->first_frame + i,
                               i + 1 == member->frame_count ? member->source_bytes : 0);
    }
    shard_file_close(&shard);
    return status;
}

static int put_shard(void *target, const char *path) { return mapguard_run(copy_mapped, &(Copy){target, path}, path); }

// The header of the merged shard, from all inputs.
typedef struct {
    ShardParams params;
    const char *first; // path of the first argument
    bool any, continues;
} Header;

static int add_header(void *context, const char *path) {
    Header *header = context;
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
    } else if (memcmp(params->vocab_fp, shard.vocab_fp, 32)) {
        status = fail(EX_DATA, "'%s' and '%s' have different vocabularies", header->first, path);
    } else if (memcmp(params->params_fp, shard.params_fp, 32)) {
        memset(params->params_fp, 0, 32); // the merged shard is not the output of one run
    }
    if (shard.frame_tokens > params->frame_tokens) params->frame_tokens = shard.frame_tokens;
    shard_file_close(&shard);
    return status;
}

static int open_target(Target *target, int count, char **paths) {
    struct stat st;
    bool to_stdout = !output || !strcmp(output, "-");
    if (to_stdout && cli_refuse_terminal() != 0) return -1;
    if (!to_stdout && !force && stat(output, &st) == 0)
        return fail(EX_CREATE, "'%s' exists; --force overwrites it", output);
    target->cursor = shard_cursor_open();
    target->to_file = !to_stdout;
    if (!output || raw) return to_stdout ? 0 : newfile_open(&target->file, output);

    Header header = {.first = paths[0]};
    for (int i = 0; i < count; i++)
        if (shards_visit(paths[i], split, add_header, &header) < 0) return -1;
    if (!header.any) return fail(EX_NOINPUT, "'%s' has no %s shards", paths[0], split_names[split]);
    if (shard_writer_open(&target->shard, to_stdout ? NULL : output, STDOUT_FILENO, &header.params, header.continues) <
        0)
        return -1;
    target->merge = true;
    return 0;
}

static int run(int count, char **arguments) {
    if (count == 0) return fail(EX_USAGE, "missing PATH of a shard or dataset (- is standard input)");
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
    shard_cursor_close(target.cursor);
    buffer_close(&target.ids);
    return status;
}

const Command shardtool_cat = {"cat", "PATH...", "print raw ids, or merge shards into one", options, run, NULL};
