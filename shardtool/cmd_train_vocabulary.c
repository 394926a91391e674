// train-vocabulary: finds the merges of a byte-level BPE vocabulary, or the characters, in the documents of any inputs.
#include "common/err.h"
#include "common/machine/host_memory.h"
#include "common/machine/pool.h"
#include "shardtool/print/character_list.h"
#include "shardtool/support/option_rows.h"
#include "shardtool/support/run_compare.h"
#include "shardtool/support/source_overlap.h"
#include "shardtool/vocabulary/count_sample.h"
#include "shardtool/vocabulary/counting.h"
#include "shardtool/vocabulary/merging.h"
#include "shardtool/vocabulary/vocabulary_files.h"
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BYTE_IDS = 256, VOCAB_SIZE_MAX = 1 << 24, MEMORY_DEFAULT = 1 << 30 };

static uint64_t threads, vocab_size_option = 32768, max_word = ENCODER_MAX_WORD, max_bytes, min_count = 1,
                         memory = MEMORY_DEFAULT;
static const char *output;
static Pattern pattern;
static StringList specials;
static InvalidUtf8 invalid_utf8;
static bool characters, force;

static const Option options[] = {
    {OPT_STRING, "o,output", &output, "DIR", "directory to create for the vocabulary"},
    {OPT_SIZE, "V,vocab-size", &vocab_size_option, "N", "ids of the vocabulary, special tokens included"},
    {OPT_WORD, "pattern", &pattern, pattern_words + 1, "the pattern that cuts text into pieces before merging"},
    {OPT_LIST, "special", &specials, "TOKEN", "a special token, in the order of their ids; <|endoftext|> is the last"},
    {OPT_FLAG, "characters", &characters, NULL,
     "learn no merges: print each character of the documents once, for --vocabulary"},
    ROW_JOBS(&threads),
    {OPT_SIZE, "memory", &memory, "SIZE",
     "memory to use at most; rare counts beyond it are kept in files in DIR; the default is less if less is free"},
    {OPT_SIZE, "max-bytes", &max_bytes, "SIZE", "use a sample of the documents of about SIZE of text, 0 = all"},
    {OPT_SIZE, "min-count", &min_count, "N", "leave out pieces of text that occur less than N times"},
    INPUT_ROWS,
    ROW_INVALID_UTF8(&invalid_utf8),
    ROW_MAX_WORD(&max_word),
    {OPT_FLAG, "force", &force, NULL, "replace a vocabulary"},
    ROW_END,
};

static const char end_of_text[] = "<|endoftext|>";

typedef struct {
    CountingOptions counting;
    Buffer count_params, params; // settings of the counts, and of the vocabulary; each ends with a NUL
    uint32_t merges;
    Inputs inputs;
    Lock lock; // of the output
} TrainRun;

static int check_specials(void) {
    for (size_t i = 0; i < specials.count; i++)
        for (size_t j = 0; j < i; j++)
            if (!strcmp(specials.items[i], specials.items[j]))
                return fail(EX_USAGE, "--special %s is there twice", specials.items[i]);
    for (size_t i = 0; i < specials.count; i++) {
        if (vocabulary_check_special(specials.items[i]) < 0) return -1;
        if (!strcmp(specials.items[i], end_of_text))
            return fail(EX_USAGE, "--special %s: it is always there, as the last id", end_of_text);
    }
    if (specials.count == STRING_LIST_MAX) return fail(EX_USAGE, "more than %d special tokens", STRING_LIST_MAX - 1);
    specials.items[specials.count++] = end_of_text;
    return 0;
}

static int check_options(TrainRun *run) {
    if (input_check() < 0 || input_set_threads(threads) < 0 || check_specials() < 0) return -1;
    if (!output) return fail(EX_USAGE, "missing -o DIR");
    const uint64_t least = BYTE_IDS + specials.count;
    if (vocab_size_option < least || vocab_size_option > VOCAB_SIZE_MAX)
        return fail(EX_USAGE, "-V %" PRIu64 " is not between %" PRIu64 " (bytes and special tokens) and %d",
                    vocab_size_option, least, VOCAB_SIZE_MAX);
    run->merges = (uint32_t)(vocab_size_option - least);
    const uint64_t free_bytes = host_memory_free(NULL) / 4 * 3;
    if (memory == MEMORY_DEFAULT && free_bytes && free_bytes < memory) memory = free_bytes;
    CountWorkersOptions *workers = &run->counting.workers;
    *workers = (CountWorkersOptions){.threads = threads ? (unsigned)threads : pool_cores(),
                                     .memory = memory,
                                     .pattern = pattern,
                                     .invalid = invalid_utf8,
                                     .max_word = max_word,
                                     .folder = output};
    return count_workers_check(workers);
}

