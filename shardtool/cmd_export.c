// export: writes the token files of other tools (interchange.h).
#include "common/err.h"
#include "common/file/folder.h"
#include "common/log.h"
#include "shardtool/format/document_reader.h"
#include "shardtool/interchange.h"
#include "shardtool/support/option_rows.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

enum { STEP_TOKENS = 1 << 16 };

static Interchange to = INTERCHANGE_NONE;
static EotPlace eot;
static uint64_t file_tokens = 100000000; // as llmc's own scripts write
static const char *output;
static bool force;

static const Option options[] = {
    {OPT_WORD,   "to",          &to,          INTERCHANGE_WORDS, "the other tool"                                                             },
    {OPT_STRING, "o,output",    &output,      "DIR",             "directory to create, with files train* and val*"                            },
    {OPT_WORD,   "eot",         &eot,         EOT_WORDS,         "end-of-text ids after or before each document; auto is before for llmc only"},
    {OPT_SIZE,   "file-tokens", &file_tokens, "N",               "ids per file of llmc"                                                       },
    {OPT_FLAG,   "force",       &force,       NULL,              "replace the files of an earlier export"                                     },
    ROW_END,
};
static const char pattern[] = "@(train|val)@(|_[0-9]*).@(bin|idx|npy|ds|ds.index|ds.metadata)";

// One split on its way out: its ids, with the end-of-text ids where the other tool expects them.
typedef struct {
    TokenReader *tokens;
    const char *folder, *name;
    bool eot_before;
    uint16_t eot_id;
    uint64_t count, at;
    NewFile file;
    Buffer block;
} Export;

static int open_file(Export *export, const char *end) {
    char path[PATH_MAX_BYTES];
    if (snprintf(path, sizeof path, "%s/%s%s", export->folder, export->name, end) >= (int)sizeof path)
        return fail(EX_CREATE, "path too long: '%.60s...'", export->folder);
    return newfile_open(&export->file, path);
}

// Writes the next `count` ids. With eot_before, id 0 is an end-of-text id and id i is token i-1.
static int put_ids(Export *export, uint64_t count) {
    int status = 0;
    for (uint64_t end = export->at + count; status == 0 && export->at < end;) {
        size_t take = end - export->at < STEP_TOKENS ? (size_t)(end - export->at) : STEP_TOKENS;
        uint16_t *ids = (uint16_t *)(void *)export->block.data;
        uint64_t first = export->at;
        size_t put = 0;
        if (export->eot_before && first == 0) ids[put++] = export->eot_id;
        if (export->eot_before && first > 0) first--;
        status = token_reader_get(export->tokens, first, take - put, ids + put);
        if (status == 0) status = newfile_write(&export->file, ids, take * sizeof *ids);
        export->at += take;
    }
    return status;
}

static int put_plain(Export *export, const char *end) {
    if (open_file(export, end) < 0 || put_ids(export, export->count) < 0) return -1;
    return newfile_commit(&export->file);
}

static int put_nanogpt(Export *export) { return put_plain(export, ".bin"); }

static int put_npy(Export *export) {
    enum { HEADER_BYTES = 128 }; // a multiple of 64, so that the ids are aligned in a map
    char header[HEADER_BYTES + 1];
    int length = snprintf(header, sizeof header,
                          NPY_MAGIC "%c%c%c%c{'descr': '<u2', 'fortran_order': False, 'shape': (%" PRIu64 ",), }", 1, 0,
                          HEADER_BYTES - 10, 0, export->count);
    memset(header + length, ' ', HEADER_BYTES - (size_t)length);
    header[HEADER_BYTES - 1] = '\n';
    if (open_file(export, ".npy") < 0 || newfile_write(&export->file, header, HEADER_BYTES) < 0 ||
        put_ids(export, export->count) < 0)
        return -1;
    return newfile_commit(&export->file);
}

static int put_llmc(Export *export) {
    for (uint64_t number = 0; export->at < export->count; number++) {
        uint64_t left = export->count - export->at, take = left < file_tokens ? left : file_tokens;
        int32_t header[LLMC_INTS] = {LLMC_MAGIC, 1, (int32_t)take};
        char end[32];
        snprintf(end, sizeof end, "_%06" PRIu64 ".bin", number);
        if (open_file(export, end) < 0 || newfile_write(&export->file, header, sizeof header) < 0 ||
            put_ids(export, take) < 0 || newfile_commit(&export->file) < 0)
            return -1;
    }
    return 0;
}

// What the index of a tool holds of each document.
typedef enum { DOCUMENT_LENGTH_I32, DOCUMENT_OFFSET_I64, DOCUMENT_NUMBER_I64, DOCUMENT_END_U64 } DocumentField;

static int put_documents(Export *export, DocumentField field, uint64_t *count) {
    DocumentReader reader = {0};
    Document document;
    Buffer out = {0};
    int status;
    *count = 0;
    while ((status = document_reader_next(&reader, export->tokens, &document)) > 0) {
        int32_t length = (int32_t)document.tokens;
        uint64_t number = field == DOCUMENT_OFFSET_I64 ? document.first * sizeof(uint16_t)
                          : field == DOCUMENT_END_U64  ? document.first + document.tokens
                                                       : document.number;
        if (field == DOCUMENT_LENGTH_I32 && document.tokens > INT32_MAX)
            status = fail(EX_DATA, "document %" PRIu64 " has %" PRIu64 " tokens, too many for this format",
                          document.number, document.tokens);
        if (field == DOCUMENT_LENGTH_I32)
            buffer_add(&out, &length, sizeof length);
        else
            buffer_add(&out, &number, sizeof number);
        if (out.size >= STEP_TOKENS && status > 0) {
            status = newfile_write(&export->file, out.data, out.size) < 0 ? -1 : 1;
            out.size = 0;
        }
        if (status < 0) break;
        *count = document.number + 1;
    }
    if (status == 0) status = newfile_write(&export->file, out.data, out.size);
    buffer_close(&out);
    document_reader_close(&reader);
    return status;
}

