// decontaminate: removes documents that hold an item of a benchmark. Memory: 16 bytes and a few bits for each n-gram of
// the items, and 4 bytes for each thread.
#include "common/err.h"
#include "common/json_write.h"
#include "common/log.h"
#include "shardtool/similar/item_index.h"
#include "shardtool/similar/part_files.h"
#include "shardtool/similar/removal_report.h"
#include "shardtool/support/dataset_vocabulary.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// Of `rules` and `params`: words.h, version 2, without the markers of conversations. In form 2 they were words.
enum { FORM = 3 };

static StringList against;
static const char *report_path, *part_option, *text_field = "*";
static PartSet parts;
static uint64_t words = 13;
static SourceDocs docs = DOCS_LINES;

static const Option options[] = {
    {OPT_LIST, "against", &against, "FILE",
     "file of items: those of a grade, other JSON lines, Parquet or text; may be given several times"},
    {OPT_SIZE, "words", &words, "N", "compare sequences of N words"},
    {OPT_STRING, "report", &report_path, "FILE",
     "write a line of JSON for each removed document; without -o nothing else is written. - is standard output"},
    {OPT_STRING, "text-field", &text_field, "KEY",
     "key of the text in a JSON line of --against; a.b is that key, or key b of object a, * joins all strings of the line"},
    {OPT_STRING, "text-column", &source_options.text_column, "NAME",
     "column of the text in a Parquet file of --against"},
    {OPT_WORD, "docs", &docs, DOCS_WORDS, "unit of one item in plain text"},
    {OPT_STRING, "part", &part_option, "I/N",
     "only write what is found in the I-th of N parts of the documents to a file of DIR; the command without --part, "
     "after all parts, reads these files. A Slurm array does not choose the part"},
    ROW_OUTPUT_SPLIT,
    ROWS_OUTPUT,
    ROW_END,
};

// The result of a document in which an item occurs; the words follow.
typedef struct {
    double share;
    uint32_t item;
} HitHead;

typedef struct {
    Inputs files; // of --against
    ItemIndex *index;
    ItemSearch **searches; // one for each worker
    const DocumentInputs *inputs;
    Output *output; // NULL: only the report
    RemovalReport report;
    uint64_t too_long;
    PartWriter *writer; // of --part
    unsigned number;    // of the part that is read; 0: none yet
    PartFile file;      // its file
    PartHit next;       // of it
    bool *occurs;       // each item, in the parts that were read
} Decontamination;

static int read_items(Decontamination *work, Source *source) {
    Buffer text = {0};
    Part part;
    int status;
    while ((status = source_next(source, &part)) > 0) {
        buffer_add(&text, part.text.data, part.text.size);
        if (!part.last) continue;
        if (item_index_add(work->index, (Bytes){text.data, text.size}, part.file, part.document) < 0) break;
        text.size = 0;
    }
    buffer_close(&text);
    return status == 0 ? 0 : -1;
}

static int open_items(Decontamination *work) {
    char *paths[STRING_LIST_MAX];
    for (size_t i = 0; i < against.count; i++) paths[i] = (char *)(uintptr_t)against.items[i];
    if (inputs_open(&work->files, (int)against.count, paths, &input_filter) < 0) return -1;
    source_options.docs = docs, source_options.text_field = text_field, source_options.items = true;
    work->index = item_index_open((unsigned)words);
    Source *source = source_open(&work->files, &source_options);
    const int status = read_items(work, source);
    source_close(source);
    if (status == 0 && !item_index_items(work->index)) return fail_no_documents();
    item_index_build(work->index);
    return status;
}

static int search_text(void *context, unsigned worker, Bytes notes, Bytes text, Buffer *out) {
    (void)notes;
    const Decontamination *work = context;
    ItemHit hit;
    if (!item_search(work->searches[worker], text, &hit)) return 0;
    const HitHead head = {.share = hit.share, .item = hit.item};
    buffer_add(out, &head, sizeof head);
    buffer_add(out, hit.words.data, hit.words.size);
    return 0;
}

static PartHit hit_of_result(const TextDocument *document, Bytes result) {
    HitHead head;
    memcpy(&head, result.data, sizeof head);
    const Bytes text = {result.data + sizeof head, result.size - sizeof head};
    return (PartHit){.number = document->number, .share = head.share, .item = head.item, .words = text};
}

