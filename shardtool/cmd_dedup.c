// dedup: removes documents whose ids occurred before, compared by a hash of 88 bits, or with --similar those whose text
// is nearly that of one before. Memory: one bucket of hashes (record_sort.h).
#include "common/err.h"
#include "shardtool/similar/near_dedup.h"
#include "shardtool/similar/words.h"
#include "shardtool/support/dataset_vocabulary.h"
#include "shardtool/support/record_sort.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { NUMBER_BITS = 40, MEMORY_DEFAULT = 1 << 30 };

static double similar;
static const char *report_path, *part;
static PartSet parts;
static StringList old_paths;
static OldDatasets old;
static uint64_t memory = MEMORY_DEFAULT;

static const Option options[] = {
    {OPT_FLOAT, "similar", &similar, "X",
     "remove a document that shares at least X of its 5-word sequences with an earlier one (Jaccard), 0.6 to 1; 0: equal ones"},
    {OPT_STRING, "report", &report_path, "FILE",
     "write a line of JSON for each removed document; without -o nothing else is written. - is standard output"},
    {OPT_LIST, "old", &old_paths, "DIR",
     "compare with the documents of this dataset first, which all stay, and write new ones alone; may be given several times"},
    {OPT_STRING, "part", &part, "I/N",
     "only write what this needs of the I-th of N parts of the documents to a file of DIR; the command without --part, "
     "after all parts, reads these files. A Slurm array does not choose the part"},
    {OPT_SIZE, "memory", &memory, "SIZE", "memory to use at most; the rest is sorted in temporary files"},
    ROW_OUTPUT_SPLIT,
    ROWS_OUTPUT,
    ROW_END,
};

// A record of `hashes` has the high half of the hash as its key, and 24 bits of the low half before the number of the
// document. One of `removed` has the numbers of a removed document and of the one that stays.
typedef struct {
    const DocumentInputs *inputs;
    Output *output; // NULL: only the report
    RemovalReport report;
    RecordSort *hashes, *removed;
    SortRecord next; // of `removed`
    int has_next;
    PartWriter *writer; // of --part
} Dedup;

// The documents that are written, of both splits in order, with their numbers.
static int each_document(Dedup *dedup,
                         int (*visit)(Dedup *dedup, DocumentCursor *cursor, const TextDocument *document)) {
    TextDocument document = {0};
    int status = 0;
    for (int i = 0; status == 0 && i < SPLIT_COUNT; i++) {
        DocumentCursor cursor = {.inputs = dedup->inputs, .split = i};
        if (!documents_has(dedup->output, i)) continue;
        document.split = i;
        for (; status == 0 && (status = documents_next(&cursor)) > 0; document.number++) {
            document.position = cursor.position, document.tokens = cursor.document.tokens;
            status = visit(dedup, &cursor, &document);
        }
        documents_end(&cursor);
    }
    return status;
}

static int add_hash(Dedup *dedup, const DocumentHash *hash, uint64_t number) {
    return record_sort_add(dedup->hashes, (SortRecord){hash->high, hash->low << NUMBER_BITS | number});
}

static int hash_document(Dedup *dedup, DocumentCursor *cursor, const TextDocument *document) {
    DocumentHash hash;
    return documents_hash(cursor, &hash) < 0 ? -1 : add_hash(dedup, &hash, old.documents + document->number);
}

static int read_old_hash(void *context, PartFile *file, uint64_t number) {
    DocumentHash hash;
    return part_file_hash(file, &hash) < 0 ? -1 : add_hash(context, &hash, number);
}

static int read_hash(void *context, PartFile *file, uint64_t number) {
    return read_old_hash(context, file, old.documents + number);
}

// Records with equal keys come in the order of the documents. `firsts` holds the first of each hash with that key.
static int find_equal(Dedup *dedup, Buffer *firsts) {
    const uint64_t number_mask = (1ull << NUMBER_BITS) - 1;
    SortRecord record;
    uint64_t key = 0;
    int status;
    while ((status = record_sort_next(dedup->hashes, &record)) > 0) {
        bool is_first = true;
        if (record.key != key) firsts->size = 0;
        key = record.key;
        for (size_t at = 0; is_first && at < firsts->size; at += sizeof record.value) {
            const uint64_t first = get_u64(firsts->data + at);
            if ((first ^ record.value) >> NUMBER_BITS) continue;
            is_first = false;
            const SortRecord removed = {record.value & number_mask, first & number_mask};
            if (removed.key < old.documents) break;
            if (record_sort_add(dedup->removed, removed) < 0) return -1;
        }
        if (is_first) buffer_add(firsts, &record.value, sizeof record.value);
    }
    return status;
}

static int copy_document(Dedup *dedup, DocumentCursor *cursor, const TextDocument *document) {
    removal_report_count(&dedup->report, document);
    if (dedup->has_next <= 0 || dedup->next.key != old.documents + document->number)
        return dedup->output ? documents_copy(cursor, dedup->output) : 0;
    TextDocument removed = *document;
    if (documents_row(cursor, &removed.row) < 0) return -1;
    removal_report_begin(&dedup->report, &removed);
    if (removal_report_add_kept(&dedup->report, dedup->next.value, 1) < 0) return -1;
    dedup->has_next = record_sort_next(dedup->removed, &dedup->next);
    return dedup->has_next < 0 ? -1 : removal_report_end(&dedup->report);
}