static int put_megatron(Export *export) {
    if (put_plain(export, ".bin") < 0) return -1;
    uint8_t head[34] = MEGATRON_MAGIC;
    put_u64(head + 9, 1);
    head[17] = MEGATRON_U16;
    uint64_t documents;
    if (open_file(export, ".idx") < 0 || newfile_write(&export->file, head, sizeof head) < 0 ||
        put_documents(export, DOCUMENT_LENGTH_I32, &documents) < 0 ||
        put_documents(export, DOCUMENT_OFFSET_I64, &documents) < 0 ||
        put_documents(export, DOCUMENT_NUMBER_I64, &documents) < 0 ||
        newfile_write(&export->file, &documents, sizeof documents) < 0)
        return -1;
    put_u64(head + 18, documents);
    put_u64(head + 26, documents + 1);
    if (pwrite(export->file.fd, head, sizeof head, 0) != (ssize_t)sizeof head)
        return fail_errno("cannot write '%s'", export->file.path);
    return newfile_commit(&export->file);
}

// 23068 -> "23.1 kT", as datatrove writes it.
static void print_metric(char out[32], uint64_t count) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
    double value = (double)count;
    unsigned power = 0;
    while (value >= 1000) value /= 1000, power++;
    int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
    snprintf(out, 32, "%.*f %sT", decimals, value, prefixes[power]);
}

static int put_datatrove(Export *export) {
    uint64_t documents;
    char people[32];
    print_metric(people, export->count);
    if (put_plain(export, ".ds") < 0 || open_file(export, ".ds.index") < 0 ||
        put_documents(export, DOCUMENT_END_U64, &documents) < 0 || newfile_commit(&export->file) < 0 ||
        open_file(export, ".ds.metadata") < 0)
        return -1;
    Buffer text = {0};
    buffer_print(&text, "gpt2|2\n%" PRIu64 "\n%s", export->count, people);
    int status = newfile_write(&export->file, text.data, text.size);
    buffer_close(&text);
    return status < 0 ? -1 : newfile_commit(&export->file);
}

static int (*const writers[])(Export *) = {
    [INTERCHANGE_NANOGPT] = put_nanogpt,     [INTERCHANGE_LLMC] = put_llmc, [INTERCHANGE_MEGATRON] = put_megatron,
    [INTERCHANGE_DATATROVE] = put_datatrove, [INTERCHANGE_NPY] = put_npy,
};

static int export_split(TokenReader *tokens, int split, const char *folder) {
    Export export = {.tokens = tokens, .folder = folder, .name = split_names[split], .count = tokens->tokens};
    const ShardFile *shard = token_reader_shard(tokens, token_reader_shards(tokens) - 1);
    uint16_t last;
    if (!shard || token_reader_get(tokens, tokens->tokens - 1, 1, &last) < 0) return -1;
    export.eot_id = (uint16_t)shard->eot_id;
    export.eot_before = eot == EOT_BEFORE || (eot == EOT_AUTO && to == INTERCHANGE_LLMC);
    if (export.eot_before && last != export.eot_id) export.count++; // else its end-of-text id moves to the front
    buffer_reserve(&export.block, STEP_TOKENS * sizeof(uint16_t));
    int status = writers[to](&export);
    if (status < 0) newfile_abandon(&export.file);
    buffer_close(&export.block);
    if (status == 0) log_line("%s: %" PRIu64 " ids", split_names[split], export.count);
    return status;
}

static int export_path(const char *path, const char *folder) {
    bool any = false;
    for (int split = 0; split < (dataset_is(path) ? SPLIT_COUNT : 1); split++) {
        TokenReader tokens;
        if (token_reader_open(&tokens, path, split) < 0) return -1;
        int status = tokens.tokens ? export_split(&tokens, split, folder) : 0;
        any |= tokens.tokens > 0;
        token_reader_close(&tokens);
        if (status < 0) return -1;
    }
    return any ? 0 : fail(EX_NOINPUT, "'%s' has no tokens", path);
}

static int run(int count, char **arguments) {
    if (count != 1) return fail(EX_USAGE, "expected exactly one PATH of a shard or dataset");
    if (to == INTERCHANGE_NONE) return fail(EX_USAGE, "missing --to %s", INTERCHANGE_WORDS);
    if (!output) return fail(EX_USAGE, "missing -o DIR");
    if (eot == EOT_BEFORE && (to == INTERCHANGE_MEGATRON || to == INTERCHANGE_DATATROVE))
        return fail(EX_USAGE, "--eot before is only for nanogpt, llmc and npy");
    if (file_tokens < 1 || file_tokens > INT32_MAX)
        return fail(EX_USAGE, "--file-tokens %" PRIu64 " is not between 1 and %d", file_tokens, INT32_MAX);
    NewFolder folder;
    int status = newfolder_open(&folder, output, force, pattern);
    if (status == 0) status = export_path(arguments[0], folder.temp);
    if (status == 0)
        status = newfolder_commit(&folder);
    else
        newfolder_abandon(&folder);
    return status;
}

const Command shardtool_export = {"export", "PATH", "write the token files of other tools", options, run, NULL};
