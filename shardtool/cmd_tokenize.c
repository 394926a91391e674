// tokenize: turns any input into a dataset directory, or into one shard or the ids on standard output.
#include "common/err.h"
#include "dataset/dataset_build.h"
#include "dataset/lineage.h"
#include "shardtool/conversation/conversation.h"
#include "shardtool/pipeline/append.h"
#include "shardtool/print/id_output.h"
#include "shardtool/support/dataset_vocabulary.h"
#include "shardtool/support/run_compare.h"
#include "shardtool/support/run_part.h"
#include "shardtool/support/run_summary.h"
#include "shardtool/support/source_overlap.h"
#include "shardtool/support/vocabulary_options.h"
#include "tokenizer/tokenizer.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

static uint64_t threads, max_word = ENCODER_MAX_WORD, val_seed, shard_tokens = 128 << 20, max_tokens,
                         frame_tokens = SHARD_FRAME_TOKENS, level = SHARD_LEVEL;
static double val = 0.0005;
static const char *output, *part_option, *turns_keys;
static ConversationKeys conversation_keys; // of turns_keys
static VocabularyOptions vocabulary;
static InvalidUtf8 invalid_utf8;
static bool force, append, json, decimal, raw;

static const Option options[] = {
    {OPT_STRING, "o,output", &output, "DIR", "dataset directory to create; - writes one shard to standard output"},
    ROW_JOBS(&threads),
    {OPT_FLOAT, "val", &val, "P", "share of documents in the validation split, 0 to 1"},
    {OPT_SIZE, "seed", &val_seed, "SEED", "seed of the choice of validation documents"},
    {OPT_SIZE, "shard-tokens", &shard_tokens, "N", "tokens per shard, rounded up to whole frames"},
    {OPT_SIZE, "max-tokens", &max_tokens, "N", "end with the document that reaches N tokens, 0 = no limit"},
    {OPT_SIZE, "frame-tokens", &frame_tokens, "N", "tokens per compressed frame"},
    {OPT_SIZE, "level", &level, "1..19", "of compression: 1 is faster, more are smaller, see docs/datasets.md"},
    {OPT_STRING, "part", &part_option, "I/N",
     "tokenize every N-th file, from the I-th on, to DIR/part-I-of-N (see merge); without it a Slurm array or mpirun chooses the part"},
    INPUT_ROWS,
    {OPT_FLAG, "turns", &source_options.turns, NULL,
     "lines and rows with messages, or with prompt and completion, are conversations; see docs/answers.md"},
    {OPT_STRING, "turns-keys", &turns_keys, "NAME=KEY,...",
     "--turns with other keys: user=question,assistant=answer, or messages, role, content, system, ignore"},
    {OPT_LIST, "keep", &source_options.keep, "KEY",
     "keep this key of JSON lines, or column of Parquet, with each document; may be given several times"},
    ROW_INVALID_UTF8(&invalid_utf8),
    ROW_MAX_WORD(&max_word),
    VOCABULARY_ROWS(&vocabulary),
    {OPT_FLAG, "json", &json, NULL, "print the summary as a JSON object to standard output"},
    {OPT_FLAG, "ids", &decimal, NULL,
     "print the ids without end-of-text, one line of decimals for each document, and make no dataset"},
    {OPT_FLAG, "raw", &raw, NULL, "print these ids little-endian, of 2 bytes, of more than 65,536 of 4"},
    {OPT_FLAG, "append", &append, NULL, "add the documents to the finished dataset DIR"},
    ROW_REPLACE(&force),
    ROW_END,
};

enum { TO_DATASET, TO_SHARD, TO_IDS };
static const char *const modes[] = {"with -o DIR", "with -o -", "with --ids or --raw"};
static const OptionModes option_modes[] = {
    {"val seed shard-tokens append force json keep", 1 << TO_DATASET},
    {"part frame-tokens level turns turns-keys", 1 << TO_DATASET | 1 << TO_SHARD},
    {NULL, 0},
};

typedef struct {
    PipelineOptions pipeline;
    const char *part; // for the manifest; NULL: the whole
    Buffer line;      // the options of make_params, without line end
    char share[32];   // --val as text
    char names_from[PATH_MAX_BYTES];
} RunParams;