static int report_hit(Decontamination *work, const TextDocument *document, const PartHit *hit) {
    const Item *item = item_index_item(work->index, hit->item);
    char path[PATH_MAX_BYTES];
    Buffer *lines = &work->report.lines;
    JsonCarry carry = {.size = 0};
    removal_report_begin(&work->report, document);
    input_path(&work->files, &work->files.files[item->file], path);
    json_add_field(lines, "against", path);
    json_add_number(lines, "item", item->document);
    json_add_real(lines, "share", hit->share, 4);
    json_add_key(lines, "words");
    buffer_print(lines, "\"");
    json_add_text(lines, hit->words, true, &carry);
    buffer_print(lines, "\"");
    return removal_report_end(&work->report);
}

static int take_document(void *context, const TextDocument *document, Bytes result, Bytes ids) {
    Decontamination *work = context;
    removal_report_count(&work->report, document);
    work->too_long += document->cursor != NULL;
    if (!result.size) return text_document_copy(document, work->inputs, ids, work->output);
    const PartHit hit = hit_of_result(document, result);
    return report_hit(work, document, &hit);
}

// Reads the next hit of the parts; after the last, its number is UINT64_MAX.
static int next_hit(Decontamination *work) {
    for (;;) {
        const uint64_t items = item_index_items(work->index), end = work->file.first + work->file.documents;
        if (work->number) {
            if (part_file_hit(&work->file, &work->next) < 0) return -1;
            if (work->next.number != UINT64_MAX)
                return work->next.number < end && work->next.item < items ? 0 : part_file_damaged(&work->file);
            if (part_file_end(&work->file) < 0) return -1;
            if (work->next.words.size != (items + 7) / 8) return part_file_damaged(&work->file);
            for (uint64_t i = 0; i < items; i++) work->occurs[i] |= work->next.words.data[i / 8] >> i % 8 & 1;
            part_file_close(&work->file);
        }
        if (work->number == parts.count) return 0;
        if (part_file_open(&work->file, &parts, ++work->number) < 0) return -1;
    }
}

static bool wants_none(void *context, const TextDocument *document, Buffer *notes) {
    (void)context, (void)document, (void)notes;
    return false;
}

// Takes a document of which a part was searched.
static int take_searched(void *context, const TextDocument *document, Bytes result, Bytes ids) {
    Decontamination *work = context;
    if (work->next.number != document->number) return take_document(context, document, result, ids);
    removal_report_count(&work->report, document);
    return report_hit(work, document, &work->next) < 0 ? -1 : next_hit(work);
}

static int write_hit(void *context, const TextDocument *document, Bytes result, Bytes ids) {
    (void)ids;
    if (!result.size) return 0;
    PartWriter *const writer = ((Decontamination *)context)->writer;
    const PartHit hit = hit_of_result(document, result);
    if (part_writer_add(writer, &hit.number, sizeof hit.number) < 0) return -1;
    const uint64_t bytes = hit.words.size;
    if (part_writer_add(writer, &bytes, sizeof bytes) < 0) return -1;
    if (part_writer_add(writer, &hit.share, sizeof hit.share) < 0) return -1;
    if (part_writer_add(writer, &hit.item, sizeof hit.item) < 0) return -1;
    return part_writer_add(writer, hit.words.data, hit.words.size);
}

static void log_items(const Decontamination *work) {
    const uint64_t items = item_index_items(work->index);
    uint64_t occur = 0, too_short = 0;
    for (uint64_t i = 0; i < items; i++)
        occur += work->occurs[i], too_short += !item_index_item(work->index, i)->windows;
    log_line("items that occur: %" PRIu64 " of %" PRIu64, occur, items - too_short);
    if (too_short)
        log_warn("%" PRIu64 " item%s of fewer than %d words %s not searched for", too_short, PLURAL(too_short),
                 words < ITEM_WORDS_MIN ? (int)words : (int)ITEM_WORDS_MIN, too_short == 1 ? "was" : "were");
    if (work->too_long)
        log_warn("%" PRIu64 " document%s of more than %d tokens stay without a comparison", work->too_long,
                 PLURAL(work->too_long), TEXT_TOKENS_MAX);
}

// Applies `map` with a search for each worker, and sets `occurs`.
static int search_texts(Decontamination *work, TextMap *map) {
    const uint64_t items = item_index_items(work->index);
    const unsigned threads = text_map_threads(map);
    work->searches = allocate_zeroed(threads, sizeof *work->searches);
    for (unsigned i = 0; i < threads; i++) work->searches[i] = item_search_open(work->index);
    map->work = search_text;
    const int status = text_map_run(map);
    for (unsigned i = 0; i < threads; i++) {
        for (uint64_t k = 0; k < items; k++) work->occurs[k] |= item_search_found(work->searches[i], k);
        item_search_close(work->searches[i]);
    }
    free(work->searches);
    return status;
}