static int remove_equal(Dedup *dedup) {
    const uint64_t *own = dedup->inputs->documents, documents = old.documents + own[SPLIT_TRAIN] + own[SPLIT_VAL];
    const char *folder = dedup->output && !dedup->output->to_stdout ? dedup->output->build.target : NULL;
    Buffer firsts = {0};
    const RecordLimits hashes = {documents, 0, 0}, removed = {documents, documents, documents};
    const unsigned threads = (unsigned)output_options.threads;
    if (!(dedup->hashes = record_sort_open(folder, &hashes, memory, threads)) ||
        !(dedup->removed = record_sort_open(folder, &removed, memory, threads)))
        return -1;
    int status = old_datasets_visit(&old, read_old_hash, dedup);
    if (status == 0)
        status = parts.count ? part_set_visit(&parts, read_hash, dedup) : each_document(dedup, hash_document);
    if (status == 0) status = find_equal(dedup, &firsts);
    buffer_close(&firsts);
    if (status == 0) status = dedup->has_next = record_sort_next(dedup->removed, &dedup->next);
    return status < 0 ? -1 : each_document(dedup, copy_document);
}

static int remove_similar(Dedup *dedup) {
    NearDedup near = {.inputs = dedup->inputs,
                      .output = dedup->output,
                      .vocab = dedup->output ? dedup->output->vocab : NULL,
                      .report = &dedup->report,
                      .least = similar,
                      .threads = (unsigned)output_options.threads,
                      .memory = memory,
                      .parts = &parts,
                      .old = &old};
    if (near_dedup_check(&near) < 0) return -1;
    if (near.vocab) return near_dedup_run(&near);
    if (dataset_vocabulary_need(&near.vocab, &dedup->inputs->inputs, dedup->inputs->params.vocab_fp) < 0) return -1;
    const int status = near_dedup_run(&near);
    vocab_close(near.vocab);
    return status;
}

static int dedup_all(void *context, const DocumentInputs *inputs, Output *output) {
    (void)context;
    Dedup dedup = {.inputs = inputs, .output = output};
    parts.inputs = inputs;
    int status = removal_report_open(&dedup.report, inputs, &old, report_path);
    if (status == 0) status = old_datasets_check(&old, inputs);
    if (status == 0) status = similar != 0 ? remove_similar(&dedup) : remove_equal(&dedup);
    if (status == 0) status = removal_report_finish(&dedup.report);
    if (status == 0) removal_report_summary(&dedup.report);
    if (status == 0 && parts.count) part_set_log_rest(&parts);
    record_sort_close(dedup.hashes);
    record_sort_close(dedup.removed);
    removal_report_close(&dedup.report);
    return status;
}

static int sign_equal(Dedup *dedup, DocumentCursor *cursor, const TextDocument *document) {
    PartWriter *const writer = dedup->writer;
    DocumentHash hash;
    if (document->number - writer->first >= writer->documents) return 0;
    if (documents_hash(cursor, &hash) < 0) return -1;
    const uint64_t halves[] = {hash.low, hash.high};
    return part_writer_add(writer, halves, sizeof halves);
}

static int sign(void *context, PartWriter *writer) {
    (void)context;
    const DocumentInputs *inputs = writer->set.inputs;
    Dedup dedup = {.inputs = inputs, .writer = writer};
    if (similar == 0) return each_document(&dedup, sign_equal);
    NearDedup near = {.inputs = inputs, .threads = (unsigned)output_options.threads};
    if (dataset_vocabulary_need(&near.vocab, &inputs->inputs, inputs->params.vocab_fp) < 0) return -1;
    const int status = near_dedup_sign(&near, writer);
    vocab_close(near.vocab);
    return status;
}

static int check_report(const DocumentInputs *inputs) { return removal_report_check_finished(report_path, inputs); }

static int run(int count, char **arguments) {
    char settings[96] = "";
    if (similar != 0 && !(similar >= SIMILAR_LEAST && similar <= 1))
        return fail(EX_USAGE, "--similar is %.15g, and must be from %g to 1", similar, SIMILAR_LEAST);
    if (removal_report_check(report_path, part) < 0) return -1;
    parts = part_set_of_output(similar != 0 ? PART_BANDS : PART_HASHES, similar != 0 ? near_dedup_rules() : "");
    if (part) return part_set_write(&parts, part, count, arguments, sign, NULL);
    if (part_set_find(&parts) < 0 || old_datasets_open(&old, &old_paths, parts.kind, parts.rules) < 0) return -1;
    if (similar != 0) snprintf(settings, sizeof settings, "similar=%.10g;words=%d", similar, WORDS_VERSION);
    if (old.count)
        snprintf(settings + strlen(settings), sizeof settings - strlen(settings), "%sold=%016" PRIx64,
                 *settings ? ";" : "", old_datasets_digest(&old));
    const int status = report_path && !output_options.path
                           ? documents_run_dry(count, arguments, dedup_all, NULL)
                           : documents_run(count, arguments, "dedup", settings, dedup_all, check_report, NULL);
    old_datasets_close(&old);
    return status;
}

const Command shardtool_dedup = {
    "dedup", "PATH...", "remove equal or similar documents; the first stays, train before val", options, run, NULL};