// The shortest decimal that reads back as the same number, so that the text does not depend on the C library.
static void print_number(char out[32], double number) {
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, number);
        if (strtod(out, NULL) == number) return;
    }
}

// All options that determine the bytes of the shards, in one line. params_fp is its hash.
static void make_params(Buffer *line, const char *share) {
    char invalid[16];
    word_print(INVALID_UTF8_WORDS, invalid_utf8, invalid, sizeof invalid);
    buffer_print(line, "frame_tokens=%" PRIu64 ";codec=", frame_tokens);
    shard_level_print(line, (unsigned)level);
    buffer_print(line, ";eot=after;invalid=%s", invalid);
    input_print_params(line);
    if (source_options.turns) buffer_print(line, ";turns=1");
    if (turns_keys) input_print_param(line, ";turns_keys=", turns_keys);
    if (max_tokens) buffer_print(line, ";max_tokens=%" PRIu64, max_tokens);
    buffer_print(line, ";val=%s;val_seed=%" PRIu64 ";shard_tokens=%" PRIu64, share, val_seed, shard_tokens);
}

static int check_options(bool to_stdout) {
    if (input_check() < 0 || input_set_threads(threads) < 0) return -1;
    if (!output && !to_stdout)
        return fail(EX_USAGE, "missing -o DIR (-o - writes one shard to standard output, --ids prints ids)");
    if ((decimal || raw) && output && strcmp(output, "-") != 0)
        return fail(EX_USAGE, "--ids and --raw print the ids of texts: not with -o DIR");
    if (cli_check_mode(option_modes, modes, decimal || raw ? TO_IDS : to_stdout ? TO_SHARD : TO_DATASET) < 0) return -1;
    if (turns_keys && conversation_keys_parse(&conversation_keys, turns_keys) < 0) return -1;
    if (turns_keys) source_options.turns = true, source_options.turns_keys = &conversation_keys;
    if (source_options.turns && invalid_utf8 == INVALID_BYTES)
        return fail(EX_USAGE, "--turns reads JSON, which is UTF-8: --invalid-utf8 replace or fail");
    source_options.replaces = invalid_utf8 == INVALID_REPLACE;
    if (source_options.keep.count > KEEP_MAX) return fail(EX_USAGE, "--keep: more than %d keys", KEEP_MAX);
    if (append && force) return fail(EX_USAGE, "--append adds to a dataset: not with --force");
    if (!(val >= 0 && val <= 1)) return fail(EX_USAGE, "--val %g is not between 0 and 1", val);
    if (frame_tokens < 1 || frame_tokens > SHARD_FRAME_TOKENS_MAX)
        return fail(EX_USAGE, "--frame-tokens %" PRIu64 " is not between 1 and %d", frame_tokens,
                    SHARD_FRAME_TOKENS_MAX);
    if (level < 1 || level > SHARD_LEVEL_MAX)
        return fail(EX_USAGE, "--level %" PRIu64 " is not between 1 and %d", level, SHARD_LEVEL_MAX);
    if (to_stdout)
        val = 0, shard_tokens = 0;
    else if (shard_tokens < 1)
        return fail(EX_USAGE, "--shard-tokens must be at least 1");
    shard_tokens += (frame_tokens - shard_tokens % frame_tokens) % frame_tokens;
    return 0;
}

// Ids compress to about a third of the text, so a quarter of the text is a lower bound.
static int check_space(const Inputs *inputs) {
    struct statvfs vfs;
    if (statvfs(output, &vfs)) return fail_errno("cannot stat '%s'", output);
    double have = (double)vfs.f_bavail * (double)vfs.f_frsize, want = (double)inputs->bytes / 4;
    if (have >= want) return 0;
    char have_text[16], want_text[16], more_text[16];
    return fail(EX_IO, "'%s' has %s free, at least %s are needed: free %s more", output, human_bytes(have_text, have),
                human_bytes(want_text, want), human_bytes(more_text, want - have));
}