static int search_documents(Decontamination *work, const Vocab *vocab) {
    TextMap map = {.inputs = work->inputs,
                   .output = work->output,
                   .vocab = vocab,
                   .without_markers = true,
                   .threads = (unsigned)output_options.threads,
                   .context = work,
                   .take = take_document};
    parts.inputs = work->inputs;
    int status = removal_report_open(&work->report, work->inputs, NULL, report_path);
    if (status == 0 && parts.count) {
        map.wants = wants_none, map.take = take_searched;
        status = next_hit(work);
        if (status == 0) status = text_map_run(&map);
        if (status == 0 && work->next.number != UINT64_MAX) status = part_file_damaged(&work->file);
        part_file_close(&work->file);
    } else if (status == 0) {
        status = search_texts(work, &map);
    }
    if (status == 0) status = removal_report_finish(&work->report);
    if (status == 0) removal_report_summary(&work->report), log_items(work);
    if (status == 0 && parts.count) part_set_log_rest(&parts);
    removal_report_close(&work->report);
    return status;
}

static int search_part(void *context, PartWriter *writer) {
    static const uint64_t end = UINT64_MAX;
    Decontamination *work = context;
    const DocumentInputs *inputs = writer->set.inputs;
    const uint64_t items = item_index_items(work->index), bytes = (items + 7) / 8;
    TextMap map = {.inputs = inputs,
                   .without_markers = true,
                   .threads = (unsigned)output_options.threads,
                   .first = writer->first,
                   .end = writer->first + writer->documents,
                   .context = work,
                   .take = write_hit};
    work->writer = writer;
    if (dataset_vocabulary_need(&map.vocab, &inputs->inputs, inputs->params.vocab_fp) < 0) return -1;
    int status = writer->documents ? search_texts(work, &map) : 0;
    vocab_close(map.vocab);
    uint8_t *bits = allocate_zeroed(bytes, 1);
    for (uint64_t i = 0; i < items; i++) bits[i / 8] |= (uint8_t)(work->occurs[i] << i % 8);
    if (status == 0) status = part_writer_add(writer, &end, sizeof end);
    if (status == 0) status = part_writer_add(writer, bits, bytes);
    free(bits);
    return status;
}

static int decontaminate_all(void *context, const DocumentInputs *inputs, Output *output) {
    Decontamination *work = context;
    const Vocab *vocab;
    work->inputs = inputs, work->output = output;
    if (output && documents_check_splits(inputs) < 0) return -1;
    if (output && output->vocab) return search_documents(work, output->vocab);
    if (dataset_vocabulary_need(&vocab, &inputs->inputs, inputs->params.vocab_fp) < 0) return -1;
    const int status = search_documents(work, vocab);
    vocab_close(vocab);
    return status;
}

static int check_report(const DocumentInputs *inputs) { return removal_report_check_finished(report_path, inputs); }

static int clean(int count, char **arguments, Decontamination *work) {
    if (part_set_find(&parts) < 0) return -1;
    if (report_path && !output_options.path) return documents_run_dry(count, arguments, decontaminate_all, work);
    return documents_run(count, arguments, "decontaminate", parts.rules, decontaminate_all, check_report, work);
}

static int run(int count, char **arguments) {
    char settings[80];
    Decontamination work = {0};
    if (!against.count) return fail(EX_USAGE, "missing --against FILE, the items of a benchmark");
    if (words < 1 || words > ITEM_WORDS_MAX)
        return fail(EX_USAGE, "--words is %" PRIu64 ", and must be from 1 to %d", words, ITEM_WORDS_MAX);
    if (removal_report_check(report_path, part_option) < 0) return -1;
    int status = open_items(&work);
    if (status == 0) {
        work.occurs = allocate_zeroed(item_index_items(work.index), sizeof *work.occurs);
        snprintf(settings, sizeof settings, "against=%016" PRIx64 ";words=%" PRIu64 ";form=%d",
                 item_index_digest(work.index), words, FORM);
        parts = part_set_of_output(PART_HITS, settings);
        status = part_option ? part_set_write(&parts, part_option, count, arguments, search_part, &work)
                             : clean(count, arguments, &work);
    }
    free(work.occurs);
    item_index_close(work.index);
    inputs_close(&work.files);
    return status;
}

const Command shardtool_decontaminate = {"decontaminate", "PATH...", "remove documents that hold items of benchmarks",
                                         options,         run,       NULL};