// A special token as an item of the list of them, so that two commands never have the same line.
static void add_special(Buffer *line, const char *token) {
    for (; *token; token++) buffer_print(line, strchr(",;%", *token) ? "%%%02X" : "%c", (unsigned char)*token);
}

static void make_params(TrainRun *run) {
    char invalid[16];
    Buffer *count = &run->count_params, *all = &run->params;
    word_print(INVALID_UTF8_WORDS, invalid_utf8, invalid, sizeof invalid);
    buffer_print(count, "pattern=%s;invalid=%s", pattern_name(pattern), invalid);
    input_print_params(count);
    if (max_bytes) buffer_print(count, ";max_bytes=%" PRIu64, max_bytes);
    buffer_print(all, "%s;vocab_size=%" PRIu64 ";min_count=%" PRIu64, (const char *)count->data, vocab_size_option,
                 min_count);
    for (size_t i = 0; i < specials.count; i++) {
        buffer_print(all, i ? "," : ";special=");
        add_special(all, specials.items[i]);
    }
}

// 1 when the directory holds the result of this run.
static int compare_finished_vocabulary(const TrainRun *run) {
    static const char advice[] = "choose another directory, or replace it with --force";
    Buffer params = {0};
    uint8_t then[32], now[32];
    char what[PATH_MAX_BYTES + 2];
    snprintf(what, sizeof what, "'%s'", output);
    int status = vocabulary_files_read(output, &params, then);
    inputs_hash(&run->inputs, false, now);
    if (status == 0 && strcmp((const char *)params.data, (const char *)run->params.data) != 0)
        status = compare_params(what, (const char *)params.data, (const char *)run->params.data, advice);
    else if (status == 0 && memcmp(then, now, sizeof now) != 0)
        status = fail(EX_USAGE, "'%s' was made from other inputs, or they have changed: %s", output, advice);
    buffer_close(&params);
    return status < 0 ? -1 : 1;
}

// A directory that is neither new nor empty, nor of an unfinished run.
static int refuse_other_files(void) {
    DIR *directory = opendir(output);
    if (!directory) return fail_errno("cannot open '%s'", output);
    const struct dirent *entry;
    int status = 0;
    while (status == 0 && (entry = readdir(directory)))
        if (entry->d_name[0] != '.')
            status = fail(EX_CREATE, "'%s' holds '%s': choose another directory", output, entry->d_name);
    closedir(directory);
    return status;
}

static bool output_has(const char *name) {
    char path[PATH_MAX_BYTES];
    return snprintf(path, sizeof path, "%s/%s", output, name) < (int)sizeof path && access(path, F_OK) == 0;
}

static int find_sample(const TrainRun *run, CountState *state) {
    SourceOptions sample_options = source_options; // with skips of its own: the counting pass lists them
    for (uint64_t i = 0; i < run->inputs.argument_count; i++)
        if (run->inputs.arguments[i].stream)
            return fail(EX_USAGE, "--max-bytes reads the inputs twice, and '%s' is a stream",
                        run->inputs.arguments[i].path);
    log_line("reading the inputs to choose the sample");
    Source *source = source_open(&run->inputs, &sample_options);
    int status = sample_find(source, max_bytes, &state->sample_from);
    source_close(source);
    skips_abandon(&sample_options.skips);
    return status;
}

static int count_documents(TrainRun *run, CountState *state, CountJournal *journal) {
    Progress progress;
    CountingOptions *counting = &run->counting;
    progress_start(&progress, "files read", "B", run->inputs.bytes);
    progress.counts[0].name = "documents";
    AccessPoints *points = allocate_zeroed(1, sizeof *points);
    source_options.points = points;
    counting->journal = journal, counting->skips = &source_options.skips, counting->progress = &progress;
    Source *source = source_open(&run->inputs, &source_options);
    const InputPosition *start = &state->position;
    if (journal->point.point.out) points->start = &journal->point.point;
    source_start(source, start->file, start->place, start->document - start->preceding);
    const int status = counting_run(counting, &run->inputs, source, state);
    uint64_t file;
    if (status < 0 && err_code() == EX_DATA && source_is_remote(source, &file))
        count_journal_remove(output); // a server may send other bytes the next time
    source_close(source);
    source_options.points = NULL;
    free(points);
    skips_abandon(&source_options.skips);
    progress_finish(&progress);
    if (status == 0) log_skips();
    if (status == 0) log_replaced(state->replaced, state->bytes, "");
    return status == 0 && !state->run_count ? fail_no_documents() : status;
}