static void log_continued(const Dataset *dataset) {
    uint64_t shards = dataset->shard_count[SPLIT_TRAIN] + dataset->shard_count[SPLIT_VAL];
    if (shards)
        log_line("continuing after %" PRIu64 " finished shard%s, %" PRIu64 " tokens", shards, PLURAL(shards),
                 dataset->tokens[SPLIT_TRAIN] + dataset->tokens[SPLIT_VAL]);
}

// A file of this machine that is damaged gets another time when it is mended. A server may send other bytes the next
// time, so no document of its file stays in shards.
static void forget_remote(Journal *journal, const Source *source) {
    uint64_t file;
    Error error;
    if (!journal || err_code() != EX_DATA || !source_is_remote(source, &file)) return;
    err_take(&error);
    if (journal_forget(journal, file) < 0) log_warn("%s", err_text());
    err_clear();
    err_give(&error);
}

// A dataset of tokenize alone stays that when it is appended to; another one is the first of two inputs.
static int finish(DatasetBuild *build, Dataset *dataset, const RunParams *run) {
    const Dataset *base = run->pipeline.base;
    const char *params = (const char *)run->line.data;
    Buffer inputs = {0}, history = {0};
    if (base && !lineage_is_plain(base)) {
        lineage_add(&inputs, base);
        uint64_t tokens = 0, documents = 0;
        for (int split = 0; split < SPLIT_COUNT; split++) {
            tokens += dataset->tokens[split] - base->tokens[split];
            documents += dataset->documents[split] - base->documents[split];
        }
        lineage_add_run(&inputs, "tokenize", params, tokens, documents);
    }
    lineage_make(&history, inputs.size ? "tokenize --append" : "tokenize", inputs.size ? "" : params, &inputs);
    dataset->history = (const char *)history.data;
    const int status = dataset_build_finish(build, dataset);
    dataset->history = NULL;
    buffer_close(&inputs);
    buffer_close(&history);
    return status;
}

// `journal` and `resume` are NULL for standard output.
static int run_pipeline(DatasetBuild *build, const RunParams *run, const Inputs *inputs, Dataset *dataset,
                        Journal *journal, const JournalResume *resume) {
    Progress progress;
    PipelineResult result;
    uint64_t started_ns = clock_ns(), done_before = dataset->source_bytes;
    progress_start(&progress, "files read", "B", inputs->bytes);
    progress.counts[0].name = "documents", progress.counts[1].name = "tokens";
    PipelineOptions pipeline = run->pipeline;
    pipeline.shards.build = build, pipeline.progress = &progress;
    pipeline.skips = &source_options.skips;
    pipeline.shards.journal = journal, pipeline.shards.resume = resume;
    AccessPoints *points = journal ? allocate_zeroed(1, sizeof *points) : NULL;
    source_options.points = points;
    Source *source = source_open(inputs, &source_options);
    if (resume && resume->has_start) {
        const InputPosition *start = &resume->start;
        if (resume->point.out) points->start = &resume->point;
        source_start(source, start->file, start->place, start->document - start->preceding);
    }
    int status = pipeline_run(&pipeline, inputs, source, dataset, &result);
    if (status < 0) forget_remote(journal, source);
    source_close(source);
    source_options.points = NULL;
    free(points);
    // a part may be of files without documents
    if (status == 0 && dataset->documents[SPLIT_TRAIN] + dataset->documents[SPLIT_VAL] == 0 && !dataset->part)
        status = fail_no_documents();
    if (status == 0) status = skips_finish(&source_options.skips);
    if (status == 0 && build) status = finish(build, dataset, run);
    skips_abandon(&source_options.skips);
    progress_finish(&progress);
    if (status == 0)
        summary_print(&(Summary){dataset, pipeline.base, inputs, &result, done_before, resume, started_ns, max_tokens,
                                 val, json});
    const char *unfound = status == 0 ? conversation_unfound(&source_options) : NULL;
    if (unfound) log_warn("no line or row that was read has the key '%s' of --turns-keys", unfound);
    return status;
}

static void add_sources(Dataset *dataset, const Inputs *inputs, const Dataset *base) {
    for (uint64_t i = 0; base && i < base->source_count; i++) dataset_add_source(dataset, &base->sources[i]);
    for (uint64_t i = 0; i < inputs->argument_count; i++) {
        const InputArgument *argument = &inputs->arguments[i];
        DatasetSource source = {.path = argument->path, .files = argument->files, .bytes = argument->bytes};
        memcpy(source.digest, argument->digest, sizeof source.digest);
        dataset_add_source(dataset, &source);
    }
}

static void begin_dataset(Dataset *dataset, const char *directory, const RunParams *run) {
    const ShardParams *params = &run->pipeline.shards.params;
    dataset_begin(dataset, directory);
    dataset->part = run->part;
    dataset->names_from = *run->names_from ? run->names_from : NULL;
    dataset->params = (const char *)run->line.data, dataset->val = run->share, dataset->val_seed = val_seed;
    dataset->vocab_size = params->vocab_size, dataset->eot_id = params->eot_id;
    memcpy(dataset->vocab_fp, params->vocab_fp, 32);
    memcpy(dataset->params_fp, params->params_fp, 32);
}

static int write_dataset(DatasetBuild *build, RunParams *run, Inputs *inputs) {
    const Dataset *base = run->pipeline.base;
    if (check_space(inputs) < 0 || dataset_build_start(build, force || base) < 0) return -1;
    char skips_path[PATH_MAX_BYTES], skips_base[PATH_MAX_BYTES];
    dataset_skips_path(skips_path, build->target);
    dataset_skips_path(skips_base, output);
    source_options.skips.path = skips_path;
    if (base && access(skips_base, F_OK) == 0) source_options.skips.base = skips_base;
    Dataset dataset;
    Journal journal = {0};
    JournalResume resume;
    int pending_split = val > 0.5 ? SPLIT_TRAIN : SPLIT_VAL; // the smaller one
    if (base && base->names_from) inputs_name_from(inputs, base->names_from);
    snprintf(run->names_from, sizeof run->names_from, "%.*s", (int)inputs->outside_bytes,
             inputs->outside ? inputs->outside : "");
    begin_dataset(&dataset, build->target, run);
    int status = journal_load(&dataset, inputs, base, pending_split, &resume);
    bool continued = status == JOURNAL_SAME;
    if (status == JOURNAL_OTHER && !force)
        status = compare_unfinished(build->target, (const char *)resume.params.data, dataset.params, base != NULL);
    if (status == JOURNAL_OTHER) log_line("starting over: '%s' holds shards of another run", build->target);
    if (status >= 0) status = continued ? dataset_build_continue(build) : dataset_build_clear(build);
    if (status == 0)
        status =
            journal_open(&journal, &dataset, inputs, base, continued ? &resume : NULL, pending_split, &source_options);
    if (status == 0) log_continued(&dataset);
    if (status == 0 && base) {
        status = append_link(&dataset, base, shard_tokens, &journal);
        append_places(base, inputs);
    }
    if (status == 0) {
        add_sources(&dataset, inputs, base);
        status = run_pipeline(build, run, inputs, &dataset, &journal, continued ? &resume : NULL);
        if (status < 0 && !dataset.shard_count[SPLIT_TRAIN] && !dataset.shard_count[SPLIT_VAL])
            dataset_build_abandon(build); // there is nothing from which a later run could continue
    }
    journal_close(&journal);
    buffer_close(&resume.pending);
    buffer_close(&resume.params);
    dataset_close(&dataset);
    return status;
}

// Makes `output` the dataset of this run, with its lock held: it may be complete, or is appended to or replaced.
static int complete_dataset(DatasetBuild *build, RunParams *run, Inputs *inputs) {
    const char *params = (const char *)run->line.data;
    Dataset base = {0};
    int complete = inputs_digest(inputs);
    if (complete == 0 && append) {
        if (!build->has_manifest) return fail(EX_NOINPUT, "'%s' holds no finished dataset to append to", output);
        complete = dataset_open(&base, output);
        if (complete == 0) complete = compare_base(&base, params, &run->pipeline.shards.params, inputs);
        if (complete == 0) complete = source_overlap_check(&base, inputs, &input_filter);
        run->pipeline.base = &base;
    } else if (complete == 0 && build->has_manifest && !force) {
        complete = compare_finished(output, params, &run->pipeline.shards.params, inputs);
    }
    if (complete > 0 && !append) log_line("'%s' is already complete", output);
    int status = complete ? complete : write_dataset(build, run, inputs);
    dataset_close(&base);
    return status < 0 ? -1 : dataset_vocabulary_keep(output, run->pipeline.text.vocab);
}