static int write_vocabulary(const TrainRun *run, const CountState *state) {
    Progress progress;
    Merging merging;
    MergingOptions merge = {.folder = output,
                            .run = state->runs[0],
                            .min_count = min_count,
                            .memory = memory,
                            .merges = run->merges,
                            .progress = &progress};
    progress_start(&progress, "merges found", "merges", run->merges);
    int status = merging_run(&merge, &merging);
    progress_finish(&progress);
    if (status == 0 && merging.count < run->merges)
        status = fail(EX_DATA,
                      "the text has only %" PRIu32 " merges, and -V %" PRIu64 " needs %" PRIu32
                      ": use more text, or -V %" PRIu64,
                      merging.count, vocab_size_option, run->merges, vocab_size_option - (run->merges - merging.count));
    VocabularyFiles files = {.pattern = pattern_name(pattern),
                             .params = (const char *)run->params.data,
                             .merges = merging.merges,
                             .merge_count = merging.count,
                             .specials = &specials,
                             .inputs = &run->inputs,
                             .documents = state->documents,
                             .bytes = state->bytes,
                             .pieces = state->pieces,
                             .distinct_pieces = merging.pieces};
    if (status == 0) status = lock_check(&run->lock, output);
    if (status == 0) status = vocabulary_files_write(output, &files);
    merging_close(&merging);
    return status;
}

static void log_result(const CountState *state) {
    char bytes[16];
    log_line("%" PRIu64 " ids from %" PRIu64 " document%s, %s of text", vocab_size_option, state->documents,
             PLURAL(state->documents), human_bytes(bytes, (double)state->bytes));
}

static int train(TrainRun *run) {
    const char *params = (const char *)run->count_params.data;
    CountState state;
    CountJournal journal = {0};
    Buffer other = {0};
    int start = count_journal_load(&journal, output, params, &run->inputs, &state, &other), status = start < 0 ? -1 : 0;
    if (start == COUNT_OTHER && !force) status = compare_unfinished(output, (const char *)other.data, params, false);
    const bool continues = start == COUNT_CONTINUES && !force;
    if (!continues) state = (CountState){0}, journal.point.point = (AccessPoint){0};
    if (status == 0) status = count_journal_open(&journal, params, &run->inputs, &state, continues, &source_options);
    if (status == 0 && continues)
        log_line("continuing after %" PRIu64 " document%s", state.documents, PLURAL(state.documents));
    if (status == 0 && max_bytes && !continues) {
        status = find_sample(run, &state);
        if (status == 0) status = count_journal_add(&journal, &state);
    }
    if (status == 0 && !state.complete) status = count_documents(run, &state, &journal);
    if (status == 0) status = write_vocabulary(run, &state);
    if (status == 0) log_result(&state);
    count_journal_close(&journal);
    if (status == 0) count_journal_remove(output);
    buffer_close(&other);
    return status;
}

static int train_in_output(TrainRun *run) {
    if (dir_make(output) < 0 || lock_take(&run->lock, output, "another directory") < 0) return -1;
    const bool finished = output_has(VOCABULARY_MANIFEST);
    int status = inputs_digest(&run->inputs);
    if (status == 0 && finished && !force) status = compare_finished_vocabulary(run);
    if (status == 0 && !finished && !output_has(COUNT_JOURNAL)) status = refuse_other_files();
    if (status > 0) log_line("'%s' is already complete", output);
    if (status == 0) status = lock_check(&run->lock, output);
    if (status == 0) status = train(run);
    if (status > 0) count_journal_remove(output); // the run before may have been killed before it did
    if (status >= 0) status = vocabulary_files_convert(output, vocab_size_option);
    lock_drop(&run->lock);
    return status;
}

static int run(int count, char **arguments) {
    TrainRun training = {0};
    if (characters && (output || specials.count || max_bytes))
        return fail(EX_USAGE,
                    "--characters prints the characters of all documents: not with -o, --special or --max-bytes");
    if (characters) return input_set_threads(threads) < 0 ? -1 : input_read(count, arguments, character_list_print);
    if (check_options(&training) < 0) return -1;
    if (inputs_open(&training.inputs, count, arguments, &input_filter) < 0) return -1;
    make_params(&training);
    int status = refuse_within_inputs(output, &training.inputs, &input_filter);
    if (status == 0) status = train_in_output(&training);
    buffer_close(&training.count_params);
    buffer_close(&training.params);
    inputs_close(&training.inputs);
    return status;
}

const Command shardtool_train_vocabulary = {
    "train-vocabulary",
    "[INPUT...]",
    "learn a byte-level BPE vocabulary from documents, or list their characters",
    options,
    run,
    NULL};