static int tokenize_inputs(RunParams *run, Inputs *inputs, bool to_stdout) {
    int status;
    if (to_stdout) {
        Dataset dataset; // collects the totals only
        begin_dataset(&dataset, output, run);
        status = run_pipeline(NULL, run, inputs, &dataset, NULL, NULL);
        dataset_close(&dataset);
        return status;
    }
    DatasetBuild build;
    status = dataset_build_open(&build, output);
    if (status == 0) status = complete_dataset(&build, run, inputs);
    dataset_build_close(&build);
    return status;
}

// All options that determine the bytes of the shards, and their line.
static void set_params(RunParams *run) {
    TextOptions *text = &run->pipeline.text;
    ShardSinkOptions *shards = &run->pipeline.shards;
    print_number(run->share, val);
    make_params(&run->line, run->share);
    buffer_print(&run->line, "\n");
    sha256(run->line.data, run->line.size, shards->params.params_fp);
    run->line.data[run->line.size - 1] = '\0'; // drop the line end, which only the hash includes
    text->invalid = invalid_utf8, text->max_word = max_word, text->val = val, text->val_seed = val_seed;
    text->turns = source_options.turns;
    shards->threads = (unsigned)threads, shards->shard_tokens = shard_tokens;
    shards->params.frame_tokens = frame_tokens, shards->params.level = (unsigned)level;
    shards->params.vocab_size = vocab_size(text->vocab);
    shards->params.eot_id = vocab_end_of_text(text->vocab);
    vocab_fingerprint(text->vocab, shards->params.vocab_fp);
    run->pipeline.max_tokens = max_tokens;
}

static int print_ids(Source *source) {
    const Vocab *vocab = vocabulary_options_open(&vocabulary);
    if (!vocab) return -1;
    const IdOutputOptions id_options = {vocab, invalid_utf8, max_word, max_tokens, raw};
    const int status = id_output_print(&id_options, source);
    vocab_close(vocab);
    return status;
}

static int run(int count, char **arguments) {
    RunParams params = {0};
    TextOptions *text = &params.pipeline.text;
    const bool to_stdout = decimal || raw || (output && !strcmp(output, "-"));
    if (check_options(to_stdout) < 0) return -1;
    if (to_stdout && (!decimal || raw) && cli_refuse_terminal() != 0) return -1;
    if (decimal || raw) return input_read(count, arguments, print_ids);

    RunPart part;
    if (part_choose(&part, part_option, output) < 0) return -1;
    if (part.count && max_tokens)
        return fail(EX_USAGE, "--max-tokens with part %u of %u (from %s): --part 1/1 takes all inputs", part.number,
                    part.count, part.from);
    Inputs inputs;
    if (inputs_open(&inputs, count, arguments, &input_filter) < 0) return -1;
    if (refuse_within_inputs(output, &inputs, &input_filter) < 0) return inputs_close(&inputs), -1;
    if (part.count) {
        if (part_take(&part, &inputs) < 0) return inputs_close(&inputs), -1;
        output = part.output, params.part = part.text;
    }
    text->vocab = vocabulary_options_open(&vocabulary);
    if (text->vocab && source_options.turns) text->vocab = vocab_with_turns(text->vocab);
    int status = text->vocab ? 0 : -1;
    if (status == 0) {
        set_params(&params);
        status = tokenize_inputs(&params, &inputs, to_stdout);
        buffer_close(&params.line);
    }
    vocab_close(text->vocab);
    inputs_close(&inputs);
    return status;
}

const Command shardtool_tokenize = {"tokenize", "[INPUT...]", "tokenize documents into shards, or print their ids",
                                    options,    run,          NULL};
